package kernel

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/split/backend/backendtest"
)

const segment = 1000

// sendRuns sends runs of segments (UDP_SEGMENT) of so many bytes each; it gives the number of datagrams.
func sendRuns(t *testing.T, c *net.UDPConn, server netip.AddrPort, runs, segments int, pause time.Duration) int {
	t.Helper()
	for range runs {
		if _, err := c.WriteToUDPAddrPort(make([]byte, segments*segment), server); err != nil {
			t.Fatal(err)
		}
		time.Sleep(pause)
	}
	return runs * segments
}

// A run goes by one path as a whole, with that path's address, and its checksums are right at the server.
func TestRunsOfSegments(t *testing.T) {
	for name, address := range servers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := backendtest.New(t)
			echo := w.NewEcho(t, address)
			r := open(t, w, options(t, echo.At, "round-robin", "3ms")).start()
			tap := w.NewTap(t)
			c := w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{})
			setSegment(t, c, segment)
			sent := 0
			tap.Until(func(all []backendtest.Packet) bool { return sent > 0 && slices.Min(backendtest.ByWay(all)[1:]) > 0 }, func() {
				sent += sendRuns(t, c, echo.At, 40, 16, time.Millisecond)
				echo.Await(t, sent)
			})
			ownAddresses(t, tap, echo.At)
			if !slices.ContainsFunc(tap.Packets(), func(p backendtest.Packet) bool { return p.Length > segment }) {
				t.Error("no run reached the router whole: the test tests nothing")
			}
			s := r.Status()
			total := uint64(0)
			for _, p := range s.Paths {
				total += p.Up.Packets
				if p.Up.Packets == 0 {
					t.Errorf("path %s carried nothing", p.Name)
				}
			}
			if total != uint64(sent) {
				t.Errorf("%d packets counted of %d", total, sent)
			}
			back := make([]byte, 2*segment)
			for i := range sent {
				_ = c.SetReadDeadline(time.Now().Add(backendtest.Patience))
				if n, err := c.Read(back); err != nil || n != segment {
					t.Fatalf("answer %d: %d bytes, %v", i, n, err)
				}
			}
		})
	}
}

// With runs taken apart first, batches are exact, whoever sends and however.
func TestBatchesOfPackets(t *testing.T) {
	for name, address := range servers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := backendtest.New(t)
			echo := w.NewEcho(t, address)
			const batch = 7
			o := options(t, echo.At, "round-robin", "7p")
			o.GSOOff = true
			r := open(t, w, o).start()
			r.keepPlan()
			tap := w.NewTap(t)
			c := w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{})
			setSegment(t, c, segment)
			onOneProcessor(t) // each has a queue of its own for what goes through the pair of devices
			sent := sendRuns(t, c, echo.At, 30, 16, time.Millisecond)
			sent += backendtest.Talk(w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{}), echo.At, 20, 0)
			if !tap.Await(func(all []backendtest.Packet) bool { return len(all) >= sent }) {
				t.Fatalf("%d packets of %d; %+v", len(tap.Packets()), sent, r.Status())
			}
			ownAddresses(t, tap, echo.At)
			for i, p := range tap.Packets() {
				if p.Length > segment {
					t.Fatalf("packet %d is a run of %d bytes", i, p.Length)
				}
				if want := i/batch%backendtest.Ways + 1; p.Way != want {
					t.Fatalf("packet %d went by way %d, not %d", i, p.Way, want)
				}
			}
			echo.Await(t, sent)
		})
	}
}

// onOneProcessor keeps the test's goroutine on one processor until the test ends.
func onOneProcessor(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	var may, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		t.Fatal(err)
	}
	for n := 0; one.Count() == 0; n++ {
		if may.IsSet(n) {
			one.Set(n)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
}

// A TUN device has no link header. Packets from it to the others and from the others to it must get and lose one.
func TestDevicesWithoutLinkHeader(t *testing.T) {
	t.Parallel()
	w := backendtest.New(t)
	echo := w.NewEcho(t, backendtest.Server4)
	fd := newTUN(t, w)
	for _, first := range []string{"the best route is by TUN", "by Ethernet"} {
		o := options(t, echo.At, "round-robin", "2ms")
		o.Session = "tun"
		o.Via = o.Via[:2]
		o.Via[1].Arg = "tun9"
		if first == "by Ethernet" {
			w.Client.Do(t, func() error { return defaultBy("tun9", 500) })
		}
		r := open(t, w, o).start()
		r.keepPlan() // no answer comes by TUN
		tap := w.NewTap(t)
		c, inRuns := w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{}), w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{})
		setSegment(t, inRuns, segment)
		before := int(echo.Received.Load())
		sent, byTUN := datagrams{}, datagrams{}
		for end := time.Now().Add(backendtest.Patience); !byTUN.someOf(sent); {
			if time.Now().After(end) {
				t.Fatalf("%s: of %+v went by TUN %+v; %+v", first, sent, byTUN, r.Status())
			}
			for range 30 {
				_, _ = c.WriteToUDPAddrPort([]byte("hello"), echo.At)
				time.Sleep(time.Millisecond)
			}
			sent.single += 30
			// Runs for a device that computes no checksums are marked otherwise, and must arrive nevertheless.
			sent.inRuns += sendRuns(t, inRuns, echo.At, 20, 3, time.Millisecond)
			byTUN.read(t, fd)
		}
		echo.Await(t, before+sent.single-byTUN.single+sent.inRuns-byTUN.inRuns)
		ownAddresses(t, tap, echo.At)
		byOther := 0
		for _, p := range tap.Packets() {
			if p.Length == 5 {
				byOther++
			}
		}
		if byOther != sent.single-byTUN.single {
			t.Errorf("%s: of %+v went by TUN %+v, and %d by the other; %+v", first, sent, byTUN, byOther, r.Status())
		}
		r.close()
	}
}

// datagrams are those sent each by itself, and in runs.
type datagrams struct{ single, inRuns int }

// someOf reports whether these are some of both kinds, and not all.
func (d datagrams) someOf(all datagrams) bool {
	return d.single > 0 && d.single < all.single && d.inRuns > 0 && d.inRuns < all.inRuns
}

// read counts what left by a TUN device since the last time.
func (d *datagrams) read(t *testing.T, fd int) {
	t.Helper()
	for buffer := make([]byte, 1<<16); ; {
		n, err := unix.Read(fd, buffer)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return // nothing more
		}
		if n < 33 || buffer[9] != unix.IPPROTO_UDP {
			continue
		}
		if n == 33 {
			d.single++
		} else {
			d.inRuns++
		}
		if from := netip.AddrFrom4([4]byte(buffer[12:])); from.String() != "10.79.0.2" {
			t.Errorf("a packet by TUN comes from %v", from)
		}
	}
}

// newTUN gives the client a TUN device by which its best route goes.
func newTUN(t *testing.T, w *backendtest.World) (fd int) {
	t.Helper()
	w.Client.Do(t, func() (err error) {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		request, err := unix.NewIfreq("tun9")
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			return err
		}
		link, err := netlink.LinkByName("tun9")
		if err != nil {
			return err
		}
		address, err := netlink.ParseAddr("10.79.0.2/24")
		if err != nil {
			return err
		}
		return errors.Join(netlink.AddrAdd(link, address), netlink.LinkSetUp(link), defaultBy("tun9", 1))
	})
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// defaultBy makes a device's default route the only one it has.
func defaultBy(device string, metric int) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	old, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.IPv4(10, 79, 0, 1)}, netlink.RT_FILTER_OIF|netlink.RT_FILTER_GW)
	if err != nil {
		return err
	}
	for _, r := range old {
		if err := netlink.RouteDel(&r); err != nil {
			return err
		}
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.IPv4(10, 79, 0, 1), Priority: metric})
}

// setSegment makes a socket hand each write to the kernel as a run of datagrams of so many bytes (UDP_SEGMENT).
func setSegment(t *testing.T, c *net.UDPConn, size int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err == nil {
		controlErr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, size) })
		err = errors.Join(err, controlErr)
	}
	if errors.Is(err, unix.ENOPROTOOPT) {
		t.Skipf("the kernel has no UDP_SEGMENT: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}
