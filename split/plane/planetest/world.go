// Package planetest is the world in which planes below the socket are tested. It is for tests only, and needs root.
//
//	       10.77.N.2, fd77:N::2
//	       p1 ------------- r1
//	client p2 ------------- r2 router r0 ------------- s0 server 198.51.100.1, 2001:db8:51::1
//	       p3 ------------- r3
package planetest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"heddle/path"
)

// Addresses of the server.
var (
	Server4 = netip.MustParseAddr("198.51.100.1")
	Server6 = netip.MustParseAddr("2001:db8:51::1")
)

// Ways is how many devices the client has, p1 to p3.
const Ways = 3

// World is a client, a router and a server, each a network namespace without a name: they go with the test.
type World struct {
	Client, Router, Server netns.NsHandle
}

// Own gives the client's address on way n, from 1, of the server's family.
func Own(n int, server netip.Addr) netip.Addr {
	if server.Is4() {
		return netip.MustParseAddr(fmt.Sprintf("10.77.%d.2", n))
	}
	return netip.MustParseAddr(fmt.Sprintf("fd77:%d::2", n))
}

// Via are the paths over all ways, of the kind if.
func Via() (all []path.Spec) {
	for n := range Ways {
		all = append(all, path.Spec{Name: fmt.Sprintf("w%d", n+1), Kind: "if", Arg: fmt.Sprintf("p%d", n+1)})
	}
	return all
}

// New lays the world. It skips the test where this process may not make network namespaces.
func New(t *testing.T) *World {
	t.Helper()
	w := &World{newNamespace(t), newNamespace(t), newNamespace(t)}
	for n := 1; n <= Ways; n++ {
		ours, theirs := fmt.Sprintf("p%d", n), fmt.Sprintf("r%d", n)
		w.Do(t, w.Client, func() error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = ours
			err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: theirs, PeerNamespace: netlink.NsFd(w.Router)})
			return errors.Join(err, configure(ours, fmt.Sprintf("10.77.%d.2/24", n), fmt.Sprintf("fd77:%d::2/64", n)))
		})
		w.Do(t, w.Router, func() error {
			return configure(theirs, fmt.Sprintf("10.77.%d.1/24", n), fmt.Sprintf("fd77:%d::1/64", n))
		})
		w.Do(t, w.Client, func() error { return w.defaults(n) })
	}
	w.Do(t, w.Router, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "r0"
		return errors.Join(
			netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "s0", PeerNamespace: netlink.NsFd(w.Server)}),
			configure("r0", "198.51.100.254/24", "2001:db8:51::fe/64"),
			Set("ipv4/ip_forward", "1"), Set("ipv6/conf/all/forwarding", "1"),
			// Checksums that a device would fill in are filled in here, so that the server sees what they are.
			checksumsInSoftware("r0"))
	})
	w.Do(t, w.Server, func() error {
		return errors.Join(configure("s0", "198.51.100.1/24", "2001:db8:51::1/64"), checksumsInSoftware("s0"),
			netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("198.51.100.254")}),
			netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("2001:db8:51::fe")}))
	})
	return w
}

// defaults gives way n its default routes again, as they are lost when a device goes down.
func (w *World) defaults(n int) error {
	link, err := netlink.LinkByName(fmt.Sprintf("p%d", n))
	if err != nil {
		return err
	}
	for _, gateway := range []string{fmt.Sprintf("10.77.%d.1", n), fmt.Sprintf("fd77:%d::1", n)} {
		r := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gateway), Priority: 100 * n}
		if err := netlink.RouteReplace(r); err != nil {
			return err
		}
	}
	return nil
}

// SetUp switches way n of the client on or off.
func (w *World) SetUp(t *testing.T, n int, up bool) {
	t.Helper()
	w.Do(t, w.Client, func() error {
		link, err := netlink.LinkByName(fmt.Sprintf("p%d", n))
		if err != nil {
			return err
		}
		if !up {
			return netlink.LinkSetDown(link)
		}
		return errors.Join(netlink.LinkSetUp(link), w.defaults(n))
	})
}

// Do runs f on a thread inside a namespace and fails the test where f does.
func (w *World) Do(t *testing.T, ns netns.NsHandle, f func() error) {
	t.Helper()
	if err := Inside(ns, f); err != nil {
		t.Fatal(err)
	}
}

// Inside runs f on a thread inside a namespace.
func Inside(ns netns.NsHandle, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := netns.Set(ns)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

func newNamespace(t *testing.T) netns.NsHandle {
	t.Helper()
	made := make(chan netns.NsHandle, 1)
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		ns, err := netns.New()
		if err == nil {
			var lo netlink.Link
			if lo, err = netlink.LinkByName("lo"); err == nil {
				err = errors.Join(netlink.LinkSetUp(lo), Set("ipv6/conf/all/accept_dad", "0"), Set("ipv6/conf/default/accept_dad", "0"),
					Set("ipv6/conf/all/keep_addr_on_down", "1"), Set("ipv6/conf/default/keep_addr_on_down", "1"))
			}
		}
		if err != nil {
			failed <- err
			return
		}
		made <- ns
	}()
	select {
	case ns := <-made:
		t.Cleanup(func() { ns.Close() })
		return ns
	case err := <-failed:
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
			t.Skipf("no right to make a network namespace (CAP_SYS_ADMIN): %v", err)
		}
		t.Fatal(err)
	}
	return netns.None()
}

func configure(device string, addresses ...string) error {
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
	return netlink.LinkSetUp(link)
}

// Set writes a setting below /proc/sys/net, of the calling thread's namespace.
func Set(key, value string) error { return os.WriteFile("/proc/sys/net/"+key, []byte(value), 0) }

// Get reads one.
func Get(key string) (string, error) {
	data, err := os.ReadFile("/proc/sys/net/" + key)
	return string(data), err
}

// checksumsInSoftware switches the checksum offload of a device off (ethtool -K DEVICE tx off).
func checksumsInSoftware(device string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const setTransmitChecksums = 0x17 // ETHTOOL_STXCSUM
	value := struct{ command, data uint32 }{setTransmitChecksums, 0}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:], device)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return fmt.Errorf("ethtool -K %s tx off: %w", device, errno)
	}
	return nil
}
