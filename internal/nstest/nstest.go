// Package nstest makes unnamed network namespaces for tests. They end with the test. Do not import it outside tests, and not
// for links with a delay or a rate, or hosts with their own files: package lab does that.
package nstest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	inside "heddle/internal/netns"
)

type Namespace struct{ handle netns.NsHandle }

// New makes a namespace that lasts until the test ends. Its loopback is up, and IPv6 addresses are usable at once. If this
// process may not make one, New skips the test.
func New(t testing.TB) Namespace {
	t.Helper()
	var n Namespace
	err := inside.OnThread(func() (err error) {
		n.handle, err = netns.New()
		return err
	}, func() error {
		return errors.Join(Address("lo"), Set("ipv6/conf/all/accept_dad", "0"), Set("ipv6/conf/default/accept_dad", "0"))
	})
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		t.Skipf("no right to make a network namespace (CAP_SYS_ADMIN): %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.handle.Close() })
	return n
}

// Run runs f on a thread inside the namespace. Sockets that f opens stay there; goroutines that it starts do not run there.
func (n Namespace) Run(f func() error) error { return inside.In(n.handle, f) }

// Do is [Namespace.Run], and fails the test if f fails.
func (n Namespace) Do(t testing.TB, f func() error) {
	t.Helper()
	if err := n.Run(f); err != nil {
		t.Fatal(err)
	}
}

// Enter moves the test's goroutine into the namespace until the test ends, and so the programs that it starts.
func (n Namespace) Enter(t testing.TB) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, so no other test gets it
	before, err := netns.Get()
	if err == nil {
		err = netns.Set(n.handle)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(netns.Set(before), before.Close()); err != nil {
			t.Error(err)
		}
	})
}

type End struct {
	In     Namespace
	Device string
	Addrs  []string // with the prefix length, as 10.0.0.1/24
}

// Link joins two namespaces by a pair of veth devices, and waits until they carry packets.
func Link(t testing.TB, a, b End) {
	t.Helper()
	a.In.Do(t, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: a.Device}, PeerName: b.Device, PeerNamespace: netlink.NsFd(b.In.handle)})
	})
	for _, end := range []End{a, b} {
		end.In.Do(t, func() error { return Address(end.Device, end.Addrs...) })
	}
	for _, end := range []End{a, b} {
		end.In.Do(t, func() error { return errors.Join(AwaitCarrier(end.Device), awaitAddresses(end.Addrs)) })
	}
}

// awaitAddresses waits until the calling thread's namespace accepts packets to the addresses, which IPv6 delays a moment.
func awaitAddresses(addresses []string) error {
	for _, text := range addresses {
		a, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		to := &net.IPNet{IP: a.IP, Mask: net.CIDRMask(8*len(a.IP), 8*len(a.IP))}
		for end := time.Now().Add(time.Minute); a.IP.To4() == nil; time.Sleep(time.Millisecond) {
			local, err := netlink.RouteListFiltered(unix.AF_INET6, &netlink.Route{Table: unix.RT_TABLE_LOCAL, Dst: to}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_DST)
			if err != nil {
				return err
			}
			if len(local) > 0 {
				break
			}
			if time.Now().After(end) {
				return fmt.Errorf("%s is no address for long", text)
			}
		}
	}
	return nil
}

// AwaitCarrier waits until a device of the calling thread's namespace carries packets.
func AwaitCarrier(device string) error { return inside.AwaitCarrier(&netlink.Handle{}, device) }

// Address adds addresses to a device of the calling thread's namespace, and brings it up. Those of the loopback device are in use when it
// returns.
func Address(device string, addresses ...string) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	for _, text := range addresses {
		a, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		if a.IP.To4() == nil {
			a.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, a); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetUp(link); err != nil || link.Attrs().Flags&net.FlagLoopback == 0 {
		return err
	}
	return awaitAddresses(addresses)
}

// Route adds a route to the calling thread's namespace: to a network, or everywhere if to is empty; by a device, unless device
// is empty.
func Route(to, device string, r netlink.Route) (err error) {
	if to != "" {
		if r.Dst, err = netlink.ParseIPNet(to); err != nil {
			return err
		}
	}
	if device != "" {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		r.LinkIndex = link.Attrs().Index
	}
	return netlink.RouteAdd(&r)
}

// SetUp brings a device of the calling thread's namespace up or down.
func SetUp(device string, up bool) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	if up {
		return netlink.LinkSetUp(link)
	}
	return netlink.LinkSetDown(link)
}

// Resize sets how large packets on a device of the calling thread's namespace may be.
func Resize(device string, bytes int) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	return netlink.LinkSetMTU(link, bytes)
}

// Set writes a setting below /proc/sys/net in the calling thread's namespace.
func Set(key, value string) error { return inside.Configure(inside.Setting{key, value}) }

// Get reads a setting as [Set] writes it.
func Get(key string) (string, error) {
	data, err := os.ReadFile("/proc/sys/net/" + key)
	return string(data), err
}
