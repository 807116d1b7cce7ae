// Package diversity chooses, among many ways to one destination, those few that the fewest networks see together.
//
// A [Path] is one way through an overlay node: the autonomous systems (ASes) that it passes from here to the node and
// from the node to the destination. [Choose] finds the set whose pairs have the fewest ASes in common and, among equals,
// the fastest (MACHETE, section III-C.1). It is pure: no clock, no network, no randomness.
//
// Do not take its word for more than its input: a network that a traceroute did not show is not counted, and one owner
// may hold several ASes.
package diversity

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"heddle/path"
)

// MaxPaths is the largest set that can be chosen.
const MaxPaths = 8

// AS is the number of an autonomous system (RFC 6793). 0 stands for none.
type AS uint32

// String gives the number as people write it, such as AS64500.
func (a AS) String() string { return "AS" + strconv.FormatUint(uint64(a), 10) }

// ParseAS reads a number with or without "AS" before it.
func ParseAS(text string) (AS, error) {
	digits := text
	if len(text) > 2 && strings.EqualFold(text[:2], "AS") {
		digits = text[2:]
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || n == 0 || digits[0] == '+' {
		return 0, &path.Error{What: fmt.Sprintf("AS %q", text), Why: "it is no number of an autonomous system", Hint: "write AS64500 or 64500"}
	}
	return AS(n), nil
}

// Path is one way to the destination.
type Path struct {
	Name string `json:"name"`
	// Node and Uplink say through which overlay node it goes, and by which way it leaves this machine. A node is never
	// used twice in a set: it sees all that passes it.
	Node   string `json:"node"`
	Uplink string `json:"uplink"`
	// ASes are those of both halves, in any order; repetitions and zeros do not count.
	ASes []AS `json:"ases"`
	// Countries are ISO 3166 codes of the places it passes, as far as known.
	Countries []string `json:"countries,omitempty"`
	// Hidden is how many hops of it belong to an unknown AS.
	Hidden int `json:"hidden"`
	// RTT is the round trip of both halves together, 0 where it is unknown.
	RTT time.Duration `json:"-"`
	// Why says why the path cannot be used; empty where it can.
	Why string `json:"why,omitempty"`
}

// Options say what to choose.
type Options struct {
	// Paths is how many, 1 to [MaxPaths].
	Paths int
	// AvoidAS and AvoidCountry leave out all paths that pass one of them. A country is known by its ISO 3166 code.
	AvoidAS      []AS
	AvoidCountry []string
	// Ends are ASes that are not counted as common, such as the destination's own, which sees all whatever is chosen.
	Ends []AS
	// Degrade takes paths with hidden hops although there is something to avoid, which may be there.
	Degrade bool
	// Steps bounds the search, in comparisons; 0 stands for about a second's worth.
	Steps int
}

// Pair is two chosen paths, and which networks see both.
type Pair struct {
	A      string `json:"a"`
	B      string `json:"b"`
	Common []AS   `json:"common"`
	// SameUplink reports whether both leave this machine by one uplink, so that its network sees both, named or not.
	SameUplink bool `json:"same_uplink"`
}

// Refusal is a path that was left out before the choice.
type Refusal struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Choice is a set of paths, and why it is that one.
type Choice struct {
	// Paths are the chosen ones, the fastest first.
	Paths []Path `json:"paths"`
	// Pairs are all pairs of them.
	Pairs []Pair `json:"pairs"`
	// Common is the number of common ASes, summed over all pairs: what was made as small as it can be.
	Common int `json:"common"`
	// Everywhere are the ASes that every chosen path passes, so that they see the whole.
	Everywhere []AS `json:"everywhere"`
	// Unavoidable are the ASes that every usable path passes, chosen or not: no choice among these paths avoids them.
	Unavoidable []AS `json:"unavoidable"`
	// Ends are the ASes that were not counted.
	Ends []AS `json:"ends"`
	// Usable is how many paths there were to choose from; Refused are the others.
	Usable  int       `json:"usable"`
	Refused []Refusal `json:"refused"`
	// Exact reports whether the search went to its end, so that no better set exists.
	Exact bool `json:"exact"`
}

// Diverse reports whether no AS but the ends sees two of the paths, as far as is known.
func (c Choice) Diverse() bool { return c.Common == 0 }

// SeenTogether says which pairs some AS sees, and which; named gives the words for it.
func (c Choice) SeenTogether(named func(AS) string) string {
	var seen []string
	for _, p := range c.Pairs {
		var networks []string
		for _, as := range p.Common {
			networks = append(networks, named(as))
		}
		if len(networks) > 0 {
			seen = append(seen, fmt.Sprintf("%s and %s by %s", p.A, p.B, strings.Join(networks, ", ")))
		}
	}
	return strings.Join(seen, "; ")
}

// Choose finds the set of o.Paths paths, no two through one node, whose pairs have the fewest ASes in common, summed
// over all pairs. Among equals it takes the one with fewer pairs on one uplink, then with fewer hidden hops, then with
// the smallest sum of round trips. It fails where fewer nodes than that can be used. A set that is not diverse is no
// failure: see [Choice.Diverse].
func Choose(paths []Path, o Options) (Choice, error) {
	if o.Paths < 1 || o.Paths > MaxPaths {
		return Choice{}, &path.Error{What: fmt.Sprintf("%d paths", o.Paths), Why: fmt.Sprintf("a set has 1 to %d", MaxPaths), Hint: "two or three are the usual"}
	}
	c := Choice{Refused: []Refusal{}, Ends: tidy(o.Ends)}
	var usable []Path
	for _, p := range paths {
		if why := refuse(p, o); why != "" {
			c.Refused = append(c.Refused, Refusal{p.Name, why})
			continue
		}
		usable = append(usable, p)
	}
	// The fastest first, so that the search meets good sets early, and equals are told apart by their names.
	slices.SortStableFunc(usable, func(a, b Path) int { return cmp.Or(cmp.Compare(a.weight(), b.weight()), cmp.Compare(a.Name, b.Name)) })
	if n := nodes(usable); n < o.Paths {
		return c, tooFew(n, o.Paths, c.Refused)
	}
	m := NewMatrix(usable, o.Ends)
	chosen, exact := m.Best(o.Paths, o.Steps)
	if chosen == nil {
		return c, tooFew(0, o.Paths, c.Refused)
	}
	c.Exact, c.Usable = exact, len(usable)
	for _, i := range chosen {
		c.Paths = append(c.Paths, usable[i])
	}
	c.explain(usable)
	return c, nil
}

// refuse says why a path is out of question.
func refuse(p Path, o Options) string {
	if p.Why != "" {
		return p.Why
	}
	for _, a := range p.ASes {
		if slices.Contains(o.AvoidAS, a) {
			return "it passes " + a.String()
		}
	}
	for _, country := range p.Countries {
		if slices.ContainsFunc(o.AvoidCountry, func(c string) bool { return strings.EqualFold(c, country) }) {
			return "it passes " + country
		}
	}
	if len(tidy(p.ASes)) == 0 {
		return "no network on it is known"
	}
	if p.Hidden > 0 && len(o.AvoidAS)+len(o.AvoidCountry) > 0 && !o.Degrade {
		return fmt.Sprintf("%d hops of it are of unknown networks, which may be those to avoid", p.Hidden)
	}
	return ""
}

func tooFew(have, want int, refused []Refusal) error {
	var why []string
	for _, r := range refused {
		why = append(why, r.Path+": "+r.Why)
	}
	text := fmt.Sprintf("%d nodes can be used, and %d paths need as many", have, want)
	if len(why) > 0 {
		text += " (" + strings.Join(why, "; ") + ")"
	}
	return &path.Error{What: "choice of paths", Why: text, Hint: "survey more nodes, ask for fewer paths, or avoid less"}
}

// explain fills what follows from the chosen paths.
func (c *Choice) explain(usable []Path) {
	c.Pairs = []Pair{}
	for i, a := range c.Paths {
		for _, b := range c.Paths[i+1:] {
			pair := Pair{A: a.Name, B: b.Name, Common: without(common(a, b), c.Ends), SameUplink: a.Uplink == b.Uplink}
			c.Common += len(pair.Common)
			c.Pairs = append(c.Pairs, pair)
		}
	}
	c.Everywhere = without(common(c.Paths...), c.Ends)
	c.Unavoidable = without(common(usable...), c.Ends)
	if len(c.Paths) < 2 {
		c.Everywhere = []AS{}
	}
}

// common are the ASes that all paths pass, in ascending order.
func common(paths ...Path) []AS {
	all := tidy(paths[0].ASes)
	for _, p := range paths[1:] {
		all = slices.DeleteFunc(all, func(a AS) bool { return !slices.Contains(p.ASes, a) })
	}
	return all
}

func without(list, ends []AS) []AS {
	return slices.DeleteFunc(list, func(a AS) bool { return slices.Contains(ends, a) })
}

// tidy is a sorted copy without repetitions and zeros, never nil.
func tidy(list []AS) []AS {
	sorted := slices.Compact(slices.Sorted(slices.Values(list)))
	if len(sorted) > 0 && sorted[0] == 0 {
		sorted = sorted[1:]
	}
	return append([]AS{}, sorted...)
}

func nodes(paths []Path) int {
	seen := map[string]bool{}
	for _, p := range paths {
		seen[p.Node] = true
	}
	return len(seen)
}

// slowest is what a round trip counts as where it is unknown, and at most.
const slowest = time.Minute

// weight orders paths that are equally diverse: those with fewer hidden hops first, then the fastest. A hidden hop
// outweighs all round trips of a set.
func (p Path) weight() int64 {
	rtt := p.RTT
	if rtt <= 0 || rtt > slowest {
		rtt = slowest
	}
	return int64(min(p.Hidden, 1000))*int64((MaxPaths+1)*slowest) + int64(rtt)
}
