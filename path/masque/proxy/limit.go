package proxy

import (
	"maps"
	"net/netip"
	"sync"
	"time"
)

// Of wrong credentials a source has so many at once, and one more each refillAfter.
const (
	failuresAtOnce = 10
	refillAfter    = 6 * time.Second
	maxSources     = 4096
	sample         = 16 // entries of a full table that are looked at to find one to forget
)

// bucket is a token bucket: it fills by one each every, up to most.
type bucket struct {
	left float64
	at   time.Time
}

func (b *bucket) fill(now time.Time, most int, every time.Duration) {
	if b.at.IsZero() {
		b.left = float64(most)
	} else {
		b.left = min(b.left+now.Sub(b.at).Seconds()/every.Seconds(), float64(most))
	}
	b.at = now
}

// failures counts wrong credentials by source, in a bounded table.
type failures struct {
	now func() time.Time

	mu sync.Mutex
	of map[netip.Addr]*bucket
}

func newFailures() *failures { return &failures{now: time.Now, of: map[netip.Addr]*bucket{}} }

// source is what one stranger is counted by: an IPv4 address, or an IPv6 network of 64 bits.
func source(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if p, err := a.Prefix(64); a.Is6() && err == nil {
		return p.Addr()
	}
	return a
}

// take counts a failure before it is one, so that many tries at once count as many. It reports whether the source may
// try at all.
func (f *failures) take(from netip.Addr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := source(from)
	b := f.of[key]
	if b == nil {
		f.makeRoom()
		b = &bucket{}
		f.of[key] = b
	}
	b.fill(f.now(), failuresAtOnce, refillAfter)
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

// giveBack takes back what was counted: it was no failure.
func (f *failures) giveBack(from netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := source(from)
	b := f.of[key]
	if b == nil {
		return
	}
	if b.left = min(b.left+1, failuresAtOnce); b.left == failuresAtOnce {
		delete(f.of, key)
	}
}

// makeRoom forgets, of a few sources, the one with the least against it. f.mu is held.
func (f *failures) makeRoom() {
	if len(f.of) < maxSources {
		return
	}
	var least netip.Addr
	most, looked := -1.0, 0
	for key, b := range f.of {
		if b.fill(f.now(), failuresAtOnce, refillAfter); b.left > most {
			least, most = key, b.left
		}
		if looked++; looked == sample {
			break
		}
	}
	delete(f.of, least)
}

// crowd counts who is here at the moment, by name, up to a number each and in all.
type crowd[K comparable] struct {
	each, all int

	mu    sync.Mutex
	of    map[K]int
	total int
}

func newCrowd[K comparable](each, all int) *crowd[K] {
	return &crowd[K]{each: each, all: all, of: map[K]int{}}
}

func (c *crowd[K]) enter(who K) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[who] >= c.each || c.total >= c.all {
		return false
	}
	c.of[who]++
	c.total++
	return true
}

func (c *crowd[K]) leave(who K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[who]--; c.of[who] == 0 {
		delete(c.of, who)
	}
	c.total--
}

func (c *crowd[K]) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

// present is who is here, and how often.
func (c *crowd[K]) present() map[K]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.of)
}
