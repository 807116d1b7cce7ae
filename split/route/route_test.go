package route

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/nft"
	"heddle/internal/nstest"
	"heddle/internal/polltest"
	"heddle/path"
	"heddle/schedule"
	"heddle/split"
	"heddle/split/backend"
	"heddle/split/backend/backendtest"
)

// On a busy machine this process may be late to renew its permission, and then packets are dropped, as they shall be.
func init() { lease = time.Minute }

func options(t *testing.T, server netip.AddrPort) Options {
	return Options{Server: server, Dir: t.TempDir(), Options: split.Options{Session: "test", To: server.String(), Via: backendtest.Via(),
		Schedule: schedule.Config{Name: "round-robin", Every: schedule.Every{Period: 5 * time.Millisecond}}, Log: slog.New(slog.DiscardHandler)}}
}

// start opens and runs a backend in the client; halt ends Run and leaves all else, as a crash would.
func start(t *testing.T, w *backendtest.World, o Options) (p *Backend, halt func()) {
	t.Helper()
	w.Client.Do(t, func() (err error) {
		p, err = Open(t.Context(), o)
		return err
	})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Client.Run(func() error { return p.Run(ctx) }) }()
	ended := false
	halt = func() {
		if !ended {
			ended = true
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(func() {
		halt()
		if err := w.Client.Run(p.Close); err != nil {
			t.Error(err)
		}
	})
	await(t, p, func(s split.Status) bool { return s.State == "running" })
	return p, halt
}

func await(t *testing.T, p *Backend, wanted func(split.Status) bool) split.Status {
	t.Helper()
	for end := time.Now().Add(backendtest.Patience); ; time.Sleep(5 * time.Millisecond) {
		s := p.Status()
		if wanted(s) {
			return s
		}
		if time.Now().After(end) {
			t.Fatalf("the status is %+v", s)
		}
	}
}

// machine is what a session may have changed.
func machine(t *testing.T, w *backendtest.World) string {
	t.Helper()
	var b strings.Builder
	w.Client.Do(t, func() error {
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			rules, err := netlink.RuleList(family)
			if err != nil {
				return err
			}
			fmt.Fprintln(&b, rules)
			routes, err := netlink.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_TABLE)
			if err != nil {
				return err
			}
			for _, r := range routes {
				if r.Dst != nil && !r.Dst.IP.IsLinkLocalUnicast() && !r.Dst.IP.IsMulticast() {
					fmt.Fprintln(&b, r)
				}
			}
		}
		for n := 1; n <= backendtest.Ways; n++ {
			value, err := nstest.Get(fmt.Sprintf("ipv4/conf/p%d/rp_filter", n))
			if err != nil {
				return err
			}
			fmt.Fprint(&b, value)
		}
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		tables, err := conn.ListTables()
		for _, table := range tables {
			fmt.Fprintln(&b, table.Name)
		}
		return err
	})
	return b.String()
}

// sent is how many packets went by all paths.
func sent(s split.Status) (n int) {
	for _, p := range s.Paths {
		n += int(p.Up.Packets)
	}
	return n
}

func TestRoutesAreReplaced(t *testing.T) {
	for name, address := range map[string]netip.Addr{"IPv4": backendtest.Server4, "IPv6": backendtest.Server6} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := backendtest.New(t)
			w.Client.Do(t, func() error { return nstest.Set("ipv4/conf/all/rp_filter", "1") })
			before := machine(t, w)
			echo := w.NewEcho(t, address)
			o := options(t, echo.At)
			p, halt := start(t, w, o)
			tap := w.NewTap(t)
			c, n := w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{}), 0
			talk := func() {
				n += 100
				if back := backendtest.Talk(c, echo.At, 100, time.Millisecond); back != 100 {
					t.Fatalf("%d of 100 datagrams came back", back)
				}
			}
			tap.Until(func(all []backendtest.Packet) bool { return slices.Min(backendtest.ByWay(all)[1:]) >= 20 }, talk)
			// The kernel chose this one's address once and for all: what it sends by other paths must not leave.
			bound := w.NewSocket(t, netip.AddrPortFrom(backendtest.Own(1, address), 0), netip.AddrPort{})
			tried, refused := 0, 0
			for end := time.Now().Add(backendtest.Patience); (tried < 60 || refused == 0) && time.Now().Before(end); time.Sleep(time.Millisecond) {
				tried++
				if _, err := bound.WriteToUDPAddrPort([]byte("bound"), echo.At); err != nil {
					refused++
				}
			}
			polltest.Await(t, "no path is doubted, as one may be on a busy machine", func() bool {
				talk()
				return !slices.ContainsFunc(p.Status().Paths, func(one split.PathStatus) bool { return one.State != string(path.Up) })
			})
			s := await(t, p, func(s split.Status) bool {
				return sent(s)+int(s.Refused) >= n+tried && s.Refused > 0
			})
			echo.Await(t, sent(s))
			by := backendtest.ByWay(tap.Packets())
			for _, packet := range tap.Packets() {
				if own := backendtest.Own(packet.Way, address); packet.From.Addr() != own {
					t.Errorf("a packet on way %d comes from %v, not from %v", packet.Way, packet.From, own)
				}
			}
			for i, member := range s.Paths {
				if by[i+1] < 20 || int(member.Up.Packets) != by[i+1] {
					t.Errorf("path %s counts %+v, the router %d", member.Name, member, by[i+1])
				}
			}
			halt() // as a crash does
			tap.Reset()
			free := w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{})
			if back := backendtest.InVain(free, echo.At, 1); back != 0 || len(tap.Packets()) != 0 {
				t.Error("a packet left though nobody runs")
			}
			w.Client.Do(t, func() error {
				_, err := Clean(o.Dir, o.Session, false)
				return err
			})
			if after := machine(t, w); after != before {
				t.Errorf("left behind:\n%s\nbefore:\n%s", after, before)
			}
		})
	}
}

func TestReady(t *testing.T) {
	t.Parallel()
	w := backendtest.New(t)
	w.Ready(t, func(server netip.AddrPort, ready func()) {
		o := options(t, server)
		o.Ready = func(string) { ready() }
		start(t, w, o)
	})
}

func TestServerMoves(t *testing.T) {
	t.Parallel()
	w := backendtest.New(t)
	o := options(t, netip.AddrPort{})
	w.ServerMoves(t, backendtest.Backend{
		Open: func(to string, name *backendtest.Name, ready func()) backendtest.Session {
			o.To, o.Lookup, o.LookAgain, o.Ready = to, name.Lookup, 10*time.Millisecond, func(string) { ready() }
			var p *Backend
			w.Client.Do(t, func() (err error) {
				p, err = Open(t.Context(), o)
				return err
			})
			return p
		},
		Clean: func() error {
			_, err := Clean(o.Dir, o.Session, false)
			return err
		},
		Moved: backend.ErrMoved,
	})
}

func TestTooFewPathsStopIt(t *testing.T) {
	w := backendtest.New(t)
	echo := w.NewEcho(t, backendtest.Server4)
	p, _ := start(t, w, options(t, echo.At))
	free := w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{})
	if backendtest.Talk(free, echo.At, 3, 0) != 3 {
		t.Error("not all came back")
	}
	w.SetUp(t, 1, false)
	w.SetUp(t, 2, false)
	await(t, p, func(s split.Status) bool { return s.State == "stopped" })
	tap := w.NewTap(t)
	if back := backendtest.InVain(free, echo.At, 2); back != 0 || len(tap.Packets()) != 0 {
		t.Errorf("%d came back by too few paths; %v", back, tap.Packets())
	}
	w.SetUp(t, 1, true)
	await(t, p, func(s split.Status) bool { return s.State == "running" })
	if backendtest.Talk(free, echo.At, 5, 0) == 0 {
		t.Error("nothing leaves though there are enough paths again")
	}
}

func TestCountsOfPacketsAreRefused(t *testing.T) {
	o := options(t, netip.AddrPortFrom(backendtest.Server4, backendtest.Port))
	o.Schedule.Every = schedule.Every{Packets: 50}
	_, err := Open(t.Context(), o)
	var e *path.Error
	if err == nil || !strings.Contains(err.Error(), "count packets") || !asError(err, &e) || e.Hint == "" {
		t.Errorf("%v", err)
	}
}

func asError(err error, to **path.Error) bool {
	e, ok := err.(*path.Error)
	*to = e
	return ok
}

// A guard that somebody removes is made again, and the session goes on.
func TestGuardIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := backendtest.New(t)
	echo := w.NewEcho(t, backendtest.Server4)
	p, _ := start(t, w, options(t, echo.At))
	table := nft.Inet(p.guard.Table)
	w.Client.Do(t, func() error { return nft.Remove(table) })
	w.AwaitGuard(t, table)
	free := w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{})
	for end := time.Now().Add(backendtest.Patience); backendtest.Talk(free, echo.At, 3, 0) != 3; {
		if time.Now().After(end) {
			t.Fatal("nothing leaves")
		}
	}
}

// The kernel removes the route with the device, whose path then is the same as before.
func TestRouteComesBackWithItsDevice(t *testing.T) {
	w := backendtest.New(t)
	echo := w.NewEcho(t, backendtest.Server4)
	o := options(t, echo.At)
	o.Schedule.Every.Period = time.Hour
	p, _ := start(t, w, o)
	c := w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{})
	for range 5 { // a look may fall between down and up, and then notices by itself
		if back := backendtest.Talk(c, echo.At, 1, 0); back != 1 {
			t.Fatal("nothing came back")
		}
		p.mu.Lock()
		n := p.current + 1
		p.mu.Unlock()
		w.SetUp(t, n, false)
		w.SetUp(t, n, true)
		polltest.Await(t, "the session's route", func() bool { return routed(t, w, p) })
		await(t, p, func(s split.Status) bool { return s.State == "running" })
	}
}

// routed tells that the session's table has a route beside the blackhole.
func routed(t *testing.T, w *backendtest.World, p *Backend) (there bool) {
	t.Helper()
	w.Client.Do(t, func() error {
		routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: p.table.Number}, netlink.RT_FILTER_TABLE)
		there = slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Type == unix.RTN_UNICAST })
		return err
	})
	return there
}

// The router takes what comes by one way and answers nothing there for a while.
func TestSilentPathIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := backendtest.New(t)
	echo := w.NewEcho(t, backendtest.Server4)
	p, _ := start(t, w, options(t, echo.At))
	c := w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{})
	become := func(state path.State) {
		t.Helper()
		await(t, p, func(s split.Status) bool {
			for range 50 { // so that a trial has something to send, also on a busy machine
				_, _ = c.WriteToUDPAddrPort([]byte("hello"), echo.At)
				time.Sleep(time.Millisecond)
			}
			return s.Paths[1].State == string(state)
		})
	}
	become(path.Up)
	w.Mute(t, 2, true)
	become(path.Silent)
	w.Mute(t, 2, false)
	become(path.Up)
}

func TestStoppedSessionReturns(t *testing.T) {
	t.Parallel()
	w := backendtest.New(t)
	echo := w.NewEcho(t, backendtest.Server4)
	o := options(t, echo.At)
	o.Via = o.Via[:2]
	p, _ := start(t, w, o)
	w.ReturnsToBoth(t, p.Status, echo.At)
}

func TestTrialIsOver(t *testing.T) {
	type look struct {
		ms         int
		up, length uint64 // packets so far, and bytes of each
		down       uint64
		over       bool
	}
	for name, c := range map[string]struct {
		burst bool
		looks []look
	}{
		"one packet":                  {false, []look{{5, 0, 0, 0, false}, {900, 0, 0, 0, false}, {905, 1, 96, 0, true}}},
		"a burst":                     {true, []look{{150, 0, 0, 0, false}, {160, 2, 96, 0, false}, {165, 5, 96, 0, false}, {250, 5, 96, 0, false}, {265, 5, 96, 0, true}}},
		"it began before":             {true, []look{{5, 2, 96, 0, true}}},
		"what the server answers":     {true, []look{{150, 2, 96, 0, false}, {160, 3, 300, 0, true}}},
		"an answer":                   {true, []look{{150, 2, 96, 0, false}, {160, 2, 96, 1, false}, {165, 3, 96, 1, true}}},
		"too many of a steady stream": {true, []look{{150, 2, 96, 0, false}, {240, 20, 96, 0, false}, {330, backend.BurstLimit, 96, 0, true}}},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Unix(1000, 0)
			before := backend.Passage{Up: backend.Tally{Packets: 7, Bytes: 7000}, Down: backend.Tally{Packets: 3}}
			test := trial{Trial: backend.Trial{Burst: c.burst}, began: began, before: before}
			for _, l := range c.looks {
				passed := before
				passed.Up.Packets += l.up
				passed.Up.Bytes += l.up * l.length
				passed.Down.Packets += l.down
				if got := test.over(began.Add(time.Duration(l.ms)*time.Millisecond), passed); got != l.over {
					t.Fatalf("%+v: over is %v", l, got)
				}
			}
		})
	}
}
