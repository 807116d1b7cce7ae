package link

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"heddle/disguise/block"
	"heddle/disguise/cover"
	"heddle/disguise/handshake"
)

// line is how one connection carries bytes. Zero values mean: at once, in blocks as large as what waits, and for ever.
type line struct {
	delay     time.Duration // one way
	size      func(waiting int) int
	every     time.Duration // between blocks; zero sends when something waits
	datagrams bool
	loss      int // of 100 datagrams
	swap      int // of 100 datagrams that come late
	again     int // of 100 datagrams that come twice
	tamper    func(b []byte) []byte
	rate      int          // bytes in a second, to the client
	stuck     *atomic.Bool // nothing moves while it is set
	path      string
}

// world is a client and a bridge, with connections between them.
type world struct {
	t      testing.TB
	server *handshake.Server
	o      Options
	far    func(*Options) // changes what the bridge uses
	client *Link
	joins  sync.WaitGroup

	mu     sync.Mutex
	bridge *Link
	ready  chan struct{} // closed once bridge is set
	seen   map[uint64]struct{}
	rng    *rand.Rand
	errs   []error // of Take
}

func newWorld(t testing.TB, o Options) *world {
	t.Helper()
	id, err := handshake.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	replays, err := handshake.OpenReplays(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	server, err := handshake.NewServer(id, replays)
	if err != nil {
		t.Fatal(err)
	}
	o.Bridge = id.Public()
	return &world{t: t, server: server, o: o, ready: make(chan struct{}), rng: rand.New(rand.NewPCG(1, 2))}
}

// fresh is another world with the same bridge.
func (w *world) fresh(t testing.TB) *world {
	return &world{t: t, server: w.server, o: w.o, ready: make(chan struct{}), rng: rand.New(rand.NewPCG(1, 2))}
}

// open starts a link over one connection, and returns the client's end and what ends the connection.
func (w *world) open(with line) (*Link, *Conn, func(error)) {
	w.t.Helper()
	l, c, err := Initiate(w.o, handshake.Hello{}, with.datagrams)
	if err != nil {
		w.t.Fatal(err)
	}
	w.client = l
	return l, c, w.run(c, with)
}

// join adds a connection, and returns what ends it.
func (w *world) join(with line) (*Conn, func(error)) {
	c, err := w.client.Join([]byte{1}, with.datagrams)
	if err != nil {
		w.t.Errorf("join: %v", err)
		return nil, func(error) {}
	}
	return c, w.run(c, with)
}

// far returns the bridge's end.
func (w *world) other() *Link {
	<-w.ready
	return w.bridge
}

// accept is what a bridge does with the first bytes of a connection.
func (w *world) accept(b []byte, datagrams bool) (c *Conn, rest []byte, err error) {
	n, a, err := w.server.Read(b, time.Now())
	if err != nil {
		return nil, nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.Reconnect {
		c, err = w.bridge.Adopt(a, datagrams)
		return c, b[n:], err
	}
	if w.bridge != nil {
		return nil, nil, errors.New("a second link")
	}
	o := w.o
	if w.far != nil {
		w.far(&o)
	}
	if w.bridge, c, err = Respond(o, a, 7, datagrams); err == nil {
		close(w.ready)
	}
	return c, b[n:], err
}

type flying struct {
	b  []byte
	at time.Time
}

// wire is one direction of a connection. gone ends when nobody takes from it any more.
type wire struct {
	flying chan flying
	gone   chan struct{}
}

func newWire() wire { return wire{make(chan flying, 1<<12), make(chan struct{})} }

// send puts bytes on the wire, where they may be lost. It returns false when the connection ended.
func (o wire) send(ctx context.Context, b []byte, at time.Time) bool {
	select {
	case o.flying <- flying{b, at}:
	case <-o.gone:
	case <-ctx.Done():
		return false
	}
	return true
}

// run moves bytes both ways until the returned function ends the connection with an error, or in peace.
func (w *world) run(c *Conn, with line) func(error) {
	c.Via(with.path)
	ctx, cancel := context.WithCancelCause(context.Background())
	up, down := newWire(), newWire()
	var once sync.Once
	end := func(err error) { once.Do(func() { c.Leave(err); cancel(err) }) }
	w.joins.Add(2)
	go func() {
		defer w.joins.Done()
		w.pump(ctx, c, with, up)
	}()
	go func() {
		defer w.joins.Done()
		w.drain(ctx, down, with, c.Take)
	}()
	w.joins.Add(1)
	go func() { // the bridge's end
		defer w.joins.Done()
		var far *Conn
		var head []byte
		w.drain(ctx, up, with, func(b []byte) (err error) {
			if far == nil {
				if head = append(head, b...); with.datagrams {
					head = b
				}
				far, b, err = w.accept(head, with.datagrams)
				if errors.Is(err, handshake.ErrShort) || with.datagrams && err != nil {
					return nil
				}
				if err != nil {
					return err
				}
				head = nil
				far.Via(with.path)
				w.joins.Add(1)
				go func() {
					defer w.joins.Done()
					w.pump(ctx, far, with, down)
				}()
			}
			if len(b) == 0 {
				return nil
			}
			return far.Take(b)
		})
		if far == nil {
			close(down.flying)
		} else {
			err := context.Cause(ctx)
			if err == context.Canceled {
				err = nil
			}
			far.Leave(err)
		}
	}()
	return end
}

// pump is a cover: it fills blocks.
func (w *world) pump(ctx context.Context, c *Conn, with line, to wire) {
	var behind [][]byte // datagrams that come after the next one
	for {
		n := 0
		if with.every > 0 {
			time.Sleep(with.every)
			if ctx.Err() != nil {
				return
			}
		} else {
			var err error
			if n, err = c.Wait(ctx); err != nil {
				close(to.flying)
				return
			}
		}
		if with.size != nil {
			n = with.size(n)
		}
		if !with.datagrams {
			n = max(n, block.Overhead)
		}
		b := make([]byte, n)
		useful, err := c.Fill(b)
		if err != nil {
			close(to.flying)
			return
		}
		if useful == 0 { // nothing that waits fits
			time.Sleep(time.Millisecond)
		}
		w.note(b)
		if with.tamper != nil {
			b = with.tamper(b)
		}
		if with.rate > 0 && !c.l.client {
			time.Sleep(time.Duration(len(b)) * time.Second / time.Duration(with.rate))
		}
		at := time.Now().Add(with.delay)
		if with.datagrams {
			w.mu.Lock()
			lost, late, again := w.rng.IntN(100) < with.loss, w.rng.IntN(100) < with.swap, w.rng.IntN(100) < with.again
			w.mu.Unlock()
			if again {
				to.send(ctx, bytes.Clone(b), at)
			}
			if lost {
				continue
			}
			if late {
				behind = append(behind, b)
				continue
			}
		}
		for _, b := range append([][]byte{b}, behind...) {
			if !to.send(ctx, b, at) {
				return
			}
		}
		behind = nil
	}
}

// note checks that no ciphertext is on the wire twice.
func (w *world) note(b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen == nil {
		return
	}
	for ; len(b) >= 16; b = b[16:] {
		known := len(w.seen)
		w.seen[binary.NativeEndian.Uint64(b)] = struct{}{} // the other eight bytes would only cost time
		if len(w.seen) == known {
			w.t.Error("16 bytes are on the wire twice")
		}
	}
}

// drain passes what arrives, when its time has come.
func (w *world) drain(ctx context.Context, from wire, with line, take func([]byte) error) {
	defer close(from.gone)
	for {
		select {
		case f, ok := <-from.flying:
			if !ok {
				return
			}
			if wait := time.Until(f.at); wait > 0 {
				select {
				case <-time.After(wait):
				case <-ctx.Done():
					return
				}
			}
			for with.stuck != nil && with.stuck.Load() && ctx.Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
			if err := take(f.b); err != nil && err != cover.ErrForeign {
				if !errors.Is(err, io.EOF) {
					w.mu.Lock()
					w.errs = append(w.errs, err)
					w.mu.Unlock()
				}
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// finish ends all, and checks that both ends are through.
func (w *world) finish() {
	w.t.Helper()
	<-w.client.Done()
	<-w.other().Done()
	w.joins.Wait()
	if a, b := w.client.Err(), w.bridge.Err(); a != nil && b != nil { // one of them may lack the last ack
		w.t.Errorf("the link ended by %v and %v", a, b)
	}
}

func content(n int, seed byte) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// exchange sends bytes both ways at once, and checks what arrives.
func exchange(t testing.TB, a, b *Link, up, down []byte) {
	t.Helper()
	var group sync.WaitGroup
	one := func(from, to *Link, what []byte, name string) {
		group.Add(2)
		go func() {
			defer group.Done()
			if n, err := from.Write(what); err != nil {
				t.Errorf("%s: %d bytes of %d were written: %v", name, n, len(what), err)
			}
			_ = from.CloseWrite()
		}()
		go func() {
			defer group.Done()
			got, err := io.ReadAll(to)
			if err != nil || !bytes.Equal(got, what) {
				t.Errorf("%s: %d bytes of %d came, %v, the same: %v", name, len(got), len(what), err, bytes.HasPrefix(what, got))
			}
		}()
	}
	one(a, b, up, "up")
	one(b, a, down, "down")
	group.Wait()
}

func describe(s Stats) string {
	return fmt.Sprintf("%+v", s)
}
