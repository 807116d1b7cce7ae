package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/split/backend/backendtest"
)

// What one path does not carry passes by none, in either direction. The kernel would send it by the others, and a program
// that searches for the largest size would find theirs.
func TestTheNarrowestPathLimitsAll(t *testing.T) {
	const mtu = 1300
	for name, address := range servers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := backendtest.New(t)
			for device, in := range map[string]interface {
				Do(testing.TB, func() error)
			}{"p3": w.Client, "r3": w.Router} {
				in.Do(t, func() error {
					link, err := netlink.LinkByName(device)
					if err == nil {
						err = netlink.LinkSetMTU(link, mtu)
					}
					return err
				})
			}
			fits := mtu - 28
			if address.Is6() {
				fits = mtu - 48
			}
			at := netip.AddrPortFrom(address, backendtest.Port)
			answers(t, w, at, fits+1, fits)
			r := open(t, w, options(t, at, "round-robin", "2ms")).start()
			c := w.NewSocket(t, netip.AddrPort{}, netip.AddrPort{})
			seen := map[int]int{}
			buffer := make([]byte, 2000)
			asked, lost := 0, uint64(0)
			for end := time.Now().Add(backendtest.Patience); ; {
				for _, size := range []int{fits + 1, fits} {
					if _, err := c.WriteToUDPAddrPort(make([]byte, size), at); err != nil {
						t.Fatal(err)
					}
				}
				asked++
				_ = c.SetReadDeadline(time.Now().Add(backendtest.Patience))
				n, _, err := c.ReadFromUDPAddrPort(buffer)
				if err != nil {
					t.Fatal(err)
				}
				seen[n]++
				s := r.Status()
				if lost = s.TooLarge; s.MTU != mtu {
					t.Fatalf("the status says MTU %d", s.MTU)
				}
				if min(s.Paths[0].Down.Packets, s.Paths[1].Down.Packets, s.Paths[2].Down.Packets) > 0 {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("the paths: %+v", s.Paths)
				}
				time.Sleep(time.Millisecond)
			}
			if len(seen) != 1 || seen[fits] != asked {
				t.Errorf("asked %d times, the answers have these sizes: %v", asked, seen)
			}
			// Each time one datagram up, and one down unless the router before the narrow path drops it.
			if lost <= uint64(asked) || lost > uint64(2*asked) {
				t.Errorf("%d counted as too large of %d", lost, 2*asked)
			}
		})
	}
}

// answers starts a server that answers each datagram of the last size with datagrams of all sizes, and never with fragments,
// as QUIC does.
func answers(t *testing.T, w *backendtest.World, at netip.AddrPort, sizes ...int) {
	t.Helper()
	var conn *net.UDPConn
	w.Server.Do(t, func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		raw, err := conn.SyscallConn()
		if err != nil {
			return err
		}
		controlErr := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
			if at.Addr().Is6() {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
			}
		})
		return errors.Join(err, controlErr)
	})
	done := make(chan error, 1)
	go func() {
		buffer := make([]byte, 2000)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				done <- nil
				return
			}
			if n != sizes[len(sizes)-1] {
				done <- fmt.Errorf("a datagram of %d bytes reached the server", n)
				return
			}
			for _, size := range sizes {
				_, _ = conn.WriteToUDPAddrPort(buffer[:size], from)
			}
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
