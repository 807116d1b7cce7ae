package path

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func listen(t *testing.T, address string) *Socket {
	t.Helper()
	s, err := Listen(mustAddrPort(address))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// collect receives n datagrams, in order.
func collect(t *testing.T, receive func([]Inbound) (int, error), n int) [][]byte {
	t.Helper()
	var got [][]byte
	into := make([]Inbound, 4)
	for len(got) < n {
		k, err := receive(into)
		if err != nil {
			t.Fatalf("after %d of %d datagrams: %v", len(got), n, err)
		}
		for _, in := range into[:k] {
			for data := in.Data; len(data) > 0; {
				size := min(in.Size, len(data))
				got = append(got, bytes.Clone(data[:size]))
				data = data[size:]
			}
		}
	}
	return got
}

// bursts are lists of datagrams as a GSO sender makes them: runs of one length with a shorter end, and odd ones.
func bursts(seed uint64) [][]byte {
	rng := rand.New(rand.NewPCG(seed, seed))
	var all [][]byte
	for range 12 {
		size := 1 + rng.IntN(1400)
		for range 1 + rng.IntN(90) {
			all = append(all, make([]byte, size))
		}
		all = append(all, make([]byte, 1+rng.IntN(size)))
	}
	for i, d := range all {
		for k := range d {
			d[k] = byte(i + k)
		}
	}
	return all
}

func TestBurstsArriveWholeAndInOrder(t *testing.T) {
	const seed = 42
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		for _, gso := range []bool{true, false} {
			t.Run(fmt.Sprint(address, gso), func(t *testing.T) {
				to, from := listen(t, address), listen(t, address)
				from.gso.Store(gso && from.gso.Load())
				all := bursts(seed)
				done := make(chan [][]byte)
				go func() { done <- collect(t, to.Receive, len(all)) }()
				for rest := all; len(rest) > 0; {
					n := min(128, len(rest))
					sent, err := from.SendTo(to.LocalAddr(), rest[:n])
					if err != nil || sent != n {
						t.Fatalf("sent %d of %d: %v", sent, n, err)
					}
					rest = rest[n:]
				}
				for i, d := range <-done {
					if !bytes.Equal(d, all[i]) {
						t.Fatalf("seed %d: datagram %d differs: %d bytes, want %d", seed, i, len(d), len(all[i]))
					}
				}
			})
		}
	}
}

func TestRunsFollowTheRulesOfSegmentation(t *testing.T) {
	sizes := func(n ...int) [][]byte {
		var out [][]byte
		for _, k := range n {
			out = append(out, make([]byte, k))
		}
		return out
	}
	many := make([]int, 100)
	for i := range many {
		many[i] = 1200
	}
	for _, c := range []struct {
		name  string
		sizes []int
		want  int
	}{
		{"one", []int{100}, 1}, {"alike", []int{100, 100, 100}, 3}, {"shorter ends it", []int{100, 100, 50, 50}, 3},
		{"longer does not join", []int{100, 200}, 1}, {"empty stands alone", []int{0, 0}, 1}, {"empty does not join", []int{10, 0}, 1},
		{"bounded by bytes", many, maxGSOBytes / 1200}, {"bounded by segments", make([]int, 0), 0},
	} {
		if c.want == 0 {
			for range 100 {
				c.sizes = append(c.sizes, 10)
			}
			c.want = maxSegments
		}
		if got := runLength(sizes(c.sizes...)); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestTooLargeIsLeftOutAndTold(t *testing.T) {
	to, from := listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")
	small, large := []byte("fits"), make([]byte, 70000)
	n, err := from.SendTo(to.LocalAddr(), [][]byte{small, large, small})
	if n != 2 || !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("sent %d, %v; want 2 and EMSGSIZE", n, err)
	}
	collect(t, to.Receive, 2)
}

func TestClosedPortIsUnderstood(t *testing.T) {
	gone := listen(t, "127.0.0.1:0")
	to := gone.LocalAddr()
	gone.Close()
	from := listen(t, "127.0.0.1:0")
	if _, err := from.SendTo(to, [][]byte{[]byte("anybody?")}); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(10*time.Second, func() { from.Close() })
	_, err := from.Receive(make([]Inbound, 1))
	var u *Unreachable
	if !errors.As(err, &u) || !u.FromServer(to.Addr()) {
		t.Errorf("error %v (%T), want a refusal by %v", err, err, to.Addr())
	}
	if _, err := from.SendTo(to, [][]byte{[]byte("again")}); err != nil {
		t.Errorf("a refusal keeps the next datagram from leaving: %v", err)
	}
}

func TestCloseEndsReceive(t *testing.T) {
	s := listen(t, "127.0.0.1:0")
	done := make(chan error)
	go func() {
		_, err := s.Receive(make([]Inbound, 1))
		done <- err
	}()
	s.Close()
	if err := <-done; err != net.ErrClosed {
		t.Errorf("receive ended with %v", err)
	}
}

func open(t *testing.T, spec, to string) Flow {
	t.Helper()
	s, err := ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := Open(t.Context(), p, mustAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestSourceAddressIsKept(t *testing.T) {
	to := listen(t, "127.0.0.1:0")
	f := open(t, "a=src:127.0.0.9", to.LocalAddr().String())
	if _, err := f.Send([][]byte{[]byte("hello")}); err != nil {
		t.Fatal(err)
	}
	into := make([]Inbound, 1)
	if _, err := to.Receive(into); err != nil {
		t.Fatal(err)
	}
	local := f.(Addressed).LocalAddr()
	if into[0].From != local || local.Addr() != netip.MustParseAddr("127.0.0.9") {
		t.Errorf("came from %v, the flow says %v", into[0].From, local)
	}
	if err := f.(Checker).Check(); err != nil {
		t.Error(err)
	}
}

func TestPortsChangeAtEachSwitchAndOldOnesAreHeard(t *testing.T) {
	to := listen(t, "127.0.0.1:0")
	f := open(t, "hop=ports:lo", to.LocalAddr().String())
	seen := map[netip.AddrPort]bool{}
	into := make([]Inbound, 1)
	var ports []netip.AddrPort
	for range 5 {
		if err := f.(Rotator).Rotate(); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Send([][]byte{[]byte("hello")}); err != nil {
			t.Fatal(err)
		}
		if _, err := to.Receive(into); err != nil {
			t.Fatal(err)
		}
		seen[into[0].From] = true
		ports = append(ports, into[0].From)
	}
	if len(seen) != 5 {
		t.Errorf("%d ports in 5 switches: %v", len(seen), ports)
	}
	for _, p := range []netip.AddrPort{ports[0], ports[4]} {
		if _, err := to.SendTo(p, [][]byte{[]byte(p.String())}); err != nil {
			t.Fatal(err)
		}
		if got := collect(t, f.Receive, 1); string(got[0]) != p.String() {
			t.Errorf("heard %q, want %q", got[0], p)
		}
	}
	f.Close()
	if _, err := f.Receive(into); err != net.ErrClosed {
		t.Errorf("receive after close: %v", err)
	}
}

func TestPortsAreBounded(t *testing.T) {
	to := listen(t, "127.0.0.1:0")
	f := open(t, "hop=ports:lo", to.LocalAddr().String()).(*portsFlow)
	for range 3 * portsPerFlow {
		if err := f.Rotate(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(f.ports); n != portsPerFlow {
		t.Errorf("%d ports are open, the bound is %d", n, portsPerFlow)
	}
}

func FuzzSegmentSize(f *testing.F) {
	f.Add(segmentControl(1200))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, control []byte) { segmentSize(control) })
}

func FuzzExtendedError(f *testing.F) {
	f.Add(make([]byte, 32))
	f.Fuzz(func(t *testing.T, data []byte) {
		if u, ok := parseExtendedError(data); ok {
			_ = u.Error()
		}
	})
}

// Garbage on the way of each datagram would bring a collection into it now and then.
func TestDatagramsCostNoGarbage(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		to, from := listen(t, address), listen(t, address)
		one, into := [][]byte{make([]byte, 1200)}, make([]Inbound, 4)
		got := testing.AllocsPerRun(100, func() {
			if _, err := from.SendTo(to.LocalAddr(), one); err != nil {
				t.Fatal(err)
			}
			if _, err := to.Receive(into); err != nil || into[0].From != from.LocalAddr() {
				t.Fatal(into[0].From, err)
			}
		})
		if got != 0 {
			t.Errorf("%s: %v allocations for each datagram", address, got)
		}
	}
}
