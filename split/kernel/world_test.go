package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/path"
	"heddle/schedule"
	"heddle/split"
	"heddle/split/plane"
	"heddle/split/plane/planetest"
)

// running is a plane in the client of a test's world.
type running struct {
	*Plane
	t    *testing.T
	w    *planetest.World
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
	return Options{Options: plane.Options{Server: server, Dir: t.TempDir(), Options: split.Options{Session: "test", To: server.String(),
		Via: planetest.Via(), Schedule: schedule.Config{Name: name, Every: every(t, unit)}, Log: slog.New(slog.DiscardHandler)}}}
}

// open opens the plane in the client; a kernel that has no such programs skips the test.
func open(t *testing.T, w *planetest.World, o Options) *running {
	t.Helper()
	r := &running{t: t, w: w}
	err := w.Client.Run(func() (err error) {
		r.Plane, err = Open(t.Context(), o)
		return err
	})
	if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EPERM) {
		t.Skip("typed skip:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	return r
}

// start runs the plane until the test ends, and waits until packets may leave.
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
	for end := time.Now().Add(10 * time.Second); ; {
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

func (r *running) close() {
	r.halt()
	if err := r.w.Client.Run(r.Close); err != nil {
		r.t.Error(err)
	}
}

// talk sends n datagrams by a socket, each once the one before came back, or after a moment; it gives how many came back.
func talk(t *testing.T, c *net.UDPConn, server netip.AddrPort, n int, pause time.Duration) (back int) {
	t.Helper()
	buffer := make([]byte, 2048)
	for i := range n {
		text := fmt.Sprintf("datagram %d of %d %p", i, n, c)
		var err error
		if c.RemoteAddr() != nil {
			_, err = c.Write([]byte(text))
		} else {
			_, err = c.WriteToUDPAddrPort([]byte(text), server)
		}
		if err != nil {
			continue
		}
		_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		got, from, err := c.ReadFromUDPAddrPort(buffer)
		if err == nil && string(buffer[:got]) == text && from.Addr().Unmap() == server.Addr() && from.Port() == server.Port() {
			back++
		}
		time.Sleep(pause)
	}
	return back
}

// ownAddresses fails where a packet to the server is on a way with another way's address. It gives the packets by way.
func ownAddresses(t *testing.T, tap *planetest.Tap, server netip.AddrPort) (by [planetest.Ways + 1]int) {
	t.Helper()
	for _, p := range tap.Packets() {
		if p.To != server {
			continue
		}
		by[p.Way]++
		if own := planetest.Own(p.Way, server.Addr()); p.From.Addr() != own {
			t.Errorf("a packet on way %d comes from %v, not from %v", p.Way, p.From, own)
		}
	}
	return by
}

func servers() map[string]netip.Addr {
	return map[string]netip.Addr{"IPv4": planetest.Server4, "IPv6": planetest.Server6}
}

func TestEachPathCarriesItsOwn(t *testing.T) {
	for name, address := range servers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := planetest.New(t)
			echo := w.NewEcho(t, address)
			r := open(t, w, options(t, echo.At, "round-robin", "3ms")).start()
			tap := w.NewTap(t)
			sockets := map[string]*net.UDPConn{
				"free":      w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{}),
				"connected": w.NewSocket(t, netip.AddrPort{}, echo.At),
				"bound":     w.NewSocket(t, netip.AddrPortFrom(planetest.Own(2, address), 0), netip.AddrPort{}),
				"both":      w.NewSocket(t, netip.AddrPortFrom(planetest.Own(3, address), 0), echo.At),
			}
			const n = 60
			for kind, c := range sockets {
				if back := talk(t, c, echo.At, n, time.Millisecond); back != n {
					t.Errorf("%s socket: %d of %d datagrams came back", kind, back, n)
				}
			}
			by := ownAddresses(t, tap, echo.At)
			total := 0
			for way := 1; way <= planetest.Ways; way++ {
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
			if total != len(sockets)*n || s.Refused != 0 || s.Switches == 0 {
				t.Errorf("%d packets of %d; status %+v", total, len(sockets)*n, s)
			}
		})
	}
}

// Two addresses of one device are two paths, though one observer.
func TestSourceAddressesAsPaths(t *testing.T) {
	t.Parallel()
	w := planetest.New(t)
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
	echo := w.NewEcho(t, planetest.Server4)
	o := options(t, echo.At, "round-robin", "2ms")
	o.Via = []path.Spec{{Name: "a", Kind: "src", Arg: "10.77.1.2"}, {Name: "b", Kind: "src", Arg: "10.77.1.9"}}
	r := open(t, w, o).start()
	tap := w.NewTap(t)
	if back := talk(t, w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{}), echo.At, 40, time.Millisecond); back != 40 {
		t.Errorf("%d of 40 came back", back)
	}
	by := map[netip.Addr]int{}
	for _, p := range tap.Packets() {
		by[p.From.Addr()]++
		if p.Way != 1 {
			t.Errorf("%+v left by another device", p)
		}
	}
	if a, b := by[netip.MustParseAddr("10.77.1.2")], by[netip.MustParseAddr("10.77.1.9")]; a < 10 || b < 10 || a+b != 40 {
		t.Errorf("packets by source: %v", by)
	}
	if s := r.Status(); len(s.Warnings) != 1 {
		t.Errorf("no warning that one observer sees both: %v", s.Warnings)
	}
}
