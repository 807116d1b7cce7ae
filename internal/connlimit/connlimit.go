// Package connlimit limits the load that strangers can put on a server: concurrent connections and wrong credentials. Do not
// use it for quotas of users: its tables are bounded, so it forgets old entries.
package connlimit

import (
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"
)

// A source may show FailuresAtOnce wrong credentials in a row, and then one more per RefillAfter.
const (
	FailuresAtOnce = 10
	RefillAfter    = 6 * time.Second
	maxSources     = 4096
	sample         = 16 // entries of a full table to choose the one to forget from
)

// Bucket is a token bucket: it gains one token per interval, up to a maximum.
type Bucket struct {
	Left float64
	at   time.Time
}

// Fill adds the tokens due at now.
func (b *Bucket) Fill(now time.Time, most int, every time.Duration) {
	if b.at.IsZero() {
		b.Left = float64(most)
	} else {
		b.Left = min(b.Left+now.Sub(b.at).Seconds()/every.Seconds(), float64(most))
	}
	b.at = now
}

// Lines limits the lines of a log that strangers cause, so that they cannot fill the disk. The zero value is ready.
type Lines struct {
	mu     sync.Mutex
	bucket Bucket
}

// So many lines are logged at once, and one more per linesEvery.
const (
	linesAtOnce = 20
	linesEvery  = 5 * time.Second
)

// Take reports whether to log a line now.
func (l *Lines) Take(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bucket.Fill(now, linesAtOnce, linesEvery); l.bucket.Left < 1 {
		return false
	}
	l.bucket.Left--
	return true
}

// Failures counts wrong credentials by source, in a bounded table.
type Failures struct {
	now func() time.Time

	mu sync.Mutex
	of map[netip.Addr]*Bucket
}

func NewFailures() *Failures { return &Failures{now: time.Now, of: map[netip.Addr]*Bucket{}} }

// Source returns the key for counting an address: the address itself for IPv4, its /64 network for IPv6.
func Source(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if p, err := a.Prefix(64); a.Is6() && err == nil {
		return p.Addr()
	}
	return a
}

// SourceOf is [Source] for a [net.Addr]. For anything but a TCP or UDP address it returns the zero address.
func SourceOf(a net.Addr) netip.Addr {
	switch a := a.(type) {
	case *net.TCPAddr:
		return Source(a.AddrPort().Addr())
	case *net.UDPAddr:
		return Source(a.AddrPort().Addr())
	}
	return netip.Addr{}
}

// Take counts a failure in advance, so that concurrent tries all count. It reports whether the source may try. Sources
// without an address are not counted, as they would lock each other out.
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

// GiveBack undoes a [Failures.Take] after a success.
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

// makeRoom forgets the source with the fewest failures in a sample. f.mu is held.
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

// Limiter limits the number of places that are taken, for each name and in total.
type Limiter[K comparable] struct {
	each, all int

	mu    sync.Mutex
	of    map[K]int
	total int
}

// NewLimiter returns a limiter with each places per name and all places in total. The zero name has only the total limit.
func NewLimiter[K comparable](each, all int) *Limiter[K] {
	return &Limiter[K]{each: each, all: all, of: map[K]int{}}
}

// Acquire takes a place and reports whether there was one. [Limiter.Release] returns it.
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

// Release returns a place.
func (c *Limiter[K]) Release(who K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[who]--; c.of[who] == 0 {
		delete(c.of, who)
	}
	c.total--
}

// Count returns the number of taken places.
func (c *Limiter[K]) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

// Counts returns the number of taken places of each name.
func (c *Limiter[K]) Counts() map[K]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.of)
}
