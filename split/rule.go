package split

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"heddle/path"
)

// Rule sends what it matches by one path, regardless of the schedule (CoMPS, section 3.3: context-dependent splitting).
type Rule struct {
	When When
	Use  string // name of the path
}

// When is what a rule matches. One field is set.
type When struct {
	// Handshake matches QUIC's long headers (RFC 9000, section 17.2; RFC 9369), and all that the client sends until it is done.
	Handshake bool
	Packets   int           // the first so many datagrams of a session
	Period    time.Duration // what is sent within this time of a session's first datagram
	Port      uint16        // sessions with this port of the server
}

// HandshakeWhen is the text form of the rule for QUIC's handshake.
const HandshakeWhen = "quic-handshake"

// ParseWhen reads "quic-handshake", "first 10p", "first 3s" or "port 53".
func ParseWhen(text string) (When, error) {
	bad := func(why string) (When, error) {
		return When{}, &path.Error{What: fmt.Sprintf("when %q", text), Why: why,
			Hint: `write "quic-handshake", "first 10p", "first 3s" or "port 53"`}
	}
	words := strings.Fields(text)
	switch {
	case len(words) == 1 && words[0] == HandshakeWhen:
		return When{Handshake: true}, nil
	case len(words) != 2:
		return bad("it is no condition")
	case words[0] == "port":
		n, err := strconv.ParseUint(words[1], 10, 16)
		if err != nil || n == 0 {
			return bad(words[1] + " is no port")
		}
		return When{Port: uint16(n)}, nil
	case words[0] != "first":
		return bad("it is no condition")
	}
	if count, ok := strings.CutSuffix(words[1], "p"); ok {
		n, err := strconv.ParseUint(count, 10, 31)
		if err != nil || n == 0 {
			return bad(words[1] + " is no number of packets")
		}
		return When{Packets: int(n)}, nil
	}
	d, err := time.ParseDuration(words[1])
	if err != nil || d <= 0 {
		return bad(words[1] + " is no time")
	}
	return When{Period: d}, nil
}

// String returns the text that ParseWhen reads.
func (w When) String() string {
	switch {
	case w.Handshake:
		return HandshakeWhen
	case w.Packets > 0:
		return fmt.Sprintf("first %dp", w.Packets)
	case w.Period > 0:
		return fmt.Sprintf("first %v", w.Period)
	}
	return fmt.Sprintf("port %d", w.Port)
}

// ParseRule reads WHEN=PATH, such as "first 10p=office".
func ParseRule(text string) (Rule, error) {
	when, use, found := strings.Cut(text, "=")
	if !found || use == "" {
		return Rule{}, &path.Error{What: fmt.Sprintf("rule %q", text), Why: "no path is named", Hint: `write WHEN=PATH, such as "first 10p=office"`}
	}
	w, err := ParseWhen(when)
	return Rule{When: w, Use: strings.TrimSpace(use)}, err
}

// ruler applies the rules of one session. The session's lock guards it.
type ruler struct {
	rules []rule
	sent  int       // uplink datagrams
	began time.Time // when the first of them was sent
}

type rule struct {
	When
	member int
}

var errNoSuchPath = errors.New("no such path")

// newRuler finds the members that the rules name. It returns nil if no rule could ever match.
func newRuler(rules []Rule, members []*member, port uint16) (*ruler, error) {
	r := &ruler{}
	for _, given := range rules {
		member := slices.IndexFunc(members, func(m *member) bool { return m.Spec.Name == given.Use })
		if member < 0 {
			return nil, &path.Error{What: fmt.Sprintf("rule %q", given.When), Why: fmt.Sprintf("it uses %q, and no path has that name", given.Use),
				Hint: "define it with --path " + given.Use + "=KIND:ARG, or use one of --via", Err: errNoSuchPath}
		}
		if given.When.Port == 0 || given.When.Port == port {
			r.rules = append(r.rules, rule{given.When, member})
		}
	}
	if len(r.rules) == 0 {
		return nil, nil
	}
	return r, nil
}

// up returns the member that the first datagrams must take, of which there are n, or -1 if the schedule decides. It returns how
// many take it. handshake is whether they belong to a QUIC handshake.
func (r *ruler) up(now time.Time, n int, handshake bool) (member, taken int) {
	if r.sent == 0 {
		r.began = now
	}
	first := r.match(now, r.sent+1, handshake)
	for taken = 1; taken < n && r.match(now, r.sent+taken+1, handshake) == first; taken++ {
	}
	r.sent += taken
	if first < 0 {
		return -1, taken
	}
	return r.rules[first].member, taken
}

// match returns the first rule that matches the nth datagram, or -1.
func (r *ruler) match(now time.Time, n int, handshake bool) int {
	return slices.IndexFunc(r.rules, func(rule rule) bool {
		return rule.Handshake && handshake || rule.Packets >= n || rule.Period > now.Sub(r.began) || rule.Port != 0
	})
}

// handshakeMember returns the member of QUIC's handshake, or -1 if no rule names one.
func (r *ruler) handshakeMember() int {
	if r == nil {
		return -1
	}
	for _, rule := range r.rules {
		if rule.Handshake {
			return rule.member
		}
	}
	return -1
}
