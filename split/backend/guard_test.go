package backend

import (
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"heddle/internal/journal"
	"heddle/internal/nstest"
	"heddle/internal/polltest"
	"heddle/path"
	"heddle/split/backend/backendtest"
)

var guardsOnly = journal.Kinds{"guard": func() journal.Change { return &Guard{} }}

// exits are the client's devices, each with its own address.
func exits(t *testing.T, w *backendtest.World, server netip.Addr) (all []Exit) {
	t.Helper()
	w.Client.Do(t, func() error {
		for n, s := range backendtest.Via() {
			link, err := netlink.LinkByName(s.Arg)
			if err != nil {
				return err
			}
			all = append(all, Exit{Index: link.Attrs().Index, Source: backendtest.Own(n+1, server)})
		}
		return nil
	})
	return all
}

// leaves reports whether a datagram comes to the server and back. One that the guard drops fails at once.
func leaves(c *net.UDPConn, server netip.AddrPort) bool {
	return backendtest.Talk(c, server, 1, 0) == 1
}

// The kernel itself closes the exits of a process that does not renew its permission.
func TestPermissionExpires(t *testing.T) {
	for name, address := range map[string]netip.Addr{"IPv4": backendtest.Server4, "IPv6": backendtest.Server6} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := backendtest.New(t)
			echo := w.NewEcho(t, address)
			c := w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{})
			if !leaves(c, echo.At) {
				t.Fatal("nothing leaves even without a guard")
			}
			g := &Guard{Table: "heddle_test", Server: echo.At, Exits: exits(t, w, address), Lease: time.Hour}
			check := func(what string, change func() error, want bool) {
				t.Helper()
				w.Client.Do(t, change)
				if got := leaves(c, echo.At); got != want {
					t.Errorf("%s: a datagram leaves: %v", what, got)
				}
			}
			check("no permission", g.Apply, false)
			check("permission", g.Permit, true)
			check("permission renewed", g.Permit, true)
			check("table replaced", g.Apply, true)
			check("permission withdrawn", g.Withdraw, false)
			check("withdrawn again", g.Withdraw, false)
			check("table replaced without permission", g.Apply, false)
			g.Lease = time.Second
			polltest.Again(t, func(int) error { // a busy machine may let the second pass before
				w.Client.Do(t, g.Permit)
				if !leaves(c, echo.At) {
					return errors.New("with a permission for a second nothing leaves")
				}
				return nil
			})
			for end := time.Now().Add(backendtest.Patience); leaves(c, echo.At); {
				if time.Now().After(end) {
					t.Fatal("the permission does not expire")
				}
			}
			g.Lease = time.Hour
			check("permission again", g.Permit, true)
			g.Forbid(netip.AddrPortFrom(address, 9)) // which the table does not say before the next Apply
			var seen Passed
			w.Client.Do(t, func() (err error) { seen, err = g.Read(); return err })
			if seen.Refused.Packets == 0 || seen.Down != nil {
				t.Errorf("counted %+v", seen)
			}
		})
	}
}

// A session that starts again finds the guard of the crash, and there is no moment without one.
func TestGuardStaysFromCrashToStart(t *testing.T) {
	w := backendtest.New(t)
	echo := w.NewEcho(t, backendtest.Server4)
	c := w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{})
	dir := t.TempDir()
	file := filepath.Join(dir, "s.test.json")
	expect := func(when string, want bool) {
		t.Helper()
		if got := leaves(c, echo.At); got != want {
			t.Errorf("%s: a datagram leaves: %v", when, got)
		}
	}
	begin := func(wantLeft bool) (j *journal.Journal, g *Guard) {
		t.Helper()
		g = &Guard{Table: "heddle_test", Server: echo.At}
		w.Client.Do(t, func() (err error) {
			if j, err = OpenJournal(dir, "s", "test", guardsOnly); err != nil {
				return err
			}
			left, err := Begin(j, g)
			if left != wantLeft {
				t.Errorf("a crash left a guard: %v", left)
			}
			return err
		})
		return j, g
	}
	clean := func(keep bool) {
		t.Helper()
		w.Client.Do(t, func() error {
			_, err := Clean(dir, "s", "test", guardsOnly, keep)
			return err
		})
	}
	expect("without a guard", true)
	begin(false)
	expect("begun", false)
	clean(true)
	expect("cleaned before the next start", false)
	j, g := begin(true)
	w.Client.Do(t, func() error { return End(j, g, true) })
	expect("after a start that failed", false)
	j, g = begin(true)
	w.Client.Do(t, func() error { return End(j, g, false) })
	expect("ended", true)
	begin(false)
	clean(false)
	expect("cleaned", true)
	if left, err := filepath.Glob(file); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// A watch hears what somebody else changes, and nothing where nobody does.
func TestWatch(t *testing.T) {
	w := backendtest.New(t)
	var watch *path.Watch
	w.Client.Do(t, func() (err error) { watch, err = path.NewWatch(); return err })
	defer watch.Close()
	quiet := func() {
		t.Helper()
		for end := time.Now().Add(backendtest.Patience); watch.Changed(); {
			if time.Now().After(end) {
				t.Fatal("it hears something all the time")
			}
		}
	}
	quiet()
	for what, change := range map[string]func() error{
		"route": func() error {
			return nstest.Route(backendtest.Server4.String()+"/32", "", netlink.Route{Gw: net.IPv4(10, 77, 1, 1)})
		},
		"rule": func() error {
			r := netlink.NewRule()
			r.Priority, r.Table, r.Family = 7, 254, netlink.FAMILY_V6
			return netlink.RuleAdd(r)
		},
		"address": func() error {
			link, err := netlink.LinkByName("p3")
			if err != nil {
				return err
			}
			return netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 99, 0, 1), Mask: net.CIDRMask(24, 32)}})
		},
		"setting": func() error { return nstest.Set("ipv4/conf/p1/rp_filter", "2") },
		"device":  func() error { w.SetUp(t, 2, false); return nil },
	} {
		w.Client.Do(t, change)
		if !watch.Changed() {
			t.Errorf("%s: not heard", what)
		}
		quiet()
	}
	if err := watch.Close(); err != nil {
		t.Error(err)
	}
}
