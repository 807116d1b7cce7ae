package answers

import (
	"errors"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

func TestMain(m *testing.M) { labtest.MainAtOnce(m, 8) }

// chosen are the networks of the sessions. The default route is that of home, which nobody chose.
var chosen = []string{"lte", "office"}

// unprivileged are the words before a command that take the right to change the firewall from it.
var unprivileged = []string{"setpriv", "--bounding-set=-net_admin,-net_raw", "--inh-caps=-all"}

// world is a client with three networks, and a server that goes on sending.
type world struct {
	labtest.Overlay
	t *testing.T
}

func newWorld(t *testing.T, networks lab.World) *world {
	t.Helper()
	t.Parallel()
	return &world{labtest.UpOverlay(t, networks), t}
}

// start starts heddle on the client, with the words before it, and waits until it says that it is ready.
func (w *world) start(before []string, ready string, args ...string) *peer.Process {
	w.t.Helper()
	command := append(slices.Clone(before), "env", "HEDDLE_HOME="+w.Home("client"), labtest.Heddle)
	command = append(command, args...)
	p, err := peer.Start(w.t.Context(), w.Host("client"), command[0], command[1:]...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(p.Stop)
	if err := p.AwaitLog(w.t.Context(), ready); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// do runs f in the namespace of a host.
func (w *world) do(host string, f func() error) {
	w.t.Helper()
	if err := w.Host(host).Do(f); err != nil {
		w.t.Fatal(err)
	}
}

// received is how many packets came to the client by a device.
func (w *world) received(device string) (n uint64) {
	w.t.Helper()
	w.do("client", func() error {
		link, err := netlink.LinkByName(device)
		if err == nil {
			n = link.Attrs().Statistics.RxPackets
		}
		return err
	})
	return n
}

// more waits until packets came to the client by each device, if the server still sends.
func (w *world) more(devices ...string) {
	w.t.Helper()
	for _, device := range devices {
		before := w.received(device)
		polltest.Await(w.t, "packets come by "+device, func() bool { return w.received(device) >= before+100 })
	}
}

var notUp = regexp.MustCompile(`"state": ?"(down|silent|dialling)"`)

// moreByAny waits until packets came to the client by some of these devices.
func (w *world) moreByAny(devices ...string) {
	w.t.Helper()
	sum := func() (n uint64) {
		for _, device := range devices {
			n += w.received(device)
		}
		return n
	}
	before := sum()
	polltest.Await(w.t, "packets come", func() bool { return sum() >= before+100 })
}

// flap sets a device of the client down, until a status says so, and then up again.
func (w *world) flap(device string) {
	w.t.Helper()
	if err := w.Link(device).Unplug(); err != nil {
		w.t.Fatal(err)
	}
	polltest.Await(w.t, "heddle notices that "+device+" is down", func() bool { return notUp.MatchString(w.Run("client", "status", "--json")) })
	time.Sleep(time.Second) // in which nothing arrives, as for a socket that would be closed by now
	if err := w.Link(device).Restore(); err != nil {
		w.t.Fatal(err)
	}
}

// watch captures what leaves by home, until stop, which fails the test if there was a packet.
func (w *world) watch() (stop func()) {
	w.t.Helper()
	return labtest.Unchosen(w.t, w.Instance, "client/home")
}

var (
	udpAt    = netip.AddrPortFrom(lab.ServerAddr, 5555)
	streamAt = netip.AddrPortFrom(lab.ServerAddr, peer.StreamPort)
)

// chatter is a server that sends 200 datagrams a second to each address that it ever heard from, until the test ends.
type chatter struct {
	mu    sync.Mutex
	heard map[netip.AddrPort]bool
}

func (w *world) newChatter(at netip.AddrPort) *chatter {
	w.t.Helper()
	c := &chatter{heard: map[netip.AddrPort]bool{}}
	var socket *net.UDPConn
	w.do("server", func() (err error) {
		socket, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	})
	w.t.Cleanup(func() { socket.Close() })
	go func() {
		for b := make([]byte, 2048); ; {
			_, from, err := socket.ReadFromUDPAddrPort(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			c.mu.Lock()
			c.heard[from] = true
			c.mu.Unlock()
		}
	}()
	go func() {
		for b := make([]byte, 500); ; time.Sleep(5 * time.Millisecond) {
			for _, to := range c.all() {
				if _, err := socket.WriteToUDPAddrPort(b, to); errors.Is(err, net.ErrClosed) {
					return
				}
			}
		}
	}()
	return c
}

func (c *chatter) all() (all []netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for a := range c.heard {
		all = append(all, a)
	}
	return all
}

// sender is a socket of a program that is not connected, so that no error stays.
type sender struct {
	*net.UDPConn
	to      netip.AddrPort
	header  []byte   // of SOCKS5
	control net.Conn // of SOCKS5; nil without a proxy
}

func (s *sender) Write(b []byte) (int, error) {
	return s.WriteToUDPAddrPort(append(slices.Clone(s.header), b...), s.to)
}

func (s *sender) Close() error {
	if s.control != nil {
		s.control.Close()
	}
	return s.UDPConn.Close()
}

// udp makes a socket on the client.
func (w *world) udp(to netip.AddrPort) *sender {
	w.t.Helper()
	s := &sender{to: to}
	network := "udp4"
	if to.Addr().Is6() {
		network = "udp6"
	}
	w.do("client", func() (err error) {
		s.UDPConn, err = net.ListenUDP(network, nil)
		return err
	})
	return s
}

// program is a program on the client that sends by a socket until it exits.
func (w *world) program(socket *sender) (exit func()) {
	w.t.Helper()
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
				_, _ = socket.Write(make([]byte, 100))
			}
		}
	}()
	exit = sync.OnceFunc(func() {
		close(done)
		socket.Close()
	})
	w.t.Cleanup(exit)
	return exit
}
