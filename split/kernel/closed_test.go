package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/bpf"
	"heddle/internal/errhint"
	"heddle/internal/nft"
	"heddle/internal/nstest"
	"heddle/internal/polltest"
	"heddle/path"
	"heddle/split"
	"heddle/split/backend"
	"heddle/split/backend/backendtest"
)

// machine is what a session may have changed on the client.
func machine(t *testing.T, w *backendtest.World) string {
	t.Helper()
	var b strings.Builder
	w.Client.Do(t, func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			qdiscs, err := netlink.QdiscList(l)
			if err != nil {
				return err
			}
			fmt.Fprintln(&b, l.Attrs().Name, l.Attrs().GSOMaxSegs, qdiscs)
			for _, h := range []bpf.Hook{bpf.In, bpf.Out} {
				filters, err := netlink.FilterList(l, h.Parent())
				if err == nil && len(filters) > 0 {
					fmt.Fprintln(&b, h, filters)
				}
			}
			value, err := nstest.Get("ipv4/conf/" + l.Attrs().Name + "/rp_filter")
			if err != nil {
				return err
			}
			fmt.Fprint(&b, value)
		}
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			rules, err := netlink.RuleList(family)
			if err != nil {
				return err
			}
			fmt.Fprintln(&b, rules)
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

// After a crash nothing leaves until somebody cleaned up, and cleaning leaves nothing behind.
func TestCrash(t *testing.T) {
	for name, c := range map[string]struct {
		unit   string
		server netip.Addr
	}{"time": {"5ms", backendtest.Server4}, "packets": {"5p", backendtest.Server4}, "IPv6": {"5ms", backendtest.Server6}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := backendtest.New(t)
			// Strict filtering refuses answers that come by another device than the best route has.
			w.Client.Do(t, func() error { return nstest.Set("ipv4/conf/all/rp_filter", "1") })
			before := machine(t, w)
			echo := w.NewEcho(t, c.server)
			o := options(t, echo.At, "uniform", c.unit)
			o.GSOOff = true
			r := open(t, w, o)
			tap := w.NewTap(t)
			c := w.NewSocket(t, netip.AddrPort{}, echo.At)
			if back := backendtest.InVain(c, echo.At, 1); back != 0 || len(tap.Packets()) != 0 {
				t.Error("a packet left before Run")
			}
			r.start()
			if back := backendtest.Talk(c, echo.At, 20, time.Millisecond); back != 20 {
				t.Errorf("%d of 20 came back", back)
			}
			r.halt()
			// A killed process has no time to withdraw the permission: it ends by itself.
			r.session.maps.permit(bpf.Monotonic() - 1)
			for _, d := range r.devices {
				if err := d.release(); err != nil { // tcx goes with the process
					t.Error(err)
				}
				d.first = nil
			}
			tap.Await(func(all []backendtest.Packet) bool { return len(all) >= 20 })
			tap.Reset()
			if back := backendtest.InVain(c, echo.At, 2); back != 0 || len(tap.Packets()) != 0 {
				t.Errorf("%d packets left after the crash", len(tap.Packets()))
			}
			if s := r.Status(); s.Refused < 3 {
				t.Errorf("%d were counted as refused", s.Refused)
			}
			w.Client.Do(t, func() error {
				lines, err := Clean(o.Dir, o.Session, false)
				if len(lines) < 5 {
					t.Errorf("taken back: %q", lines)
				}
				return err
			})
			if after := machine(t, w); after != before {
				t.Errorf("left behind:\n%s\nbefore:\n%s", after, before)
			}
			if back := backendtest.Talk(c, echo.At, 1, 0); back != 1 {
				t.Error("after cleaning nothing leaves")
			}
		})
	}
}

func TestReady(t *testing.T) {
	t.Parallel()
	w := backendtest.New(t)
	w.Ready(t, func(server netip.AddrPort, ready func()) {
		o := options(t, server, "uniform", "2ms")
		o.Ready = func(string) { ready() }
		open(t, w, o).start()
	})
}

func TestServerMoves(t *testing.T) {
	t.Parallel()
	w := backendtest.New(t)
	o := options(t, netip.AddrPort{}, "uniform", "2ms")
	w.ServerMoves(t, backendtest.Backend{
		Open: func(to string, name *backendtest.Name, ready func()) backendtest.Session {
			o.To, o.Lookup, o.LookAgain, o.Ready = to, name.Lookup, 10*time.Millisecond, func(string) { ready() }
			return open(t, w, o)
		},
		Clean: func() error {
			_, err := Clean(o.Dir, o.Session, false)
			return err
		},
		Moved: backend.ErrMoved,
	})
}

func TestTooFewPathsStopIt(t *testing.T) {
	t.Parallel()
	w := backendtest.New(t)
	echo := w.NewEcho(t, backendtest.Server4)
	r := open(t, w, options(t, echo.At, "uniform", "2ms")).start()
	c := w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{})
	backendtest.Talk(c, echo.At, 20, time.Millisecond)
	tap := w.NewTap(t)
	w.SetUp(t, 3, false)
	r.awaitUnused(2)
	used := func(all []backendtest.Packet) bool { by := backendtest.ByWay(all); return by[1] > 0 && by[2] > 0 }
	tap.Until(used, func() {
		if back := backendtest.Talk(c, echo.At, 30, time.Millisecond); back != 30 {
			t.Fatalf("%d of 30 came back by two paths of three", back)
		}
	})
	if by := ownAddresses(t, tap, echo.At); by[1] == 0 || by[2] == 0 || by[3] != 0 {
		t.Errorf("packets by way: %v", by)
	}
	w.SetUp(t, 1, false)
	r.await(func(s split.Status) bool { return s.State == "stopped" })
	tap.Reset()
	if back := backendtest.InVain(c, echo.At, 2); back != 0 || len(tap.Packets()) != 0 {
		t.Errorf("%d came back by too few paths", back)
	}
	w.SetUp(t, 1, true)
	r.awaitRunning()
	if back := backendtest.Talk(c, echo.At, 10, 0); back != 10 {
		t.Errorf("%d of 10 came back once there were two paths again", back)
	}
	ownAddresses(t, tap, echo.At)
}

// awaitUnused waits until a member is in no unit: a moment after the status says that it is down.
func (r *running) awaitUnused(member int) {
	r.t.Helper()
	r.await(func(split.Status) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return !r.planner.usable[member]
	})
}

// The router takes what comes by one way and answers nothing.
func TestSilentPathIsLeft(t *testing.T) {
	t.Parallel()
	w := backendtest.New(t)
	echo := w.NewEcho(t, backendtest.Server4)
	r := open(t, w, options(t, echo.At, "uniform", "2ms")).start()
	w.Mute(t, 2, true)
	c := w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{})
	for end := time.Now().Add(time.Minute); r.Status().Paths[1].State != string(path.Silent); {
		if time.Now().After(end) {
			t.Fatalf("%+v", r.Status())
		}
		_, _ = c.WriteToUDPAddrPort([]byte("hello"), echo.At)
		time.Sleep(2 * time.Millisecond)
	}
	r.awaitUnused(1)
	up := r.Status().Paths[1].Up.Packets
	const n = 100
	large := make([]byte, 1000) // small ones would be a burst of acknowledgements after a pause, all of which a trial takes
	for range n {
		_, _ = c.WriteToUDPAddrPort(large, echo.At)
		time.Sleep(time.Millisecond)
	}
	if now := r.Status().Paths[1].Up.Packets; now > up+1+n/4 {
		t.Errorf("%d packets of %d went by the silent path", now-up, n)
	}
	w.Mute(t, 2, false)
	for end := time.Now().Add(time.Minute); r.Status().Paths[1].State != string(path.Up); {
		if time.Now().After(end) {
			t.Fatalf("not tried again: %+v", r.Status())
		}
		_, _ = c.WriteToUDPAddrPort([]byte("hello"), echo.At)
		time.Sleep(2 * time.Millisecond)
	}
}

func TestStoppedSessionReturns(t *testing.T) {
	t.Parallel()
	w := backendtest.New(t)
	echo := w.NewEcho(t, backendtest.Server4)
	o := options(t, echo.At, "uniform", "2ms")
	o.Via = o.Via[:2]
	w.ReturnsToBoth(t, open(t, w, o).start().Status, echo.At)
}

// A device that no program watches is none to leave by, whoever sends there; and what is not for the server passes.
func TestOtherWaysOut(t *testing.T) {
	t.Parallel()
	w := backendtest.New(t)
	echo := w.NewEcho(t, backendtest.Server4)
	o := options(t, echo.At, "uniform", "2ms")
	o.Via = o.Via[:2]
	r := open(t, w, o).start()
	tap := w.NewTap(t)
	c := w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{})
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	controlErr := raw.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), "p3") })
	if err := errors.Join(err, controlErr); err != nil {
		t.Fatal(err)
	}
	_, _ = c.WriteToUDPAddrPort([]byte("to the server"), echo.At)
	if _, err := c.WriteToUDPAddrPort([]byte("another port"), netip.AddrPortFrom(echo.At.Addr(), 9)); err != nil {
		t.Fatal(err)
	}
	if !tap.Await(func(all []backendtest.Packet) bool { return len(all) > 0 }) {
		t.Error("a packet to another port did not leave")
	}
	for _, p := range tap.Packets() {
		if p.To == echo.At || p.From.Addr() != backendtest.Own(3, echo.At.Addr()) {
			t.Errorf("%+v left", p)
		}
	}
	s := r.Status()
	if s.Refused != 1 || len(s.Warnings) == 0 {
		r.await(func(s split.Status) bool { return s.Refused == 1 && len(s.Warnings) > 0 })
	}
}

// Of a datagram in fragments all but the first have no port.
func TestFragmentsDoNotLeave(t *testing.T) {
	for name, address := range servers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := backendtest.New(t)
			echo := w.NewEcho(t, address)
			r := open(t, w, options(t, echo.At, "uniform", "2ms")).start()
			tap := w.NewTap(t)
			c := w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{})
			_, _ = c.WriteToUDPAddrPort(make([]byte, 4000), echo.At)
			if back := backendtest.Talk(c, echo.At, 1, 0); back != 1 {
				t.Error("a whole datagram did not come back")
			}
			r.await(func(s split.Status) bool { return s.Refused > 0 && len(s.Warnings) == 1 })
			tap.Await(func(all []backendtest.Packet) bool { return len(all) > 0 }) // the capture has its own pace
			if all := tap.Packets(); len(all) != 1 {
				t.Errorf("%+v left", all)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	server := netip.AddrPortFrom(backendtest.Server4, backendtest.Port)
	for name, c := range map[string]struct {
		change func(*Options)
		why    string
	}{
		"packets":  {func(o *Options) { o.Schedule.Every = every(t, "50p") }, "runs of segments"},
		"kind":     {func(o *Options) { o.Via[0] = path.Spec{Name: "w1", Kind: "ports", Arg: "p1"} }, "of the kind ports"},
		"none":     {func(o *Options) { o.Via = nil }, "no path"},
		"minimum":  {func(o *Options) { o.MinPaths = 4 }, "3 paths were given"},
		"schedule": {func(o *Options) { o.Schedule.Name = "moon" }, "no schedule"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, server, "uniform", "100ms")
			c.change(&o)
			p, err := Open(t.Context(), o)
			if err == nil {
				p.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.why) || errhint.Of(err) == "" {
				t.Errorf("%v", err)
			}
		})
	}
}

// Without the rights the error says so, and nothing was changed.
func TestNoRights(t *testing.T) {
	err := refused(fmt.Errorf("map create: %w", unix.EPERM))
	var e *path.Error
	if !errors.Is(err, ErrRefused) || !errors.As(err, &e) || !strings.Contains(e.Hint, "CAP_BPF") {
		t.Errorf("%v", err)
	}
}

// A guard that somebody removes is made again.
func TestGuardIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := backendtest.New(t)
	echo := w.NewEcho(t, backendtest.Server4)
	r := open(t, w, options(t, echo.At, "uniform", "2ms")).start()
	table := nft.Inet(r.guard.Table)
	w.Client.Do(t, func() error { return nft.Remove(table) })
	w.AwaitGuard(t, table)
}

// Programs that somebody takes off a device are attached again: the kernel reports it.
func TestProgramsAreAttachedAgain(t *testing.T) {
	t.Parallel()
	w := backendtest.New(t)
	echo := w.NewEcho(t, backendtest.Server4)
	r := open(t, w, options(t, echo.At, "uniform", "2ms")).start()
	index := r.members.Hops()[0].Index
	w.Client.Do(t, func() error {
		return netlink.QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}})
	})
	r.await(func(s split.Status) bool {
		return slices.ContainsFunc(s.Warnings, func(text string) bool { return strings.Contains(text, "is attached again") })
	})
	polltest.Until(t, func() error {
		return w.Client.Run(func() error {
			if has, err := bpf.HasClsact(index); err != nil || !has {
				return fmt.Errorf("the device has a program: %v, %w", has, err)
			}
			return nil
		})
	})
}
