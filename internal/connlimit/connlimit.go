// Package connlimit bounds the load that strangers can put on a server: how many connections they have at a time, and how
// often they may show wrong credentials.
//
// Do not use it for quotas of users: its tables are bounded, so it forgets old entries.
package connlimit

import (
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"
)

// A source may show FailuresAtOnce wrong credentials in a row, and one more after each RefillAfter.
const (
	FailuresAtOnce = 10
	RefillAfter    = 6 * time.Second
	maxSources     = 4096
	sample         = 16 // entries of a full table that are looked at to find one to forget
)

// Bucket is a token bucket: it fills by one each every, up to most.
type Bucket struct {
	Left float64
	at   time.Time
}

// Fill brings the bucket up to now.
func (b *Bucket) Fill(now time.Time, most int, every time.Duration) {
	if b.at.IsZero() {
		b.Left = float64(most)
	} else {
		b.Left = min(b.Left+now.Sub(b.at).Seconds()/every.Seconds(), float64(most))
	}
	b.at = now
}

// Failures counts wrong credentials by source, in a bounded table.
type Failures struct {
	now func() time.Time

	mu sync.Mutex
	of map[netip.Addr]*Bucket
}

// NewFailures makes an empty table.
func NewFailures() *Failures { return &Failures{now: time.Now, of: map[netip.Addr]*Bucket{}} }

// Source returns the key by which an address is counted: the address itself for IPv4, its /64 network for IPv6.
func Source(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if p, err := a.Prefix(64); a.Is6() && err == nil {
		return p.Addr()
	}
	return a
}

// SourceOf is [Source] for a [net.Addr]. It returns the zero address if that is not a TCP or UDP address.
func SourceOf(a net.Addr) netip.Addr {
	switch a := a.(type) {
	case *net.TCPAddr:
		return Source(a.AddrPort().Addr())
	case *net.UDPAddr:
		return Source(a.AddrPort().Addr())
	}
	return netip.Addr{}
}

// Take counts a failure before it is one, so that many tries at once count as many. It reports whether the source may
// try at all. Sources without an address are not counted: they would lock each other out.
func (f *Failures) Take(from netip.Addr) bool {
	if !from.IsValid() {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := Source(from)
	b := f.of[key]
	if b == nil {
		f.makeRoom()
		b = &Bucket{}
		f.of[key] = b
	}
	b.Fill(f.now(), FailuresAtOnce, RefillAfter)
	if b.Left < 1 {
		return false
	}
	b.Left--
	return true
}

// GiveBack undoes a [Failures.Take] that turned out to be no failure.
func (f *Failures) GiveBack(from netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := Source(from)
	b := f.of[key]
	if b == nil {
		return
	}
	if b.Left = min(b.Left+1, FailuresAtOnce); b.Left == FailuresAtOnce {
		delete(f.of, key)
	}
}

// makeRoom forgets, of a few sources, the one with the least against it. f.mu is held.
func (f *Failures) makeRoom() {
	if len(f.of) < maxSources {
		return
	}
	var least netip.Addr
	most, looked := -1.0, 0
	for key, b := range f.of {
		if b.Fill(f.now(), FailuresAtOnce, RefillAfter); b.Left > most {
			least, most = key, b.Left
		}
		if looked++; looked == sample {
			break
		}
	}
	delete(f.of, least)
}

// Limiter bounds how many places are taken at a time, for each name and in total.
type Limiter[K comparable] struct {
	each, all int

	mu    sync.Mutex
	of    map[K]int
	total int
}

// NewLimiter makes a limiter with each places for each name, and all places in total. The zero name has no limit of its own.
func NewLimiter[K comparable](each, all int) *Limiter[K] {
	return &Limiter[K]{each: each, all: all, of: map[K]int{}}
}

// Acquire takes a place, and reports whether there was one. [Limiter.Release] gives it back.
func (c *Limiter[K]) Acquire(who K) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var nobody K
	if c.of[who] >= c.each && who != nobody || c.total >= c.all {
		return false
	}
	c.of[who]++
	c.total++
	return true
}

// Release gives a place back.
func (c *Limiter[K]) Release(who K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[who]--; c.of[who] == 0 {
		delete(c.of, who)
	}
	c.total--
}

// Count returns how many places are taken.
func (c *Limiter[K]) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

// Counts returns how many places each name has taken.
func (c *Limiter[K]) Counts() map[K]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.of)
}
