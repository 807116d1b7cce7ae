package wireguard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"

	"heddle/internal/polltest"
	"heddle/path"
)

func TestDatagramsGoThroughTheTunnel(t *testing.T) {
	s := newServer(t)
	p := newTunnelPath(t, s.file(t, everything), nil)
	for _, to := range []netip.AddrPort{echo4, echo6} {
		f := open(t, p, to)
		for i := range 3 {
			exchange(t, f, to, fmt.Sprint("datagram ", i))
		}
		local := f.(path.Addressed).LocalAddr()
		if want := map[bool]string{true: "10.99.0.2", false: "fd99::2"}[to.Addr().Is4()]; local.Addr().String() != want || local.Port() == 0 {
			t.Errorf("it leaves from %v, not from the tunnel's address %s", local, want)
		}
		if err := f.(path.Checker).Check(); err != nil {
			t.Error(err)
		}
	}
}

func TestFlowsShareOneTunnelUntilTheLastIsClosed(t *testing.T) {
	s := newServer(t)
	before := runtime.NumGoroutine()
	p := newTunnelPath(t, s.file(t, everything), nil)
	first := open(t, p, echo4)
	tunnel := p.tunnel
	second := open(t, p, echo4)
	if p.tunnel != tunnel {
		t.Error("the second flow made a tunnel of its own")
	}
	first.Close()
	first.Close()
	exchange(t, second, echo4, "still there")
	blocked := make(chan error)
	go func() {
		_, err := second.Receive(make([]path.Inbound, 1))
		blocked <- err
	}()
	second.Close()
	if err := <-blocked; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Receive after Close: %v", err)
	}
	for p.running() || runtime.NumGoroutine() > before {
		select {
		case <-t.Context().Done():
			t.Fatal("the tunnel does not end")
		case <-time.After(time.Millisecond):
		}
	}
	exchange(t, open(t, p, echo4), echo4, "a new tunnel")
}

func TestStreamsGoThroughTheTunnel(t *testing.T) {
	s := newServer(t)
	p := newTunnelPath(t, s.file(t, everything), nil)
	c, err := p.Dial(t.Context(), path.At(echo4))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	want := bytes.Repeat([]byte("0123456789"), 50_000)
	go func() {
		c.Write(want)
		c.(interface{ CloseWrite() error }).CloseWrite()
	}()
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
	}
}

// Names are looked up by the file's DNS server, inside, and by nobody where there is none.
func TestNamesAreLookedUpInside(t *testing.T) {
	s := newServer(t)
	to, err := path.HostPort("web.heddle.invalid", echo4.Port())
	if err != nil {
		t.Fatal(err)
	}
	if c, err := newTunnelPath(t, s.file(t, everything), nil).Dial(t.Context(), to); err == nil || !strings.Contains(err.Error(), "names no DNS server") {
		t.Errorf("without a DNS server: %v, %v", c, err)
	}
	here := fullAddress(echo4.Addr(), 53)
	socket, err := gonet.DialUDP(s.inside.stack, &here, nil, protocolOf(echo4.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: socket, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		answer := new(dns.Msg)
		answer.SetReply(q)
		if q.Question[0].Name != "web.heddle.invalid." {
			answer.Rcode = dns.RcodeNameError
		} else if q.Question[0].Qtype == dns.TypeA {
			answer.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: echo4.Addr().AsSlice()}}
		}
		w.WriteMsg(answer)
	})}
	go server.ActivateAndServe()
	p := newTunnelPath(t, s.file(t, everything, "DNS = "+echo4.Addr().String()), nil)
	c, err := p.Dial(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.RemoteAddr().String() != echo4.String() {
		t.Errorf("connected to %v", c.RemoteAddr())
	}
	to.Name = "nowhere.heddle.invalid"
	if _, err := p.Dial(t.Context(), to); err == nil || !strings.Contains(err.Error(), "does not give the address of nowhere") {
		t.Error(err)
	}
}

// Bursts come whole and in order, with datagrams of one length joined.
func TestBursts(t *testing.T) {
	s := newServer(t)
	f := open(t, newTunnelPath(t, s.file(t, everything), nil), echo4)
	var all [][]byte
	for i := range 400 {
		size := 1200
		if i%20 == 19 {
			size = i % 7
		}
		all = append(all, bytes.Repeat([]byte{byte(i)}, size))
	}
	for _, room := range []int{1, 4} {
		into := make([]path.Inbound, room)
		for burst := all; len(burst) > 0; burst = burst[min(50, len(burst)):] {
			want := burst[:min(50, len(burst))]
			if n, err := f.Send(want); n != len(want) || err != nil {
				t.Fatalf("sent %d: %v", n, err)
			}
			for len(want) > 0 {
				n, err := f.Receive(into)
				if err != nil {
					t.Fatal(err)
				}
				for _, in := range into[:n] {
					for first := true; first || len(in.Data) > 0; first = false {
						d := in.Data[:min(in.Size, len(in.Data))]
						in.Data = in.Data[len(d):]
						if !bytes.Equal(d, want[0]) {
							t.Fatalf("%d bytes came, %d were next", len(d), len(want[0]))
						}
						want = want[1:]
					}
				}
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	s := newServer(t)
	dead := *s
	dead.endpoint = closedPort(t)
	stranger := *s
	stranger.peer = newKey(t)
	v4 := s.file(t, "10.99.0.0/24")
	for name, c := range map[string]struct {
		file      string
		base      path.Path
		to        netip.AddrPort
		why, hint string
	}{
		"dead endpoint":      {file: dead.file(t, everything), to: echo4, why: "the WireGuard server " + dead.endpoint.String() + " does not answer: nothing listens on that port", hint: "endpoint"},
		"unknown key":        {file: stranger.file(t, everything), to: echo4, why: "does not answer", hint: "key"},
		"outside AllowedIPs": {file: v4, to: netip.MustParseAddrPort("192.0.2.1:443"), why: "192.0.2.1 is not among the AllowedIPs", hint: "AllowedIPs"},
		"family":             {file: s.file(t, "::/0"), to: echo4, why: "AllowedIPs", hint: "AllowedIPs"},
		"narrow base":        {file: s.file(t, everything), base: &narrow{mtu: 500}, to: echo4, why: "440 bytes", hint: "MTU"},
		"no IPv6 fits":       {file: s.file(t, everything), base: &narrow{mtu: 1280}, to: echo6, why: "IP needs 1280", hint: "MTU"},
	} {
		t.Run(name, func(t *testing.T) {
			patience := 10 * time.Second
			if name == "unknown key" { // which is told by silence
				patience = 150 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			f, err := newTunnelPath(t, c.file, c.base).Open(ctx, c.to)
			if err == nil {
				f.Close()
				t.Fatal("opened")
			}
			var e *path.Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), c.why) || !strings.Contains(e.Hint, c.hint) {
				t.Errorf("%v (hint: %s)", err, e.HintText())
			}
		})
	}
}

func TestArguments(t *testing.T) {
	for _, bad := range []string{"/nonexistent.conf", "nonexistent", t.TempDir()} {
		if _, err := path.New(path.Spec{Name: "t", Kind: "wireguard", Arg: bad}, path.Options{}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// narrow is loopback that carries packets of so many bytes, as it says.
type narrow struct {
	path.System
	mtu int
}

func (p *narrow) Describe() path.Info { return path.Info{Name: "narrow", MTU: p.mtu, Ready: true} }

func TestDescribe(t *testing.T) {
	s := newServer(t)
	for _, c := range []struct {
		line     string
		mtu, got int
	}{
		{"", 0, 1420},
		{"", 1500, 1420},
		{"", 1400, 1340},
		{"MTU = 1380", 0, 1380},
		{"MTU = 1440", 1500, 1440},
		{"MTU = 1500", 1500, 1440},
	} {
		info := newTunnelPath(t, s.file(t, everything, c.line), &narrow{mtu: c.mtu}).Describe()
		if info.MTU != c.got || !info.Ready {
			t.Errorf("%q over %d bytes: MTU %d, not %d; ready %v", c.line, c.mtu, info.MTU, c.got, info.Ready)
		}
	}
	one := newTunnelPath(t, s.file(t, everything), nil).Describe()
	two := newTunnelPath(t, s.file(t, "10.0.0.0/8"), nil).Describe()
	if one.Exit == "" || one.Exit != two.Exit {
		t.Errorf("two tunnels to one server have the exits %q and %q", one.Exit, two.Exit)
	}
	if other := newTunnelPath(t, newServer(t).file(t, everything), nil).Describe(); other.Exit == one.Exit || other.Observer == one.Observer {
		t.Errorf("two servers have one exit %q or one observer %q", one.Exit, one.Observer)
	}
	if tiny := newTunnelPath(t, s.file(t, everything), &narrow{mtu: 500}).Describe(); tiny.Ready || tiny.Hint == "" {
		t.Errorf("over 500 bytes: %+v", tiny)
	}
}

// moving is the machine's own way; its flows fail their check when told, and count.
type moving struct {
	path.System
	opened  atomic.Int64
	changed atomic.Int64 // flows up to this number would leave elsewhere
}

type movingFlow struct {
	path.Flow
	base   *moving
	number int64
}

func (p *moving) Open(ctx context.Context, to netip.AddrPort) (path.Flow, error) {
	f, err := p.System.Open(ctx, to)
	if err != nil {
		return nil, err
	}
	return &movingFlow{f, p, p.opened.Add(1)}, nil
}

func (f *movingFlow) Check() error {
	if f.number <= f.base.changed.Load() {
		return &path.Error{What: "path under", Why: "its address changed"}
	}
	return nil
}

func TestTunnelMovesWithThePathUnderIt(t *testing.T) {
	s := newServer(t)
	base := &moving{System: path.NewSystem(0)}
	p := newTunnelPath(t, s.file(t, everything), base)
	f := open(t, p, echo4)
	exchange(t, f, echo4, "before")
	tunnel := p.tunnel
	base.changed.Store(1)
	polltest.Await(t, "the flow is over", func() bool { return f.(path.Checker).Check() != nil })
	if err := f.(path.Checker).Check(); !strings.Contains(err.Error(), "its address changed") {
		t.Errorf("why: %v", err)
	}
	if n, err := f.Send([][]byte{[]byte("stale")}); n != 0 || err == nil {
		t.Errorf("%d datagrams wait in a tunnel that leads nowhere: %v", n, err)
	}
	again := open(t, p, echo4)
	f.Close()
	exchange(t, again, echo4, "after")
	if p.tunnel != tunnel || base.opened.Load() != 2 {
		t.Errorf("%d flows of the path under it", base.opened.Load())
	}
}

func TestServiceRefuses(t *testing.T) {
	s := newServer(t)
	f := open(t, newTunnelPath(t, s.file(t, everything), nil), netip.AddrPortFrom(echo4.Addr(), 9))
	if _, err := f.Send([][]byte{[]byte("anybody?")}); err != nil {
		t.Fatal(err)
	}
	_, err := f.Receive(make([]path.Inbound, 1))
	var u *path.Unreachable
	if !errors.As(err, &u) || u.Errno != unix.ECONNREFUSED || !u.FromServer(echo4.Addr()) {
		t.Errorf("a closed port gives %v", err)
	}
}

func TestPulse(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	type look struct {
		at, handshake  int // seconds
		sent, received uint64
	}
	for _, c := range []struct {
		name  string
		looks []look
		dead  bool
	}{
		{"busy", []look{{0, 0, 1, 1}, {1, 0, 2, 2}}, false},
		{"idle for long", []look{{0, 0, 1, 1}, {600, 0, 1, 1}}, false},
		{"speaks after long", []look{{0, 0, 1, 1}, {600, 0, 2, 1}, {609, 0, 3, 1}}, false},
		{"no answer after long", []look{{0, 0, 1, 1}, {600, 0, 2, 1}, {611, 0, 3, 1}}, true},
		{"answer after long", []look{{0, 0, 1, 1}, {600, 0, 2, 1}, {605, 605, 3, 2}, {620, 605, 4, 2}}, false},
		{"no answer for a while", []look{{0, 0, 1, 1}, {100, 0, 2, 1}, {150, 0, 3, 1}}, false},
		{"no answer until the session is over", []look{{0, 0, 1, 1}, {100, 0, 2, 1}, {181, 0, 3, 1}}, true},
	} {
		var p pulse
		for _, l := range c.looks {
			p.note(at(l.at), progress{handshake: at(l.handshake), sent: l.sent, received: l.received})
		}
		if got := p.dead(at(c.looks[len(c.looks)-1].at)); got != c.dead {
			t.Errorf("%s: dead %v", c.name, got)
		}
	}
}

// The end may come while the stack inside sends as fast as it can.
func TestTunnelEndsUnderLoad(t *testing.T) {
	s := newServer(t)
	for range 3 {
		p := newTunnelPath(t, s.file(t, everything), nil)
		f := open(t, p, echo4)
		c, err := p.Dial(t.Context(), path.At(echo4))
		if err != nil {
			t.Fatal(err)
		}
		var senders sync.WaitGroup
		started := make(chan struct{}, 2)
		senders.Go(func() {
			burst := [][]byte{make([]byte, 1200), make([]byte, 1200)}
			for n := 0; ; n++ {
				if n == 10 {
					started <- struct{}{}
				}
				if _, err := f.Send(burst); err != nil && !errors.Is(err, unix.ENOBUFS) {
					return
				}
			}
		})
		senders.Go(func() {
			block := make([]byte, 64<<10)
			for n := 0; ; n++ {
				if n == 4 {
					started <- struct{}{}
				}
				if _, err := c.Write(block); err != nil {
					return
				}
			}
		})
		<-started
		p.tunnel.close()
		senders.Wait()
		f.Close()
		c.Close()
	}
}
