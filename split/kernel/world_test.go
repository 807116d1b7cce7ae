package kernel

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/bpf"
	"heddle/path"
	"heddle/schedule"
	"heddle/split"
	"heddle/split/backend"
	"heddle/split/backend/backendtest"
)

// running is a backend in the client of a test's world.
type running struct {
	*Backend
	t    *testing.T
	w    *backendtest.World
	stop context.CancelFunc
	done chan error
}

func every(t *testing.T, text string) schedule.Every {
	t.Helper()
	e, err := schedule.ParseEvery(text)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func options(t *testing.T, server netip.AddrPort, name, unit string) Options {
	// A busy machine may be late to renew the permission, and then packets are dropped, as they shall be.
	return Options{patience: time.Minute, verifyEvery: time.Hour, Options: backend.Options{Server: server, Dir: t.TempDir(), Options: split.Options{Session: "test", To: server.String(),
		Via: backendtest.Via(), Schedule: schedule.Config{Name: name, Every: every(t, unit)}, Log: slog.New(slog.DiscardHandler)}}}
}

// open opens the backend in the client; a kernel that has no such programs skips the test.
func open(t *testing.T, w *backendtest.World, o Options) *running {
	t.Helper()
	r := &running{t: t, w: w}
	err := w.Client.Run(func() (err error) {
		r.Backend, err = Open(t.Context(), o)
		return err
	})
	if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EPERM) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	return r
}

// start runs the backend until the test ends, and waits until packets may leave.
func (r *running) start() *running {
	r.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r.stop, r.done = stop, make(chan error, 1)
	go func() { r.done <- r.w.Client.Run(func() error { return r.Run(ctx) }) }()
	r.awaitRunning()
	return r
}

// awaitRunning waits until packets may leave.
func (r *running) awaitRunning() {
	r.t.Helper()
	r.await(func(s split.Status) bool { return s.State == "running" })
}

func (r *running) await(wanted func(split.Status) bool) split.Status {
	r.t.Helper()
	for end := time.Now().Add(backendtest.Patience); ; {
		s := r.Status()
		if wanted(s) {
			return s
		}
		if time.Now().After(end) {
			r.t.Fatalf("the status is %+v", s)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// halt ends Run, as the death of the process would, and leaves all else.
func (r *running) halt() {
	if r.stop != nil {
		r.stop()
		if err := <-r.done; err != nil {
			r.t.Error(err)
		}
		r.stop = nil
	}
}

// keepPlan leaves the plan as it is drawn. Else a path by which nothing comes back, or late on a busy machine, is left out.
func (r *running) keepPlan() {
	r.halt()
	r.session.maps.permit(bpf.Monotonic() + uint64(10*time.Minute))
}

func (r *running) close() {
	r.halt()
	if err := r.w.Client.Run(r.Close); err != nil {
		r.t.Error(err)
	}
}

// ownAddresses fails where a packet to the server is on a way with another way's address. It gives the packets by way.
func ownAddresses(t *testing.T, tap *backendtest.Tap, server netip.AddrPort) []int {
	t.Helper()
	all := slices.DeleteFunc(tap.Packets(), func(p backendtest.Packet) bool { return p.To != server })
	for _, p := range all {
		if own := backendtest.Own(p.Way, server.Addr()); p.From.Addr() != own {
			t.Errorf("a packet on way %d comes from %v, not from %v", p.Way, p.From, own)
		}
	}
	return backendtest.ByWay(all)
}

func servers() map[string]netip.Addr {
	return map[string]netip.Addr{"IPv4": backendtest.Server4, "IPv6": backendtest.Server6}
}

func TestEachPathCarriesItsOwn(t *testing.T) {
	for name, address := range servers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := backendtest.New(t)
			echo := w.NewEcho(t, address)
			r := open(t, w, options(t, echo.At, "round-robin", "3ms")).start()
			tap := w.NewTap(t)
			sockets := map[string]*net.UDPConn{
				"free":      w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{}),
				"connected": w.NewSocket(t, netip.AddrPort{}, echo.At),
				"bound":     w.NewSocket(t, netip.AddrPortFrom(backendtest.Own(2, address), 0), netip.AddrPort{}),
				"both":      w.NewSocket(t, netip.AddrPortFrom(backendtest.Own(3, address), 0), echo.At),
			}
			const n = 60
			sent := 0
			talk := func() {
				for kind, c := range sockets {
					if back := backendtest.Talk(c, echo.At, n, time.Millisecond); back != n {
						t.Fatalf("%s socket: %d of %d datagrams came back", kind, back, n)
					}
					sent += n
				}
			}
			talk()
			tap.Until(func(all []backendtest.Packet) bool { return slices.Min(backendtest.ByWay(all)[1:]) >= n/3 }, talk)
			by := ownAddresses(t, tap, echo.At)
			total := 0
			for way := 1; way <= backendtest.Ways; way++ {
				total += by[way]
				if by[way] < n/3 {
					t.Errorf("way %d carried only %d packets", way, by[way])
				}
			}
			s := r.await(func(s split.Status) bool { return s.Paths[0].State == string(path.Up) })
			for i, p := range s.Paths {
				if int(p.Up.Packets) != by[i+1] || p.Down.Packets != p.Up.Packets || p.Up.Bytes == 0 || p.Up.Bytes != p.Down.Bytes {
					t.Errorf("path %s counts %+v up, %+v down, the router %d", p.Name, p.Up, p.Down, by[i+1])
				}
			}
			if total != sent || s.Refused != 0 || s.Switches == 0 {
				t.Errorf("%d packets of %d; status %+v", total, sent, s)
			}
		})
	}
}

// Two addresses of one device are two paths, though one observer.
func TestSourceAddressesAsPaths(t *testing.T) {
	t.Parallel()
	w := backendtest.New(t)
	w.Client.Do(t, func() error {
		link, err := netlink.LinkByName("p1")
		if err != nil {
			return err
		}
		second, err := netlink.ParseAddr("10.77.1.9/24")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(link, second)
	})
	echo := w.NewEcho(t, backendtest.Server4)
	o := options(t, echo.At, "round-robin", "2ms")
	o.Via = []path.Spec{{Name: "a", Kind: "src", Arg: "10.77.1.2"}, {Name: "b", Kind: "src", Arg: "10.77.1.9"}}
	r := open(t, w, o).start()
	tap := w.NewTap(t)
	c, by, sent := w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{}), map[string]int{}, 0
	tap.Until(func(all []backendtest.Packet) bool {
		clear(by)
		for _, p := range all {
			by[p.From.Addr().String()]++
		}
		return by["10.77.1.2"] >= 10 && by["10.77.1.9"] >= 10
	}, func() {
		sent += 20
		if back := backendtest.Talk(c, echo.At, 20, time.Millisecond); back != 20 {
			t.Fatalf("%d of 20 came back", back)
		}
	})
	if a, b := by["10.77.1.2"], by["10.77.1.9"]; a < 10 || b < 10 || a+b != sent {
		t.Errorf("packets by source, of %d: %v", sent, by)
	}
	for _, p := range tap.Packets() {
		if p.Way != 1 {
			t.Errorf("%+v left by another device", p)
		}
	}
	if s := r.Status(); len(s.Warnings) != 1 {
		t.Errorf("no warning that one observer sees both: %v", s.Warnings)
	}
}
