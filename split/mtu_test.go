package split

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/clienthello"
	"heddle/path"
	"heddle/path/group"
)

// begins returns the first datagram of a QUIC client, with that length.
func begins(size int) []byte { return longPacket(1, clienthello.KindInitial, "server", "client", size) }

// sized makes a session over two paths that carry packets of these sizes. The first is a device, which sends fragments.
func sized(t *testing.T, device, proxy int) (*Session, []*fakePath) {
	t.Helper()
	f, paths := closedFake(t, 2, nil)
	paths[0].mtu, paths[0].fragment, paths[1].mtu = device, true, proxy
	openFake(t, f)
	return f, paths
}

// passes returns the lengths among sizes that the session takes from the program.
func passes(t *testing.T, f *Session, paths []*fakePath, sizes ...int) (passed []int) {
	t.Helper()
	for _, size := range sizes {
		d := make([]byte, size)
		d[0] = 0x40
		if err := f.Send([][]byte{d}); err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			for _, d := range p.take() {
				passed = append(passed, len(d))
			}
		}
	}
	return passed
}

func TestLimit(t *testing.T) {
	for _, c := range []struct {
		name          string
		device, proxy int
		quic          bool
		send          int
		pass          bool
	}{
		{"QUIC at the limit of the proxy", 1500, 1361, true, 1333, true},
		{"QUIC above it", 1500, 1361, true, 1334, false},
		{"QUIC at the limit of the device", 1280, 1361, true, 1252, true},
		{"QUIC above it, which would be fragmented", 1280, 1361, true, 1253, false},
		{"another protocol, which may be fragmented", 1280, 1361, false, 1333, true},
		{"another protocol above what the proxy takes", 1280, 1361, false, 1334, false},
		{"another protocol without a proxy", 1280, 0, false, 4000, true},
		{"QUIC over paths of unknown size", 0, 0, true, 1452, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, paths := sized(t, c.device, c.proxy)
			if c.quic {
				f.Send([][]byte{begins(1200)})
				passes(t, f, paths, 1)
			}
			for range paths { // each path in its turn
				if got := passes(t, f, paths, c.send); (len(got) == 1) != c.pass {
					t.Errorf("%s: %v passed", c.name, got)
				}
			}
			lost := uint64(len(paths))
			if c.pass {
				lost = 0
			}
			if s := f.Status("relay"); s.TooLarge != lost {
				t.Errorf("%s: %d counted as too large", c.name, s.TooLarge)
			}
		})
	}
}

// A batch loses what is too large, and keeps the order of the rest.
func TestLimitInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, paths := sized(t, 1500, 1361)
		f.Send([][]byte{begins(1200), make([]byte, 1400), {1}, make([]byte, 1334), {2}})
		got := append(paths[0].take(), paths[1].take()...)
		if len(got) != 3 {
			t.Errorf("%d datagrams passed", len(got))
		}
	})
}

func TestLimitOfArrivals(t *testing.T) {
	for _, c := range []struct {
		name    string
		in      path.Inbound
		size, n int
		dropped int
		order   uint64
	}{
		{"one that fits", path.Inbound{Data: make([]byte, 1333), Size: 1333}, 1333, 1, 0, 0},
		{"one too large", path.Inbound{Data: make([]byte, 1334), Size: 1334}, 0, 0, 1, 0},
		{"a run that fits", path.Inbound{Data: make([]byte, 2700), Size: 1333}, 1333, 3, 0, 0},
		{"a run too large", path.Inbound{Data: make([]byte, 2800), Size: 1400}, 0, 0, 2, 0},
		{"its small end fits", path.Inbound{Data: make([]byte, 2810), Size: 1400, Order: 7}, 10, 1, 2, 9},
		{"its end is too large", path.Inbound{Data: make([]byte, 2739), Size: 1400}, 0, 0, 2, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, _ := sized(t, 1500, 1361)
			in := c.in
			dropped := f.cut(&in)
			n := 0
			for range in.Datagrams() {
				n++
			}
			if dropped != c.dropped || n != c.n || n > 0 && in.Size != c.size || in.Order != c.order && n > 0 {
				t.Errorf("%s: dropped %d, left %d of %d bytes from %d", c.name, dropped, n, in.Size, in.Order)
			}
		})
	}
}

// The server's search (RFC 8899) has to lose its probes too, on every path, and they show that the path works.
func TestLimitDropsWhatTheServerSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, paths := closedFake(t, 2, nil)
		paths[0].mtu, paths[1].mtu = 1500, 1361
		if err := f.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		f.Send([][]byte{begins(1200)})
		for i, p := range paths {
			p.put(fakeServer, make([]byte, 1400))
			p.put(fakeServer, make([]byte, 1333))
			into := make([]path.Inbound, 1)
			if n, err := f.Receive(i, into); n != 1 || err != nil || len(into[0].Data) != 1333 {
				t.Errorf("path %d gave %d of %d bytes, %v", i, n, len(into[0].Data), err)
			}
		}
		s := f.Status("relay")
		if s.TooLarge != 2 || s.Paths[0].Down.Dropped != 1 || s.Paths[0].State != string(path.Up) || len(s.Warnings) > 0 {
			t.Errorf("%d too large, warnings %q, path %+v", s.TooLarge, s.Warnings, s.Paths[0])
		}
	})
}

func TestLimitFollowsThePaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, paths := sized(t, 1500, 1361)
		f.Send([][]byte{begins(1200)})
		passes(t, f, paths, 1)
		paths[1].carries(1300)
		time.Sleep(time.Second)
		if got := passes(t, f, paths, 1333); len(got) != 0 {
			t.Error("what no longer fits passed")
		}
		paths[1].carries(1441)
		time.Sleep(5 * time.Second)
		if got := passes(t, f, paths, 1333); len(got) != 0 {
			t.Error("it widened early")
		}
		time.Sleep(10 * time.Second)
		if got := passes(t, f, paths, 1413); len(got) != 1 {
			t.Error("it did not widen")
		}
		if s := f.Status("relay"); s.MTU != 1441 {
			t.Errorf("status says MTU %d", s.MTU)
		}
	})
}

// A router's report counts while the program still searches. A later one, which anybody may forge, stops nothing.
func TestLimitOfReports(t *testing.T) {
	report := func(by string) error {
		return &path.Unreachable{Errno: unix.EMSGSIZE, By: netip.MustParseAddr(by), MTU: 1300}
	}
	for _, c := range []struct {
		name  string
		after time.Duration
		err   error
		mtu   int
	}{
		{"a router's at once", time.Second, report("192.0.2.99"), 1300},
		{"a router's later", reportWithin, report("192.0.2.99"), 1500},
		{"this machine's later", reportWithin, &path.Unreachable{Errno: unix.EMSGSIZE, MTU: 1300}, 1300},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, paths := sized(t, 1500, 1500)
			time.Sleep(c.after)
			paths[0].flow.failed <- c.err
			time.Sleep(time.Second)
			if s := f.Status("relay"); s.MTU != c.mtu {
				t.Errorf("%s: MTU %d, want %d", c.name, s.MTU, c.mtu)
			}
		})
	}
}

func TestLimitWarnings(t *testing.T) {
	for _, c := range []struct {
		name         string
		proxy        int
		first        []byte
		large, small int // datagrams after the first
		want         string
	}{
		{"a search", 1361, begins(1200), 12, 0, ""},
		{"searches after each switch", 1361, begins(1200), 200, 10, ""},
		{"no smaller ones", 1361, begins(1200), 40, 0, "lower the MTU of the program"},
		{"a first packet that does not fit", 1361, begins(1350), 0, 0, "begins with larger ones"},
		{"a path too narrow for QUIC", 1200, begins(1200), 0, 0, "QUIC needs datagrams of 1200 bytes, and path b carries 1172"},
		{"another protocol", 1361, []byte{4}, 1, 0, "more than 1333 bytes are dropped on every path, since path b"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, _ := sized(t, 1500, c.proxy)
			f.Send([][]byte{c.first})
			for range c.large {
				f.Send([][]byte{make([]byte, 1400)})
				for range c.small {
					f.Send([][]byte{{0x40}})
				}
			}
			said := strings.Join(f.Status("relay").Warnings, "\n")
			if c.want == "" && strings.Contains(said, "dropped") || !strings.Contains(said, c.want) {
				t.Errorf("%s: warnings %q", c.name, said)
			}
		})
	}
}

func TestTellLimit(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	for _, c := range []struct {
		mtu    int
		server netip.Addr
		want   string
	}{
		{0, v4, ""},
		{1361, v4, "at most 1333 bytes"},
		{1361, v4, "WireGuard tunnel has to be at most 1301"},
		{1361, v6, "at most 1313 bytes"},
		{1200, v4, "QUIC needs 1200 and does not work"},
	} {
		if got := TellLimit(group.Narrow{Path: "m", Size: c.mtu}, c.server); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%d: %q", c.mtu, got)
		}
	}
}

func TestStartsQUIC(t *testing.T) {
	for name, c := range map[string]struct {
		d    []byte
		want bool
	}{
		"version 1":           {begins(1200), true},
		"version 2":           {longPacket(quicV2, clienthello.KindInitial, "server", "client", 1200), true},
		"short":               {begins(1199), false},
		"version negotiation": {bytes.Repeat([]byte{0xc0, 0, 0, 0, 0}, 300), false},
		"a handshake packet":  {longPacket(1, clienthello.KindHandshake, "server", "client", 1300), false},
		"RTP":                 {append([]byte{0x80, 96, 0, 1}, make([]byte, 1300)...), false},
		"WireGuard":           {append([]byte{4, 0, 0, 0}, make([]byte, 1300)...), false},
		"nothing":             {nil, false},
	} {
		if startsQUIC(c.d) != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
}
