package bridge

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"heddle/disguise/client"
	"heddle/internal/netutil"
	"heddle/internal/tcptest"
	"heddle/path"
	"heddle/schedule"
)

// relay is what a network does to connections: it passes them on to the bridge, and counts and cuts.
type relay struct {
	*net.TCPListener
	to netip.AddrPort

	mu    sync.Mutex
	conns map[net.Conn]bool
	most  map[int]int64 // bytes down by connection
	from  map[netip.Addr]int
	total int
	flip  int64 // change a byte behind so many, once for every other connection; 0 changes none

	flipped int

	up atomic.Int64 // bytes that came from clients
}

// flipper changes one byte of what is read.
type flipper struct {
	net.Conn
	r    *relay
	left int64
}

func (f *flipper) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	if f.left > 0 && f.left <= int64(n) {
		b[f.left-1] ^= 0x10
		f.r.mu.Lock()
		f.r.flipped++
		f.r.mu.Unlock()
	}
	f.left -= int64(n)
	f.r.up.Add(int64(n))
	return n, err
}

func relayTo(t *testing.T, s *setup) *relay {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{TCPListener: l, to: s.at, conns: map[net.Conn]bool{}, most: map[int]int64{}, from: map[netip.Addr]int{}}
	t.Cleanup(func() { l.Close(); r.cut(1) })
	s.line.Address = netutil.AddrPort(l.Addr())
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go r.pass(c)
		}
	}()
	return r
}

func (r *relay) pass(c net.Conn) {
	up, err := net.Dial("tcp", r.to.String())
	if err != nil {
		c.Close()
		return
	}
	r.mu.Lock()
	r.conns[c] = true
	number := r.total
	from := &flipper{Conn: c, r: r}
	if number%2 == 0 {
		from.left = r.flip
	}
	r.total++
	r.from[netutil.AddrPort(c.RemoteAddr()).Addr()]++
	r.mu.Unlock()
	_, down, _ := netutil.Pipe(context.Background(), netutil.Side{Reader: from, Writer: c}, netutil.Side{Reader: up, Writer: up}, func(error) {
		netutil.Reset(c)
		netutil.Reset(up)
	})
	c.Close()
	up.Close()
	r.mu.Lock()
	delete(r.conns, c)
	r.most[number] = down
	r.mu.Unlock()
}

// cut resets connections with the given chance.
func (r *relay) cut(chance float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		if rand.Float64() < chance {
			netutil.Reset(c)
		}
	}
}

// Whatever happens to the connections, the bytes arrive once and in order.
func TestConnectionsAreCut(t *testing.T) {
	s := start(t, func(o *Options) { o.Target = to(tcptest.Serve(t, tcptest.Echo)) })
	r := relayTo(t, s)
	c := opened(t, s.options())
	done := make(chan struct{})
	go func() {
		const often = 256 << 10 // bytes: on a busy machine, cuts at fixed times would leave none to a connection
		for next := int64(often); ; {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
			if up := r.up.Load(); up >= next {
				r.cut(0.3)
				next = up + often
			}
		}
	}()
	exchange(t, c, 16<<20)
	close(done)
	<-c.Done()
	if err := c.Err(); err != nil {
		t.Error(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.total < 5 {
		t.Errorf("only %d connections", r.total)
	}
}

// No connection carries more than its limit, and the link is as long as it likes.
func TestByteLimit(t *testing.T) {
	t.Parallel()
	const limit = 15_000
	s := start(t, func(o *Options) { o.Target = to(tcptest.Serve(t, tcptest.Echo)) })
	r := relayTo(t, s)
	o := s.options()
	o.Covers, o.Bytes, o.Connections = only(factory(t, s.line.Key, limit)), limit, 6
	c := opened(t, o)
	exchange(t, c, 400_000)
	<-c.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	for number, n := range r.most {
		if n > limit {
			t.Errorf("connection %d carried %d bytes", number, n)
		}
	}
	if r.total < 400_000/limit {
		t.Errorf("only %d connections", r.total)
	}
}

// Each connection leaves by the path that the schedule drew, and a link over two paths uses both.
func TestTwoPaths(t *testing.T) {
	s := start(t, func(o *Options) { o.Target = to(tcptest.Serve(t, tcptest.Echo)) })
	r := relayTo(t, s)
	o := s.options()
	o.Connections, o.Schedule = 8, schedule.Config{Name: "round-robin"}
	o.Covers, o.Bytes = only(factory(t, s.line.Key, 20_000)), 20_000
	for _, name := range []string{"127.0.0.2", "127.0.0.3"} {
		spec := path.Spec{Name: "p" + name[8:], Kind: "src", Arg: name}
		p, err := path.New(spec, path.Options{})
		if err != nil {
			t.Fatal(err)
		}
		o.Paths = append(o.Paths, client.Path{Name: spec.Name, Path: p})
	}
	c := opened(t, o)
	exchange(t, c, 200_000)
	r.mu.Lock()
	defer r.mu.Unlock()
	a, b := r.from[netip.MustParseAddr("127.0.0.2")], r.from[netip.MustParseAddr("127.0.0.3")]
	if a < 3 || b < 3 || len(r.from) != 2 {
		t.Errorf("connections came from %v", r.from)
	}
	c.Close()
}

// A path that cannot be used stops the link before anything is sent, except where the user says otherwise.
func TestDeadPath(t *testing.T) {
	s := start(t, func(o *Options) { o.Target = to(tcptest.Serve(t, tcptest.Echo)) })
	for _, degrade := range []bool{false, true} {
		o := s.options()
		o.Degrade = degrade
		for name, arg := range map[string]string{"good": "127.0.0.2", "dead": "192.0.2.77"} {
			p, err := path.New(path.Spec{Name: name, Kind: "src", Arg: arg}, path.Options{})
			if err != nil {
				t.Fatal(err)
			}
			o.Paths = append(o.Paths, client.Path{Name: name, Path: p})
		}
		c, err := openLink(t, o)
		if !degrade {
			if err == nil || !strings.Contains(err.Error(), "1 of 2") || !strings.Contains(err.Error(), "dead") {
				t.Errorf("without degrade: %v", err)
			}
			if got := s.Status().LinksEver; got != 0 {
				t.Errorf("%d links were opened", got)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, c, 10_000)
		c.Close()
	}
}
