// Package covertest has what tests of covers need: a feed without cryptography, and connections that record each write.
package covertest

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"heddle/disguise/cover"
)

// Feed is a [cover.Feed] whose blocks are clear: the length of the block, that of its data, the data, and 0xAA as padding.
type Feed struct {
	Datagrams bool

	mu       sync.Mutex
	out      []byte // waits to be sent
	in       []byte // arrived
	partial  []byte
	ended    error
	wake     chan struct{} // closed at each change
	unusable int
}

// A block has the overhead of a real one with the offset of its data. The smallest one has no room for an offset.
const (
	smallest = 32
	overhead = smallest + 8
)

func (f *Feed) changed() {
	if f.wake != nil {
		close(f.wake)
		f.wake = nil
	}
}

// await waits until done holds. It returns false if ctx ended first.
func (f *Feed) await(ctx context.Context, done func() bool) bool {
	for {
		f.mu.Lock()
		if done() {
			f.mu.Unlock()
			return true
		}
		if f.wake == nil {
			f.wake = make(chan struct{})
		}
		wake := f.wake
		f.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
			return false
		}
	}
}

// Send gives the feed bytes to send.
func (f *Feed) Send(b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.out = append(f.out, b...)
	f.changed()
}

// End makes the feed fail, as if its link ended.
func (f *Feed) End(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = err
	f.changed()
}

// Received returns the bytes that arrived.
func (f *Feed) Received() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.in)
}

// Await waits until n bytes have arrived. It returns false if ctx ended first.
func (f *Feed) Await(ctx context.Context, n int) bool {
	return f.await(ctx, func() bool { return len(f.in) >= n })
}

// Unsent returns how many bytes wait.
func (f *Feed) Unsent() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.out)
}

// Unusable returns how many datagrams held no block.
func (f *Feed) Unusable() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unusable
}

// Wait implements [cover.Feed].
func (f *Feed) Wait(ctx context.Context) (bytes int, err error) {
	if !f.await(ctx, func() bool { return len(f.out) > 0 || f.ended != nil }) {
		return 0, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.out) + overhead, f.ended
}

// Waiting implements [cover.Gauge].
func (f *Feed) Waiting() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.out) == 0 {
		return 0
	}
	return len(f.out) + overhead
}

// Taken implements [cover.Gauge].
func (f *Feed) Taken() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return uint64(len(f.in))
}

// Path implements [cover.Gauge]. The path is not known.
func (f *Feed) Path() string { return "" }

// Route implements [cover.Gauge].
func (f *Feed) Route() any { return nil }

// Fill implements [cover.Feed].
func (f *Feed) Fill(b []byte) (useful int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(b) < smallest {
		return 0, errors.New("too small for a block")
	}
	if f.ended != nil {
		return 0, f.ended
	}
	n := copy(b[min(overhead, len(b)):], f.out)
	f.out = f.out[n:]
	binary.BigEndian.PutUint32(b, uint32(len(b)))
	binary.BigEndian.PutUint32(b[4:], uint32(n))
	for i := 8; i < len(b); i++ {
		if i < overhead || i >= overhead+n {
			b[i] = 0xAA
		}
	}
	return n, nil
}

// Take implements [cover.Feed].
func (f *Feed) Take(b []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.changed()
	if f.ended != nil {
		return f.ended
	}
	if f.Datagrams {
		if !f.open(b) {
			f.unusable++
			return cover.ErrForeign
		}
		return nil
	}
	f.partial = append(f.partial, b...)
	for len(f.partial) >= smallest {
		size := int(binary.BigEndian.Uint32(f.partial))
		if size < smallest || size > 1<<20 {
			return errors.New("this is no block")
		}
		if len(f.partial) < size {
			break
		}
		if !f.open(f.partial[:size]) {
			return errors.New("this is no block")
		}
		f.partial = f.partial[size:]
	}
	return nil
}

func (f *Feed) open(b []byte) bool {
	if len(b) < smallest || int(binary.BigEndian.Uint32(b)) != len(b) {
		return false
	}
	n := int(binary.BigEndian.Uint32(b[4:]))
	if n > max(0, len(b)-overhead) {
		return false
	}
	for i := 8; i < len(b); i++ {
		if (i < overhead || i >= overhead+n) && b[i] != 0xAA {
			return false
		}
	}
	if n > 0 {
		f.in = append(f.in, b[overhead:overhead+n]...)
	}
	return true
}

// Write is one write on a connection.
type Write struct {
	At   time.Time
	Data []byte
}

// Conn is one end of a connection in memory, with CloseWrite. A read returns at most one write.
type Conn struct {
	net.Conn // reads
	out      net.Conn

	mu     sync.Mutex
	writes []Write
	stall  time.Duration
}

// Pipe returns both ends of a connection.
func Pipe() (a, b *Conn) {
	readA, writeB := net.Pipe()
	readB, writeA := net.Pipe()
	return &Conn{Conn: readA, out: writeA}, &Conn{Conn: readB, out: writeB}
}

// Stall makes each later write take this long.
func (c *Conn) Stall(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stall = d
}

// Writes returns all writes so far.
func (c *Conn) Writes() []Write {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.writes)
}

// Sent returns the bytes of all writes.
func (c *Conn) Sent() (all []byte) {
	for _, w := range c.Writes() {
		all = append(all, w.Data...)
	}
	return all
}

func (c *Conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.writes = append(c.writes, Write{time.Now(), slices.Clone(b)})
	stall := c.stall
	c.mu.Unlock()
	time.Sleep(stall)
	return c.out.Write(b)
}

// CloseWrite ends the direction that this end writes.
func (c *Conn) CloseWrite() error { return c.out.Close() }

// Close ends both directions.
func (c *Conn) Close() error { return errors.Join(c.Conn.Close(), c.out.Close()) }

// SetDeadline bounds reads and writes.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.Conn.SetReadDeadline(t), c.out.SetWriteDeadline(t))
}

// SetWriteDeadline bounds writes.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.out.SetWriteDeadline(t) }
