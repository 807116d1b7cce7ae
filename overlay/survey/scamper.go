package survey

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"heddle/path"
)

// Request is one half to measure.
type Request struct {
	Uplink Uplink
	To     netip.AddrPort
}

// Surveyor runs scamper. Its zero value is ready.
type Surveyor struct {
	Program string                                                   // file of scamper; empty: the one in PATH
	Rate    int                                                      // most probes a second, over all requests; 0: 100
	Now     func() time.Time                                         // clock; nil: the system's
	run     func(ctx context.Context, args []string) ([]byte, error) // runs scamper and returns its output; nil: the real one
}

// Probes: seconds to wait for an answer, tries per hop, consecutive silent hops that end a trace, most hops, pings.
const (
	waitSeconds = 1
	attempts    = 2
	silent      = 6
	farthest    = 48
	pings       = 4
	firstPort   = 50_000
)

// Measure measures all halves at once, and returns them in the order of the requests. A destination that does not answer is
// no error: the result keeps what was seen of the path.
//
// On Ethernet devices it traces by TCP segments with ACK set, which most firewalls pass, and then by SYN if they do not
// reach the destination. Both use one pair of ports, so that routers take them for one connection. Round trips are of the
// same connection, or of ICMP with a fixed checksum if TCP has no answer. On other devices it uses ICMP, then UDP: see
// [Uplink].
func (s *Surveyor) Measure(ctx context.Context, requests []Request) ([]Half, error) {
	halves := make([]Half, len(requests))
	for i, r := range requests {
		halves[i] = Half{Uplink: r.Uplink.Name, From: r.Uplink.Source, To: r.To, Hops: []Hop{}, Method: "tcp-ack"}
	}
	m := measuring{s, requests, halves}
	unreached := func(h Half) bool { return !h.Reached }
	unanswered := func(h Half) bool { return h.RTT == 0 }
	trace := fmt.Sprintf("trace -w %d -q %d -g %d -m %d -s %%d -d %%d -P ", waitSeconds, attempts, silent, farthest)
	ping := fmt.Sprintf("ping -c %d -i 1 -F %%d -d %%d -P ", pings)
	for _, step := range []step{
		{unreached, trace + "tcp-ack", trace + "icmp-paris"},
		{unreached, trace + "tcp", trace + "udp-paris"},
		{unanswered, ping + "tcp-ack", ping + fixedEcho},
		{unanswered, ping + fixedEcho, ""},
	} {
		if err := m.take(ctx, step); err != nil {
			return nil, err
		}
	}
	return halves, nil
}

type measuring struct {
	s        *Surveyor
	requests []Request
	halves   []Half
}

// step is a command for the halves that want it, with verbs for both ports: framed for Ethernet devices, unframed for
// others, which may be empty.
type step struct {
	wanted           func(Half) bool
	framed, unframed string
}

// fixedEcho keeps the checksum constant, which some routers take for part of a flow.
const fixedEcho = "icmp-echo -C 0x1d1d"

// take runs a step and keeps its results.
func (m *measuring) take(ctx context.Context, s step) error {
	var commands []string
	for i, r := range m.requests {
		command := s.framed
		if r.Uplink.NoFrames {
			command = s.unframed
		}
		if command != "" && s.wanted(m.halves[i]) {
			commands = append(commands, r.command(command, i))
		}
	}
	if len(commands) == 0 {
		return nil
	}
	output, err := m.s.scamper(ctx, commands)
	if err != nil {
		return err
	}
	results, err := parse(output)
	if err != nil {
		return &path.Error{What: "survey", Why: "scamper's output is not what it should be", Err: err}
	}
	for _, found := range results {
		if found.id < 0 || found.id >= len(m.halves) {
			continue
		}
		if err := m.keep(found); err != nil {
			return err
		}
	}
	return nil
}

// keep stores a result that says more than what is known.
func (m *measuring) keep(found result) error {
	h := &m.halves[found.id]
	if up := m.requests[found.id].Uplink; up.Source.IsValid() && found.src.Unmap() != up.Source {
		return &path.Error{What: "path " + up.Name, Why: fmt.Sprintf("the probes left from %v instead of %v", found.src, up.Source),
			Hint: "the path has changed meanwhile: try again"}
	}
	h.From = found.src.Unmap()
	if !found.trace {
		if found.rtt > 0 {
			h.RTT, h.Ping = found.rtt, found.method
		}
		return nil
	}
	h.At = m.s.now()
	if found.reached || len(found.hops) > len(h.Hops) {
		h.Hops, h.Reached, h.Method = found.hops, found.reached, found.method
	}
	return nil
}

// command formats a scamper command for the request with an index.
func (r Request) command(format string, index int) string {
	text := fmt.Sprintf(format, firstPort+index%10_000, r.To.Port())
	if r.Uplink.Source.IsValid() {
		text += " -S " + r.Uplink.Source.String()
	}
	if r.Uplink.Gateway.IsValid() {
		text += " -r " + r.Uplink.Gateway.String()
	}
	return fmt.Sprintf("%s -U %d %s", text, index, r.To.Addr())
}

func (s *Surveyor) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now().UTC().Truncate(time.Second)
}

// maxOutput bounds scamper's output, in bytes.
const maxOutput = 64 << 20

// scamper runs the commands concurrently. It looks up no name, but does not start without a nameserver.
func (s *Surveyor) scamper(ctx context.Context, commands []string) ([]byte, error) {
	args := append([]string{"-O", "json", "-o", "-", "-n", "127.0.0.1", "-p", fmt.Sprint(cmp.Or(s.Rate, 100)), "-I"}, commands...)
	if s.run != nil {
		return s.run(ctx, args)
	}
	file, err := s.program()
	if err != nil {
		return nil, &path.Error{What: "survey", Why: "scamper is not installed", Hint: "install it, such as with `apt-get install scamper`"}
	}
	cmd := exec.CommandContext(ctx, file, args...)
	var output, talk limited
	cmd.Stdout, cmd.Stderr = &output, &talk
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, failed(err, talk.Bytes())
	}
	return output.Bytes(), nil
}

// program finds scamper, also outside users' PATH.
func (s *Surveyor) program() (file string, err error) {
	name := cmp.Or(s.Program, "scamper")
	for _, dir := range []string{"", "/usr/sbin/", "/usr/local/sbin/"} {
		if file, err = exec.LookPath(dir + name); err == nil {
			break
		}
	}
	return file, err
}

func failed(err error, talk []byte) error {
	hint := "run it by hand to see more: scamper -I \"trace -P tcp-ack ADDRESS\""
	if os.Geteuid() != 0 {
		hint = "run it as root: scamper needs raw sockets"
	}
	last := strings.TrimSpace(string(talk[max(0, len(talk)-500):]))
	return &path.Error{What: "survey", Why: "scamper failed", Err: fmt.Errorf("%w: %q", err, last), Hint: hint}
}

// limited is a buffer with a limit.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > maxOutput {
		return 0, errors.New("scamper prints too much")
	}
	return l.Buffer.Write(p)
}
