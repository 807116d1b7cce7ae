package stripe

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Status returns the state of the session.
func (c *Conn) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Status{Session: c.name(), Peer: c.peer, Service: c.service, Schedule: c.schedule, Shares: c.scheme.String(), Segment: c.segment,
		MinPaths: c.minMembers, Degrade: c.degrade, Since: c.since, Sent: c.out.Offset(), Received: c.in.Offset(),
		Unproved: c.unproved(), Claim: c.claim()}
	s.State, s.Why = c.state()
	now := time.Now()
	for _, m := range c.members {
		p := m.status(now)
		p.Weight = 1 / float64(len(c.members))
		if c.out.weights != nil {
			p.Weight = c.out.weights[m.index]
		}
		s.Paths = append(s.Paths, p)
	}
	s.FillShares()
	return s
}

// unproved counts the bytes written that the peer has not confirmed. It counts whole units.
func (c *Conn) unproved() uint64 {
	if c.out.Proved() {
		return 0
	}
	first := c.out.Offset()
	for _, m := range c.members {
		if offset, ok := m.out.First(); ok {
			first = min(first, offset)
		}
	}
	return c.out.Written() - first
}

func (c *Conn) state() (state, why string) {
	switch {
	case c.failure != nil:
		return "failed", c.failure.Error()
	case c.finished:
		return "closed", ""
	case !c.started:
		return "starting", c.tooFew().Why
	case !c.sending():
		return "stopped", c.tooFew().Why
	}
	return "running", ""
}

func (m *member) status(now time.Time) PathStatus {
	p := PathStatus{Name: m.name, Observer: m.observer, State: "up", Why: m.why, RTT: m.health.rtt, Up: m.count.up, Down: m.count.down,
		Queued: m.out.Queued(), Joins: m.joins}
	if !m.health.heard.IsZero() {
		heard := m.health.heard
		p.LastHeard = &heard
	}
	switch {
	case m.link == nil && m.why == "":
		p.State, p.Why = "dialling", "it did not answer yet"
		if !m.c.client {
			p.Why = "it was not dialled yet"
		}
	case m.link == nil:
		p.State = "down"
	case !m.lastSkip.IsZero() && now.Sub(m.lastSkip) < paceOver:
		p.State, p.Why = "slow", fmt.Sprintf("%d shares would have come too late", m.count.up.Skipped)
	case m.count.up.Segments+m.count.down.Segments == 0:
		p.Why = "nothing was sent yet"
	}
	return p
}

// Claim says in one line what the session hides and what it does not.
func (c *Conn) Claim() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.claim()
}

func (c *Conn) claim() string {
	var b strings.Builder
	n := len(c.members)
	if c.scheme.None() {
		how := map[string]string{
			Strict:   fmt.Sprintf("each of %d paths carries an equal part of the stream, as TLS 1.3 with the other device", n),
			Fast:     fmt.Sprintf("each of %d paths carries as much of the stream as it has room for, as TLS 1.3 with the other device, and the fastest carries most", n),
			Weighted: fmt.Sprintf("each of %d paths carries a part of the stream by its weight, as TLS 1.3 with the other device", n),
		}[c.schedule]
		fmt.Fprintf(&b, "%s; if that cipher is broken, whoever sees a path reads its part; sizes and times of what each path carries stay visible", how)
	} else {
		b.WriteString(c.scheme.Claim())
	}
	if c.degrade && c.scheme.None() {
		b.WriteString("; with --degrade fewer paths may carry more, and what was under way on a dead path is shown to another one")
	}
	if shared := c.sharedObservers(); c.client && shared != "" {
		fmt.Fprintf(&b, "; %s", shared)
	}
	return b.String()
}

// sharedObservers names the paths that one observer sees together.
func (c *Conn) sharedObservers() string {
	by := map[string][]string{}
	for _, m := range c.members {
		if m.observer != "" {
			by[m.observer] = append(by[m.observer], m.name)
		}
	}
	var shared []string
	for _, observer := range slices.Sorted(maps.Keys(by)) {
		if names := by[observer]; len(names) > 1 {
			shared = append(shared, fmt.Sprintf("the paths %s are all seen by %s", strings.Join(names, ", "), observer))
		}
	}
	return strings.Join(shared, "; ")
}
