package stripe

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"heddle/identity"
	"heddle/path"
)

// wire is one direction of an emulated TCP connection: what is written waits for its turn at rate, then travels for delay.
// It keeps so many bytes as a socket would, and blocks the writer beyond.
type wire struct {
	mu      sync.Mutex
	changed chan struct{} // closed at each change
	rate    float64       // bytes a second, 0 is unlimited
	delay   time.Duration
	room    int
	flights []flight
	unsent  int
	free    time.Time // when the last byte written will have left
	end     error     // after the flights
	broken  error     // at once
	unread  error     // what who reads is told, who writes is reset
	stalled bool
	readBy  time.Time
	writeBy time.Time
	carried int
	bad     int // flip a bit once so many bytes were carried
	tap     *bytes.Buffer
}

type flight struct {
	data          []byte
	leaves, lands time.Time
}

func (w *wire) signal() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// wait lets go of the lock until something changes, or the time comes.
func (w *wire) wait(until time.Time) {
	changed := w.changed
	w.mu.Unlock()
	defer w.mu.Lock()
	if until.IsZero() {
		<-changed
		return
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
}

func (w *wire) write(p []byte) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(p) > 0 {
		now := time.Now()
		switch {
		case w.broken != nil:
			return n, w.broken
		case w.unread != nil:
			return n, syscall.ECONNRESET
		case w.end != nil:
			return n, net.ErrClosed
		case !w.writeBy.IsZero() && !now.Before(w.writeBy):
			return n, os.ErrDeadlineExceeded
		}
		if w.unsent >= w.room {
			w.wait(w.soonest(w.leaving(), w.writeBy))
			w.settle()
			continue
		}
		m := min(len(p), w.room-w.unsent, 16<<10)
		data := bytes.Clone(p[:m])
		if w.tap != nil {
			w.tap.Write(data)
		}
		if w.carried += m; w.bad > 0 && w.carried > w.bad {
			data[m/2] ^= 1
			w.bad = 0
		}
		if w.free.Before(now) {
			w.free = now
		}
		if w.rate > 0 {
			w.free = w.free.Add(time.Duration(float64(m) / w.rate * float64(time.Second)))
		}
		w.flights = append(w.flights, flight{data, w.free, w.free.Add(w.delay)})
		w.unsent += m
		n, p = n+m, p[m:]
		w.settle()
		w.signal()
	}
	return n, nil
}

// leaving is when the next bytes leave, so that there is room again.
func (w *wire) leaving() time.Time {
	now := time.Now()
	if w.stalled {
		return time.Time{}
	}
	for _, f := range w.flights {
		if f.leaves.After(now) {
			return f.leaves
		}
	}
	return now
}

func (w *wire) settle() {
	now := time.Now()
	w.unsent = 0
	for _, f := range w.flights {
		if f.leaves.After(now) || w.stalled {
			w.unsent += len(f.data)
		}
	}
}

func (w *wire) soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (w *wire) read(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		now := time.Now()
		var lands time.Time
		switch {
		case w.broken != nil:
			return 0, w.broken
		case w.unread != nil:
			return 0, w.unread
		case !w.readBy.IsZero() && !now.Before(w.readBy):
			return 0, os.ErrDeadlineExceeded
		case w.stalled:
		case len(w.flights) > 0:
			f := &w.flights[0]
			if lands = f.lands; !lands.After(now) {
				n := copy(p, f.data)
				if f.data = f.data[n:]; len(f.data) == 0 {
					w.flights = w.flights[1:]
				}
				return n, nil
			}
		case w.end != nil:
			return 0, w.end
		}
		w.wait(w.soonest(lands, w.readBy))
	}
}

func (w *wire) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	w.signal()
}

// socket is one end of an emulated connection.
type socket struct {
	in, out       *wire
	local, remote net.Addr
}

func (s *socket) Read(p []byte) (int, error)  { return s.in.read(p) }
func (s *socket) Write(p []byte) (int, error) { return s.out.write(p) }
func (s *socket) Close() error {
	s.out.set(func() { s.out.end = cmp.Or(s.out.end, io.EOF) })
	s.in.set(func() { s.in.unread = net.ErrClosed })
	return nil
}
func (s *socket) LocalAddr() net.Addr  { return s.local }
func (s *socket) RemoteAddr() net.Addr { return s.remote }
func (s *socket) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}
func (s *socket) SetReadDeadline(t time.Time) error {
	s.in.set(func() { s.in.readBy = t })
	return nil
}
func (s *socket) SetWriteDeadline(t time.Time) error {
	s.out.set(func() { s.out.writeBy = t })
	return nil
}

// road is a path of the emulated world.
type road struct {
	name     string
	observer string
	delay    time.Duration
	rate     float64
	to       *gate

	mu      sync.Mutex
	dead    bool // nobody answers
	refused error
	up      []*wire // towards the listener, a connection each
	down    []*wire
	bad     int // of the next connection
	asked   path.Target
}

func (r *road) Open(context.Context, netip.AddrPort) (path.Flow, error) {
	return nil, errors.New("no datagrams here")
}
func (r *road) Describe() path.Info {
	return path.Info{Name: r.name, Observer: cmp.Or(r.observer, "observer of "+r.name)}
}

const socketRoom = 128 << 10

func (r *road) Dial(ctx context.Context, to path.Target) (net.Conn, error) {
	r.mu.Lock()
	r.asked = to
	dead, refused := r.dead, r.refused
	bad := r.bad
	r.bad = 0
	r.mu.Unlock()
	if refused != nil {
		return nil, refused
	}
	if dead {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	time.Sleep(2 * r.delay) // SYN and its answer
	wires := [2]*wire{}
	for i := range wires {
		wires[i] = &wire{changed: make(chan struct{}), rate: r.rate, delay: r.delay, room: socketRoom, tap: &bytes.Buffer{}}
	}
	wires[0].bad = bad
	r.mu.Lock()
	r.up, r.down = append(r.up, wires[0]), append(r.down, wires[1])
	r.mu.Unlock()
	here, there := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 2}
	select {
	case r.to.conns <- &socket{wires[0], wires[1], there, here}:
		return &socket{wires[1], wires[0], here, there}, nil
	case <-r.to.closed:
		return nil, syscall.ECONNREFUSED
	}
}

// last gives the two directions of the newest connection.
func (r *road) last() (up, down *wire) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.up[len(r.up)-1], r.down[len(r.down)-1]
}

// reset kills the connection as a RST does.
func (r *road) reset() {
	up, down := r.last()
	up.set(func() { up.broken = syscall.ECONNRESET })
	down.set(func() { down.broken = syscall.ECONNRESET })
}

// stall stops both directions without a word, and whoever dials next.
func (r *road) stall() {
	r.mu.Lock()
	r.dead = true
	r.mu.Unlock()
	up, down := r.last()
	up.set(func() { up.stalled = true; up.settle() })
	down.set(func() { down.stalled = true; down.settle() })
}

func (r *road) revive() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead, r.refused = false, nil
}

// gate is where the roads lead.
type gate struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newGate() *gate { return &gate{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (g *gate) Accept() (net.Conn, error) {
	select {
	case c := <-g.conns:
		return c, nil
	case <-g.closed:
		return nil, net.ErrClosed
	}
}
func (g *gate) Close() error   { g.once.Do(func() { close(g.closed) }); return nil }
func (g *gate) Addr() net.Addr { return &net.TCPAddr{} }

// world is a listener, and roads to it.
type world struct {
	t              testing.TB
	client, server identity.Identity
	listener       *Listener
	roads          []*road
}

func newWorld(t testing.TB, o ListenOptions, roads ...*road) *world {
	w := &world{t: t, roads: roads}
	var err error
	if w.client, err = identity.New(); err != nil {
		t.Fatal(err)
	}
	if w.server, err = identity.New(); err != nil {
		t.Fatal(err)
	}
	g := newGate()
	for i, r := range roads {
		r.to, r.name = g, strconv.Itoa(i)
	}
	o.Identity = w.server
	if o.Accept == nil {
		o.Accept = func(k identity.Key) error {
			if k != w.client.Key() {
				return errors.New("a stranger")
			}
			return nil
		}
	}
	w.listener = NewListener(g, o)
	t.Cleanup(func() { w.listener.Close() })
	return w
}

func (w *world) options() Options {
	o := Options{To: path.At(netip.MustParseAddrPort("192.0.2.2:2")), Identity: w.client, Peer: w.server.Key(), Service: "test"}
	for _, r := range w.roads {
		o.Paths = append(o.Paths, Path{r.name, r})
	}
	return o
}

// open gives both ends of a session.
func (w *world) open(o Options) (client, server *Conn) {
	w.t.Helper()
	client, err := Dial(context.Background(), o)
	if err != nil {
		w.t.Fatal(err)
	}
	server, err = w.listener.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	return client, server
}
