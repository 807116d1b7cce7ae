package gateway

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"

	"heddle/internal/netns"
	"heddle/internal/netutil"
	"heddle/internal/nstest"
	"heddle/internal/ovstest"
	"heddle/internal/polltest"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
)

// moving is a client, a gateway that routes, and a tenant with an agent and a sidecar.
type moving struct {
	t *testing.T
	places
	client, gateway, tenant nstest.Namespace
	way, agent              *process
	routing                 role // of way
	label                   pseudonym.Label
	config                  *tls.Config                                            // of the client
	list                    []byte                                                 // of keys for encrypted hellos
	control                 func(network, address string, c syscall.RawConn) error // of the client's next sockets, or nil
	to                      netip.AddrPort                                         // where the client connects: the gateway
	tap                     *nstest.Tap
	toAgent, toSidecar      atomic.Int64 // bytes of TCP between gateway and tenant, by port
	resets                  atomic.Int64
	mu                      sync.Mutex
	greetings               map[layers.TCPPort]greetingSeen // by the client's port
}

// greetingSeen is what passed the client's link until the server spoke.
type greetingSeen struct {
	segments int
	answered bool
}

// places are the addresses in a world.
type places struct {
	from, near, site, inside string // the client and the gateway in its network, the tenant and the gateway in that one
	public, anywhere         string
}

var (
	places4 = places{"198.51.100.2/24", "198.51.100.1/24", "10.9.1.2/24", "10.9.1.1/24", "192.0.2.1/32", "0.0.0.0/0"}
	places6 = places{"2001:db8:c::2/64", "2001:db8:c::1/64", "fd09::2/64", "fd09::1/64", "2001:db8:77::1/128", "::/0"}
)

// at returns an address with a port.
func at(prefix string, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParsePrefix(prefix).Addr(), port)
}

func (m *moving) agentAt() string   { return at(m.site, 4444).String() }
func (m *moving) sidecarAt() string { return at(m.site, 4443).String() }

// newMoving starts all. The gateway may relay to the sidecar beside the agent.
func newMoving(t *testing.T, in places, relays bool) *moving {
	t.Helper()
	return newMovingBy(t, in, relays, byGateway, nil)
}

// The ways to hold and lead connections.
const (
	byGateway = iota // by nftables
	byBridge         // the gateway, by a bridge of Open vSwitch
	byOther          // another process, by nftables, for a gateway without rights
	byLate           // the gateway, by a switch that does not settle
	toServer         // by nftables, to an agent that relays to a server which reads the PROXY protocol
	byStuck          // as byOther, and the gateway stops once it has led a connection
	byBPF            // the gateway, by programs, in a test with mounts of its own
)

// newMovingBy is newMoving with another way to hold and lead. Edit may change the site's server.
func newMovingBy(t *testing.T, in places, relays bool, by int, edit func(*tls.Config)) *moving {
	t.Helper()
	return newMovingOver(t, in, by, relays, edit, nstest.Link)
}

// newMovingOver is newMovingBy with another link of the client.
func newMovingOver(t *testing.T, in places, by int, relays bool, edit func(*tls.Config), link func(t testing.TB, client, gateway nstest.End)) *moving {
	t.Helper()
	m := &moving{t: t, places: in, client: nstest.New(t), gateway: nstest.New(t), tenant: nstest.New(t), label: pseudonym.NewLabel(), greetings: map[layers.TCPPort]greetingSeen{}}
	link(t, nstest.End{In: m.client, Device: "net", Addrs: []string{in.from}}, nstest.End{In: m.gateway, Device: "net"})
	nstest.Link(t, nstest.End{In: m.tenant, Device: "net", Addrs: []string{in.site}}, nstest.End{In: m.gateway, Device: "site"})
	way := role{Listen: at(in.public, 443).String(), Label: m.label}
	network, site := "net", "site"
	if by == byBridge {
		network, site = "lead0", "lead0"
		way.Bridge = m.bridge(network)
	}
	m.gateway.Do(t, func() error {
		return errors.Join(nstest.Address(network, in.near), nstest.Address(site, in.inside))
	})
	through := func(gateway string) func() error {
		return func() error {
			return nstest.Route(in.anywhere, "", netlink.Route{Gw: at(gateway, 0).Addr().AsSlice()})
		}
	}
	m.client.Do(t, func() error { return errors.Join(through(in.near)(), netns.ChecksumsInSoftware("net")) }) // so that segments cross the link one by one
	m.tenant.Do(t, through(in.inside))
	m.gateway.Do(t, func() error {
		return errors.Join(nstest.Address("lo", in.public), nstest.Set("ipv4/ip_forward", "1"), nstest.Set("ipv6/conf/all/forwarding", "1"), nstest.Set("ipv4/tcp_fastopen", fastOpenAll))
	})
	m.tap = m.gateway.Tap(t, m.count, "net", "site")

	m.serve(way, by, relays, []string{AgentPrefix}, edit)
	return m
}

// server starts a server on the tenant's machine which reads the PROXY protocol.
func (m *moving) server(issuer *ca.Issuer) string {
	m.t.Helper()
	var l net.Listener
	m.tenant.Do(m.t, func() (err error) {
		l, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	})
	siteAt(m.t, l, issuer, zone.Name(m.label), nil)
	return l.Addr().String()
}

// bridge joins both networks, and returns the file of the bridge's socket.
func (m *moving) bridge(name string) string {
	m.t.Helper()
	for _, in := range []nstest.Namespace{m.client, m.tenant, m.gateway} {
		in.Do(m.t, func() error { return netns.ChecksumsInSoftware("net") })
	}
	m.gateway.Do(m.t, func() error { return netns.ChecksumsInSoftware("site") })
	s := ovstest.Start(m.t, m.gateway.Run)
	if err := s.Bridge(name, "net", "site"); err != nil {
		m.t.Fatal(err)
	}
	return s.Socket(name)
}

// tcp returns a packet, and its header of TCP or nil.
func (m *moving) tcp(p nstest.Passed) (gopacket.Packet, *layers.TCP) {
	kind := layers.LayerTypeIPv4
	if m.places == places6 {
		kind = layers.LayerTypeIPv6
	}
	packet := gopacket.NewPacket(p.Bytes, kind, gopacket.NoCopy)
	tcp, _ := packet.Layer(layers.LayerTypeTCP).(*layers.TCP)
	return packet, tcp
}

// count counts what passes the gateway's machine.
func (m *moving) count(p nstest.Passed) {
	packet, tcp := m.tcp(p)
	if tcp == nil {
		if packet.Layer(layers.LayerTypeICMPv4) != nil {
			m.resets.Add(1)
		}
		return
	}
	if tcp.RST {
		m.resets.Add(1)
	}
	if p.Device == "net" && len(tcp.Payload) > 0 {
		m.greeted(tcp)
	}
	for port, n := range map[layers.TCPPort]*atomic.Int64{4444: &m.toAgent, 4443: &m.toSidecar} {
		if p.Device == "site" && (tcp.DstPort == port || tcp.SrcPort == port) {
			n.Add(int64(len(tcp.Payload)))
		}
	}
}

// greeted notes a segment on the client's link.
func (m *moving) greeted(tcp *layers.TCP) {
	m.mu.Lock()
	defer m.mu.Unlock()
	port := tcp.SrcPort
	if tcp.SrcPort == 443 {
		port = tcp.DstPort
	}
	seen := m.greetings[port]
	seen.answered = seen.answered || tcp.SrcPort == 443
	if !seen.answered {
		seen.segments++
	}
	m.greetings[port] = seen
}

// segments returns how many segments a client sent before the server spoke.
func (m *moving) segments(c net.Conn) int {
	m.tap.Drain()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.greetings[layers.TCPPort(netutil.AddrPort(c.LocalAddr()).Port())].segments
}

// visit connects the client, and returns its address as the tenant sees it.
func (m *moving) visit(config *tls.Config) (c *tls.Conn, from string) {
	m.t.Helper()
	var raw net.Conn
	m.client.Do(m.t, func() (err error) {
		raw, err = (&net.Dialer{Control: m.control}).Dial("tcp", m.to.String())
		return err
	})
	m.t.Cleanup(func() { raw.Close() })
	_ = raw.SetDeadline(time.Now().Add(polltest.Patience))
	c = tls.Client(raw, config)
	if err := c.Handshake(); err != nil {
		m.t.Fatal(err)
	}
	line := make([]byte, 0, 64)
	for b := make([]byte, 1); !bytes.HasSuffix(line, []byte("\n")); line = append(line, b...) {
		if _, err := c.Read(b); err != nil {
			m.t.Fatal(err)
		}
	}
	return c, strings.TrimSpace(string(line))
}

// echo sends bytes there and back.
func (m *moving) echo(c net.Conn, size int) {
	m.t.Helper()
	text := make([]byte, size)
	for i := range text {
		text[i] = byte(i / 11)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(text)
		sent <- err
	}()
	got := make([]byte, size)
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, text) {
		m.t.Fatalf("it does not come back: %v", err)
	}
	if err := <-sent; err != nil {
		m.t.Fatal(err)
	}
}

// expect waits until the gateway has counted so many, and no bytes of its own.
func (m *moving) expect(want Counts) {
	m.t.Helper()
	polltest.Until(m.t, func() error {
		if got := m.way.counts(m.t); got != want {
			return fmt.Errorf("it counts %+v, want %+v", got, want)
		}
		return nil
	})
}

// moved counts connections that all moved.
func moved(n int, hidden bool) (c Counts) {
	c.Moved = uint64(n)
	if hidden {
		c.Encrypted = c.Moved
	}
	return c
}

const much = 1 << 20 // bytes

// The hello of each client takes two segments, as it has a post-quantum key share.
func TestMove(t *testing.T) {
	for _, c := range []struct {
		name   string
		in     places
		hidden bool
		by     int
		again  bool // the site asks for another hello
	}{{"in clear", places4, false, byGateway, false}, {"hidden", places4, true, byGateway, false}, {"IPv6", places6, false, byGateway, false},
		{"by Open vSwitch", places6, true, byBridge, false}, {"by another process", places4, false, byOther, false}, {"to a server", places4, true, toServer, false},
		{"after another hello", places4, false, byGateway, true}} {
		t.Run(c.name, func(t *testing.T) {
			m, hidden := newMovingBy(t, c.in, false, c.by, func(site *tls.Config) {
				if c.again {
					site.CurvePreferences = []tls.CurveID{tls.CurveP384}
				}
			}), c.hidden
			if hidden {
				m.config.EncryptedClientHelloConfigList = m.list
			}
			for i := range 3 {
				conn, from := m.visit(m.config)
				if s := conn.ConnectionState(); from != conn.LocalAddr().String() || s.ECHAccepted != hidden || s.HelloRetryRequest != c.again {
					t.Errorf("the tenant sees %s, and the client is %v; %+v", from, conn.LocalAddr(), s)
				}
				if n := m.segments(conn); n < 2 {
					t.Errorf("the hello took %d segments", n)
				}
				m.echo(conn, much)
				m.expect(moved(i+1, hidden))
			}
			conn, _ := m.visit(m.config)
			m.expect(moved(4, hidden)) // the tenant greets the client before the gateway has let go
			m.way.kill()
			m.echo(conn, much) // nothing of it needs the gateway
			m.tap.Drain()
			if n := m.toAgent.Load(); n == 0 || n > much/8 {
				t.Errorf("gateway and agent exchanged %d bytes", n)
			}
			if n := m.resets.Load(); n > 0 {
				t.Errorf("%d resets and ICMP errors", n)
			}
		})
	}
}

// While packets of a client may still come to the gateway's machine, that has a socket which ignores them: without one the kernel would answer by a reset.
func TestSocketStaysUntilTheSwitchHasSettled(t *testing.T) {
	m := newMovingBy(t, places4, false, byLate, nil)
	first, _ := m.visit(m.config)
	m.echo(first, much)
	second, _ := m.visit(m.config) // the gateway has had the time to close the first one
	m.echo(second, much)
	for _, c := range []*tls.Conn{first, second} {
		port := fmt.Sprintf(":%04X ", netutil.AddrPort(c.LocalAddr()).Port())
		m.gateway.Do(t, func() error {
			table, err := os.ReadFile("/proc/thread-self/net/tcp")
			if err == nil && !strings.Contains(string(table), port) {
				err = fmt.Errorf("the gateway has no socket with %s:\n%s", port, table)
			}
			return err
		})
	}
}

// curl, which knows nothing of this, uses a connection that moves.
func TestMoveOfCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("typed skip: no curl")
	}
	m := newMoving(t, places4, false)
	name := zone.Name(m.label)
	cmd := exec.Command(curl, "-sSkv", "--http1.1", "--no-alpn", "--max-time", "60", "--resolve", name+":443:192.0.2.1", "https://"+name+"/")
	cmd.Env = append(os.Environ(), "no_proxy=*")
	var out []byte
	m.client.Do(t, func() error {
		out, _ = cmd.CombinedOutput() // it fails, as the server is none of HTTP
		return nil
	})
	if !strings.Contains(string(out), "SSL connection using TLSv1.3") || !strings.Contains(string(out), "Received HTTP/0.9") { // the echo of its request
		t.Errorf("curl says %s", out)
	}
	m.expect(Counts{Moved: 1})
}
