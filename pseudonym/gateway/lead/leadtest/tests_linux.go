package leadtest

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"heddle/internal/errhint"
	"heddle/internal/nft"
	"heddle/internal/polltest"
	"heddle/pseudonym/gateway/lead"
)

// tests are some by name.
type tests []struct {
	name string
	test func(*World)
}

// run runs them in worlds of IPv4 and of IPv6. Each has its own.
func (all tests) run(t *testing.T, of func(*testing.T) Kind, world func(*testing.T, Kind, bool) *World) {
	for _, one := range all {
		t.Run(one.name, func(t *testing.T) { both(t, of, world, one.test) })
	}
}

// Run tests a kind of switch.
func Run(t *testing.T, of func(*testing.T) Kind) {
	tests{
		{"TenantHasTheConnection", tenantHasTheConnection},
		{"KeepAliveProbesCount", keepAliveProbesCount},
		{"PortIsUsedAgain", portIsUsedAgain},
		{"PortIsUsedAgainAfterAReset", portIsUsedAgainAfterAReset},
		{"PortIsUsedAgainBesideAServer", portIsUsedAgainBesideAServer},
		{"PortIsUsedWithoutTheGateway", portIsUsedWithoutTheGateway},
		{"ForgedPackets", forgedPackets},
		{"ErrorsShowNoTenant", errorsShowNoTenant},
		{"NarrowNetwork", narrowNetwork},
		{"GatewayTranslates", gatewayTranslates},
		{"IsRemoved", isRemoved},
	}.run(t, of, NewWorld)
}

// Refusals tests what a kind of switch refuses that lets the kernel route.
func Refusals(t *testing.T, of func(*testing.T) Kind) { both(t, of, NewWorld, refusals) }

func both(t *testing.T, of func(*testing.T) Kind, world func(*testing.T, Kind, bool) *World, test func(*World)) {
	for name, v6 := range map[string]bool{"IPv4": false, "IPv6": true} {
		t.Run(name, func(t *testing.T) { test(world(t, of(t), v6)) })
	}
}

func tenantHasTheConnection(w *World) {
	t := w.t
	near, far := w.Moved()
	if got := far.RemoteAddr().String(); got != w.At.String() {
		t.Errorf("the tenant sees %v", got)
	}
	w.Talk(near, far)
	// A gateway that starts again goes on with what its switch has.
	var again Switch
	w.Gateway.Do(t, func() (err error) {
		again, err = w.kind.New()
		return err
	})
	defer again.Close()
	w.Talk(near, far)
	w.Finish(near, far)
	w.quiet()
}

// A connection on which nothing passes but probes of TCP keeps its entries.
func keepAliveProbesCount(w *World) {
	near, far := w.Moved()
	w.Talk(near, far)
	const quiet = time.Second
	var last time.Time
	polltest.Until(w.t, func() error {
		if last = w.last(); time.Since(last) < quiet {
			return errors.New("packets still pass")
		}
		return nil
	})
	if err := near.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: quiet, Interval: quiet, Count: 100}); err != nil {
		w.t.Fatal(err)
	}
	polltest.Await(w.t, "a probe counts", func() bool { return w.last().Sub(last) > quiet/2 })
	w.Talk(near, far)
	w.quiet()
}

// last is when the switch saw the last packet of the connection.
func (w *World) last() (at time.Time) {
	w.t.Helper()
	w.Gateway.Do(w.t, func() error {
		return w.To.Each(func(c lead.Connection) error {
			if c.Client == w.At {
				at = c.Last
			}
			return nil
		})
	})
	if at.IsZero() {
		w.t.Fatal("the switch has no such connection")
	}
	return at
}

// A client may use a port again as soon as its connection has ended, and gets to the gateway.
func portIsUsedAgain(w *World) {
	for range 3 {
		near, far := w.Moved()
		w.Talk(near, far)
		w.Finish(near, far)
		w.await("ended", true)
	}
	near, far := w.dial()
	w.await("ended", false)
	w.await("to", false)
	w.Talk(near, far)
	w.quiet()
}

// A client that breaks off says so to its tenant. The first SYN of the next connection finds that out.
func portIsUsedAgainAfterAReset(w *World) {
	near, far := w.Moved()
	w.Talk(near, far)
	w.breakOff(near, far)
	near, far = w.Moved()
	w.Talk(near, far)
}

// The same where another server listens at the tenant's address and port. It gets nothing of a client that comes by the gateway, and answers nothing.
func portIsUsedAgainBesideAServer(w *World) {
	near, far := w.Moved()
	w.Talk(near, far)
	w.breakOff(near, far)
	other := w.listens()
	defer w.unnamed()
	near, far = w.Moved()
	w.Talk(near, far)
	if err := other.SetDeadline(time.Now()); err != nil {
		w.t.Fatal(err)
	}
	if c, err := other.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
		w.t.Errorf("the other server has %v, %v", c, err)
	}
}

// Packets that somebody forges in the client's name end nothing.
func forgedPackets(w *World) {
	t := w.t
	near, far := w.Moved()
	w.Talk(near, far)
	for _, flags := range []layers.TCP{{SYN: true}, {FIN: true, ACK: true}, {SYN: true}, {RST: true}, {SYN: true}} {
		w.forge(w.Public, flags, ownTTL)
	}
	w.forge(w.Inside, layers.TCP{SYN: true}, ownTTL)
	w.await("finished", true)
	w.Talk(near, far)
	if has, err := w.has("ended"); err != nil || has {
		t.Errorf("forged packets ended the connection: %v", err)
	}
	if has, err := w.has("back"); err != nil || !has {
		t.Errorf("a forged SYN to the tenant ended the connection: %v", err)
	}
}

// forged is the sequence number of forged packets.
const forged = 1

// forge sends a packet from the client's port to an address, with sequence numbers that are wrong. Options are those of a header of IPv4.
func (w *World) forge(at netip.AddrPort, tcp layers.TCP, ttl uint8, options ...layers.IPv4Option) {
	w.t.Helper()
	tcp.SrcPort, tcp.DstPort, tcp.Seq, tcp.Window = layers.TCPPort(w.At.Port()), layers.TCPPort(at.Port()), forged, 1000
	from, to := net.IP(w.At.Addr().AsSlice()), net.IP(at.Addr().AsSlice())
	var ip interface {
		gopacket.NetworkLayer
		gopacket.SerializableLayer
	} = &layers.IPv4{Version: 4, TTL: ttl, Protocol: layers.IPProtocolTCP, SrcIP: from, DstIP: to, Options: options}
	family, address := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Addr: [4]byte(to[:4])})
	if w.V6 {
		ip = &layers.IPv6{Version: 6, HopLimit: ttl, NextHeader: layers.IPProtocolTCP, SrcIP: from, DstIP: to}
		family, address = unix.AF_INET6, &unix.SockaddrInet6{Addr: at.Addr().As16()}
	}
	b := gopacket.NewSerializeBuffer()
	err := errors.Join(tcp.SetNetworkLayerForChecksum(ip), gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ip, &tcp))
	if err != nil {
		w.t.Fatal(err)
	}
	w.Client.Do(w.t, func() error {
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, b.Bytes(), 0, address)
	})
}

// An operator who removes what the switch made breaks connections, and those that follow work.
func isRemoved(w *World) {
	w.Gateway.Do(w.t, func() error {
		if err := w.kind.Remove(w); err != nil {
			return err
		}
		_ = w.To.Lead(w.At, w.Public, w.Inside) // it may find that out now
		return nil
	})
	near, far := w.Moved()
	w.Talk(near, far)
}

// A gateway that translates the addresses of all that it routes leaves those of connections that moved alone.
func gatewayTranslates(w *World) {
	w.Gateway.Do(w.t, func() error {
		return nft.Change(func(conn *nftables.Conn) error {
			table := nft.Inet("translates")
			conn.AddTable(table)
			chain := conn.AddChain(&nftables.Chain{Name: "out", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
			conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Masq{}}})
			return nil
		})
	})
	near, far := w.Moved()
	w.Talk(far, near) // the tenant first: a tracked connection would begin there
	w.Finish(near, far)
	w.quiet()
}

func refusals(w *World) {
	t := w.t
	foreign := [3]string{"[2001:db8::1]:1", "[2001:db8::2]:443", "[2001:db8::3]:443"}
	if w.V6 {
		foreign = [3]string{"198.51.100.2:1", "192.0.2.1:443", "10.9.1.2:443"}
	}
	at := func(port uint16) string { return netip.AddrPortFrom(w.Inside.Addr(), port).String() }
	w.Gateway.Do(t, func() error {
		for _, c := range [][3]string{foreign, // the machine does not route these
			{w.At.String(), w.Public.String(), foreign[2]}, {w.At.String(), w.Public.String(), at(444)}} {
			if w.To.Lead(netip.MustParseAddrPort(c[0]), netip.MustParseAddrPort(c[1]), netip.MustParseAddrPort(c[2])) == nil {
				t.Errorf("it leads %v", c)
			}
		}
		return nil
	})
	w.Client.Do(t, func() error {
		if _, err := w.kind.New(); err == nil || !strings.Contains(errhint.Of(err), "net.ipv4.ip_forward=1") {
			t.Errorf("on a machine that does not route: %v; %s", err, errhint.Of(err))
		}
		return nil
	})
	failed := make(chan error)
	go func() {
		failed <- w.Gateway.Run(func() error {
			runtime.LockOSThread() // once more than Run unlocks: the thread ends with its goroutine
			header, none := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
			if err := unix.Capset(&header, &none[0]); err != nil {
				return err
			}
			_, err := w.kind.New()
			return err
		})
	}()
	if err := <-failed; !errors.Is(err, unix.EPERM) || !strings.Contains(errhint.Of(err), "CAP_NET_ADMIN") {
		t.Errorf("without a right: %v; %s", err, errhint.Of(err))
	}
}
