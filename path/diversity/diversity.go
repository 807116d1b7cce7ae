// Package diversity chooses the few paths to a destination that the fewest networks see together.
//
// A [Path] leads through an overlay node, and has the autonomous systems (ASes) on the way to the node and from there to the
// destination. [Choose] finds the set whose pairs have the fewest ASes in common and, among equals, the fastest (MACHETE,
// section III-C.1). It is deterministic. The result is only as good as its input: a traceroute does not show all networks,
// and one owner may have several ASes.
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

// AS is the number of an autonomous system (RFC 6793). 0 means none.
type AS uint32

func (a AS) String() string { return "AS" + strconv.FormatUint(uint64(a), 10) }

// ParseAS parses a number with or without the prefix "AS".
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
	// Node is the overlay node; Uplink is the way out of this machine. A set uses each node once, as the node sees all
	// packets that pass it.
	Node      string        `json:"node"`
	Uplink    string        `json:"uplink"`
	ASes      []AS          `json:"ases"`                // of both halves, in any order; repetitions and zeros do not count
	Countries []string      `json:"countries,omitempty"` // ISO 3166 codes of known locations
	Hidden    int           `json:"hidden"`              // hops of unknown ASes
	RTT       time.Duration `json:"-"`                   // of both halves together; 0 if unknown
	Why       string        `json:"why,omitempty"`       // why the path is unusable; empty if it is usable
}

// Options are the criteria of [Choose].
type Options struct {
	Paths int // size of the set, 1 to [MaxPaths]
	// AvoidAS and AvoidCountry (ISO 3166 codes) exclude paths that pass one of them.
	AvoidAS      []AS
	AvoidCountry []string
	// Ends are ASes that do not count as common, such as the destination's own, which sees all packets anyway.
	Ends []AS
	// Degrade accepts paths with hidden hops, which may be in an AS or country to avoid.
	Degrade bool
	Steps   int // limit of the search in comparisons; 0 means about a second's worth
}

// Pair is two chosen paths, and the networks that see both.
type Pair struct {
	A      string `json:"a"`
	B      string `json:"b"`
	Common []AS   `json:"common"`
	// SameUplink reports whether both use one uplink, whose network sees both, whether it is known or not.
	SameUplink bool `json:"same_uplink"`
}

// Refusal is a path that was excluded before the choice.
type Refusal struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Choice is a set of paths with its properties.
type Choice struct {
	Paths       []Path `json:"paths"`       // chosen paths, the fastest first
	Pairs       []Pair `json:"pairs"`       // all pairs of Paths
	Common      int    `json:"common"`      // minimised sum of the common ASes of all pairs
	Everywhere  []AS   `json:"everywhere"`  // ASes on every chosen path
	Unavoidable []AS   `json:"unavoidable"` // ASes on every usable path: no choice avoids them
	Ends        []AS   `json:"ends"`        // ASes that were not counted
	// Usable is the number of usable paths; Refused are the others.
	Usable  int       `json:"usable"`
	Refused []Refusal `json:"refused"`
	Exact   bool      `json:"exact"` // the search was complete, so no better set exists
}

// Diverse reports whether no known AS except the ends sees two of the paths.
func (c Choice) Diverse() bool { return c.Common == 0 }

// SeenTogether describes the pairs that some AS sees. named returns the name of an AS.
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

// Choose finds the set of o.Paths paths through different nodes with the fewest common ASes, summed over all pairs. It
// prefers, in this order, fewer pairs on one uplink, fewer hidden hops, and the smallest sum of round trips. It fails if
// there are too few usable nodes. A set may be not diverse: see [Choice.Diverse].
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
	// With the fastest first, the search finds good sets early. Names break ties.
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

// refuse returns why a path cannot be chosen, or "".
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

// explain computes the properties of the chosen paths.
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

// common returns the ASes that all paths pass, in ascending order.
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

// tidy returns a sorted copy without repetitions and zeros, never nil.
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

const slowest = time.Minute // for an unknown round trip, and the maximum

// weight orders equally diverse paths: fewer hidden hops, then speed. A hidden hop outweighs all round trips of a set.
func (p Path) weight() int64 {
	rtt := p.RTT
	if rtt <= 0 || rtt > slowest {
		rtt = slowest
	}
	return int64(min(p.Hidden, 1000))*int64((MaxPaths+1)*slowest) + int64(rtt)
}
