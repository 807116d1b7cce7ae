package quicprobe

import (
	"fmt"
	"strings"
	"time"

	"heddle/internal/text"
)

// Step is a part of a probe, and what it would send.
type Step struct {
	What        string `json:"what"`
	Connections int    `json:"connections"` // at most
}

// Plan is what a probe would do.
type Plan struct {
	Server   string        `json:"server"`
	Paths    []string      `json:"paths"`
	Steps    []Step        `json:"steps"`
	For      time.Duration `json:"for_ns"`
	MaxBytes int64         `json:"max_bytes"`
}

// NewPlan returns what [Run] would send with these options. It sends nothing and looks up no name.
func NewPlan(o Options) (Plan, error) {
	p, err := newProber(o)
	if err != nil {
		return Plan{}, err
	}
	plan := Plan{Server: o.Server, Paths: p.names, For: p.For, MaxBytes: p.MaxBytes}
	add := func(connections int, format string, args ...any) {
		plan.Steps = append(plan.Steps, Step{fmt.Sprintf(format, args...), connections})
	}
	n := len(p.names)
	if o.STUN != "" {
		add(0, "a STUN Binding request to %s by each path, up to %d times", o.STUN, stunTries)
	}
	add(0, "a datagram of %d bytes in a version that no server has, up to twice, for a version negotiation", minDatagram)
	add(1, "a handshake for %s that offers %s", p.name, strings.Join(p.ALPN, ", "))
	add(0, "a TCP connection to the same port, where the server does not answer by QUIC")
	add(mostTries, "a connection that changes its port once, and up to two more if it does not survive")
	if n > 1 {
		add(mostTries, "a connection that changes its address once, from path %s to path %s, and up to two more", p.names[0], p.names[1])
	}
	most := max(p.pace.most, n)
	add(mostTries*(most-1), "a connection each that goes round 2 to %d addresses and ports, as long as the server follows, and up to two more each", most)
	kinds, runs := "ports", p.runs()
	if n > 1 {
		kinds, runs = "addresses, and ports once", p.runs()+3
	}
	add(runs, "downloads of GET %s, with changing %s, every %v to %v, and without, as far as the bytes go", p.Get, kinds,
		p.pace.periods[len(p.pace.periods)-1], p.pace.periods[0])
	add(2*p.pace.early, "connections that change from their beginning on, at the period to be recommended")
	return plan, nil
}

// runs returns the most downloads of one sweep: each try of a case needs one without changes beside it.
func (p *prober) runs() int { return 1 + 2*mostTries*(len(p.pace.periods)-usualPeriod) }

// String prints the plan for people.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Nothing was sent. A probe of %s by %s would send:\n\n", p.Server, strings.Join(p.Paths, ", "))
	total := 0
	for _, s := range p.Steps {
		fmt.Fprintf(&b, "  - %s\n", s.What)
		total += s.Connections
	}
	fmt.Fprintf(&b, "\nThat is up to %d connections, one after the other, in %v and %s at the most.\n", total, p.For, text.Size(p.MaxBytes))
	return b.String()
}
