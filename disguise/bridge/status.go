package bridge

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"heddle/disguise/handshake"
	"heddle/internal/connlimit"
)

// counts are the totals since the bridge began.
type counts struct {
	links, streams, full, forbidden, unreachable, dropped atomic.Uint64

	lines connlimit.Lines // that strangers and clients cause

	mu     sync.Mutex
	reason map[handshake.Reason]uint64
}

func (c *counts) refuse(r handshake.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reason == nil {
		c.reason = map[handshake.Reason]uint64{}
	}
	c.reason[r]++
}

// Status is what a bridge does and did. It has no address of a client, and no target that a client asked for.
type Status struct {
	Listen    []string     `json:"listen"`
	Since     time.Time    `json:"since"`
	Strangers int          `json:"strangers"` // connections that carry no link, or not yet; behind another web server all that it has with the bridge
	Links     []LinkStatus `json:"links"`
	LinksEver uint64       `json:"links_ever"`
	Streams   uint64       `json:"streams_ever"`
	// Refused counts connections that got no answer, by reason.
	Refused     map[handshake.Reason]uint64 `json:"refused"`
	Full        uint64                      `json:"refused_limit"` // links and streams over a limit
	Forbidden   uint64                      `json:"refused_target"`
	Unreachable uint64                      `json:"unreachable"`
	Dropped     uint64                      `json:"dropped"` // datagrams
}

// LinkStatus is one link.
type LinkStatus struct {
	Since       time.Time `json:"since"`
	Mode        byte      `json:"mode"`
	Connections int       `json:"connections"`
	Up          uint64    `json:"up"`   // bytes of the stream from the client
	Down        uint64    `json:"down"` // and to it
	WireUp      uint64    `json:"wire_up"`
	WireDown    uint64    `json:"wire_down"`
	PostQuantum bool      `json:"post_quantum"`
}

// Status returns the current statistics, without Listen.
func (b *Bridge) Status() Status {
	s := Status{Since: b.since, LinksEver: b.counts.links.Load(), Streams: b.counts.streams.Load(), Refused: map[handshake.Reason]uint64{},
		Full: b.counts.full.Load(), Forbidden: b.counts.forbidden.Load(), Unreachable: b.counts.unreachable.Load(), Dropped: b.counts.dropped.Load(),
		Links: []LinkStatus{}}
	b.counts.mu.Lock()
	for reason, n := range b.counts.reason {
		s.Refused[reason] = n
	}
	b.counts.mu.Unlock()
	b.mu.Lock()
	all := make([]*entry, 0, len(b.links))
	for _, e := range b.links {
		all = append(all, e)
	}
	b.mu.Unlock()
	s.Strangers = b.places.Count() + int(b.callers.Load())
	for _, e := range all {
		one := e.status()
		if b.front == nil {
			s.Strangers -= one.Connections
		}
		s.Links = append(s.Links, one)
	}
	s.Strangers = max(s.Strangers, 0) // connections come and go while they are counted
	slices.SortFunc(s.Links, func(a, b LinkStatus) int { return cmp.Compare(a.Since.UnixNano(), b.Since.UnixNano()) })
	return s
}

func (e *entry) status() LinkStatus {
	of := e.link.Stats()
	return LinkStatus{Since: e.since, Mode: e.mode, Connections: int(e.carriers.Load()), Up: of.Received, Down: of.Sent, WireUp: of.WireIn, WireDown: of.WireOut,
		PostQuantum: of.PostQuantum}
}
