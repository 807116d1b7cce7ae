package gateway

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/errhint"
	"heddle/internal/netns"
	"heddle/internal/nstest"
	"heddle/internal/polltest"
	"heddle/internal/tcprepair"
	"heddle/path"
	"heddle/pseudonym"
	"heddle/pseudonym/gateway/lead/leadtest"
)

// Gateway and tenant are in one network, whose router is the one that is near the client.
var (
	lan4 = places{"198.51.100.2/24", "198.51.100.1/24", "203.0.113.3/24", "203.0.113.1/24", "203.0.113.2/24", "0.0.0.0/0"}
	lan6 = places{"2001:db8:c::2/64", "2001:db8:c::1/64", "2001:db8:d::3/64", "2001:db8:d::1/64", "2001:db8:d::2/64", "::/0"}
)

// directly is a world in which the tenant answers past the gateway.
type directly struct {
	*moving
	answers atomic.Int64 // bytes of TCP that passed the gateway's machine on their way to the client
}

// newDirectly starts all. Prefixes are those of the agent's addresses. It does not let the tenant take packets to the gateway's address.
func newDirectly(t *testing.T, in places, by int, relays, bpf bool, prefixes ...string) *directly {
	t.Helper()
	m := &directly{moving: &moving{t: t, places: in, client: nstest.New(t), gateway: nstest.New(t), tenant: nstest.New(t), label: pseudonym.NewLabel()}}
	router := nstest.New(t)
	nstest.Link(t, nstest.End{In: m.client, Device: "net", Addrs: []string{in.from}}, nstest.End{In: router, Device: "client", Addrs: []string{in.near}})
	nstest.LAN(t, nstest.End{In: router, Device: "net", Addrs: []string{in.inside}}, nstest.End{In: m.gateway, Device: "net", Addrs: []string{in.public}},
		nstest.End{In: m.tenant, Device: "net", Addrs: []string{in.site}})
	routes := func() error {
		return errors.Join(nstest.Set("ipv4/ip_forward", "1"), nstest.Set("ipv6/conf/all/forwarding", "1"))
	}
	router.Do(t, routes)
	m.client.Do(t, func() error { return errors.Join(m.through(in.near), netns.ChecksumsInSoftware("net")) })
	m.tenant.Do(t, func() error { return m.through(in.inside) })
	m.gateway.Do(t, func() error { return errors.Join(routes(), m.through(in.inside)) })
	m.tap = m.gateway.Tap(t, m.carry, "net")
	way := role{Listen: at(in.public, 443).String(), Label: m.label}
	if bpf {
		way.Pins = filepath.Join(nstest.PinsBPF(t), "heddle")
	}
	m.serve(way, by, relays, prefixes, nil)
	return m
}

// through makes the default route of the calling thread's namespace.
func (m *directly) through(router string) error {
	return nstest.Route(m.anywhere, "", netlink.Route{Gw: at(router, 0).Addr().AsSlice()})
}

func (m *directly) carry(p nstest.Passed) {
	kind := layers.LayerTypeIPv4
	if m.places == lan6 {
		kind = layers.LayerTypeIPv6
	}
	packet := gopacket.NewPacket(p.Bytes, kind, gopacket.NoCopy)
	tcp, ok := packet.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if n := packet.NetworkLayer(); ok && n != nil {
		if to, _ := netip.AddrFromSlice(n.NetworkFlow().Dst().Raw()); to == at(m.from, 0).Addr() {
			m.answers.Add(int64(len(tcp.Payload)))
		}
	}
}

// take has the tenant take what the hint names.
func (m *directly) take() {
	m.t.Helper()
	m.tenant.Do(m.t, func() error { return leadtest.Take("net", at(m.public, 0).Addr()) })
}

// The tenant's machine answers with the gateway's address, past the gateway.
func TestMoveDirectly(t *testing.T) {
	if !nstest.OwnMounts(t) {
		return
	}
	for _, c := range []struct {
		name   string
		in     places
		hidden bool
		by     int
	}{{"IPv4", lan4, false, byGateway}, {"IPv6", lan6, true, byGateway}, {"by another process", lan4, true, byOther}, {"to a server", lan4, false, toServer}} {
		t.Run(c.name, func(t *testing.T) {
			m := newDirectly(t, c.in, c.by, false, true, DirectPrefix)
			m.take()
			if c.hidden {
				m.config.EncryptedClientHelloConfigList = m.list
			}
			for i := range 3 {
				conn, from := m.visit(m.config)
				if from != conn.LocalAddr().String() || conn.RemoteAddr().String() != at(m.public, 443).String() {
					t.Errorf("the tenant sees %s, and the client is %v and sees %v", from, conn.LocalAddr(), conn.RemoteAddr())
				}
				m.echo(conn, 10*much)
				m.expect(moved(i+1, c.hidden))
			}
			conn, _ := m.visit(m.config)
			m.expect(moved(4, c.hidden))
			m.way.kill()
			m.echo(conn, much)
			if m.tap.Drain(); m.answers.Load() > 0 {
				t.Errorf("%d bytes of answers passed the gateway's machine", m.answers.Load())
			}
		})
	}
}

// A client may use its port again while the tenant still has its former connection.
func TestDirectPortIsUsedAgain(t *testing.T) {
	if !nstest.OwnMounts(t) {
		return
	}
	for name, in := range map[string]places{"IPv4": lan4, "IPv6": lan6} {
		t.Run(name, func(t *testing.T) {
			m := newDirectly(t, in, byGateway, false, true, DirectPrefix)
			m.take()
			m.control = func(_, _ string, c syscall.RawConn) (failed error) {
				err := c.Control(func(fd uintptr) {
					var from unix.Sockaddr = &unix.SockaddrInet6{Port: 50000}
					if in == lan4 {
						from = &unix.SockaddrInet4{Port: 50000}
					}
					failed = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(int(fd), from))
				})
				return errors.Join(err, failed)
			}
			for i := range 3 {
				conn, from := m.visit(m.config)
				if from != at(in.from, 50000).String() {
					t.Errorf("the client is %s", from)
				}
				m.echo(conn, much)
				m.expect(moved(i+1, false))
				held, err := tcprepair.Hold(conn.NetConn().(*net.TCPConn))
				if err == nil {
					err = held.Close() // without a packet
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// An agent does not take a connection for a former one which moves to it by another way, and so breaks none off that goes on.
func TestDirectMovesOnce(t *testing.T) {
	if !nstest.OwnMounts(t) {
		return
	}
	m := newDirectly(t, lan4, byGateway, false, true, DirectPrefix)
	m.take()
	near, far := m.connected(at(m.public, 8443))
	held, err := tcprepair.Hold(far)
	if err != nil {
		t.Fatal(err)
	}
	state, err := held.State()
	if err != nil {
		t.Fatal(err)
	}
	frame, err := state.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	frame = append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
	offer := func() (way net.Conn, answer byte) {
		t.Helper()
		m.gateway.Do(t, func() (err error) {
			way, err = net.DialTimeout("tcp", m.agentAt(), polltest.Patience)
			return err
		})
		t.Cleanup(func() { way.Close() })
		_ = way.SetDeadline(time.Now().Add(polltest.Patience))
		way = tls.Client(way, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{identity(ofGateways)}})
		b := make([]byte, 1)
		_, err := way.Write(frame)
		if _, other := io.ReadFull(way, b); err != nil || other != nil {
			t.Fatal(err, other)
		}
		return way, b[0]
	}
	first, answer := offer()
	if answer != moveReady {
		t.Fatal("the agent refuses the connection")
	}
	if _, answer := offer(); answer != moveRefused {
		t.Error("the agent takes it twice")
	}
	first.Close()
	if far, err = held.Resume(); err != nil {
		t.Fatal(err)
	}
	if _, err := far.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(near, make([]byte, 1)); err != nil { // a reset would have come before
		t.Errorf("the client reads %v", err)
	}
}

// connected connects the client to an address of the gateway.
func (m *directly) connected(to netip.AddrPort) (near, far *net.TCPConn) {
	m.t.Helper()
	var l *net.TCPListener
	m.gateway.Do(m.t, func() (err error) {
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(to))
		return err
	})
	defer l.Close()
	m.client.Do(m.t, func() (err error) {
		near, err = net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(to))
		return err
	})
	far, err := l.AcceptTCP()
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { near.Close(); far.Close() })
	for _, c := range []net.Conn{near, far} {
		_ = c.SetDeadline(time.Now().Add(polltest.Patience))
	}
	return near, far
}

// A connection that the tenant could not answer stays whole: it goes to another address of the site.
func TestNotDirectly(t *testing.T) {
	if !nstest.OwnMounts(t) {
		return
	}
	for _, c := range []struct {
		name  string
		bpf   bool
		by    int
		and   []string // other kinds of addresses of the agent
		spoil func(*directly)
	}{
		{"the tenant does not take the address", true, byGateway, nil, func(m *directly) {}},
		{"the agent may not answer from it", true, byGateway, nil, func(m *directly) {
			m.take()
			m.agent.kill()
			m.agent = m.start(m.tenant, role{Listen: m.agentAt(), Sidecar: "/none", Direct: []netip.Addr{at(m.site, 0).Addr()}})
		}},
		{"nftables lead", false, byGateway, nil, func(m *directly) { m.take() }},
		{"nftables lead in another process", false, byOther, nil, func(m *directly) { m.take() }},
		{"its answers would pass the gateway", true, byGateway, []string{AgentPrefix}, func(m *directly) {
			m.take()
			m.tenant.Do(m.t, func() error {
				if out, err := exec.Command("ip", "route", "replace", "default", "via", at(m.public, 0).Addr().String()).CombinedOutput(); err != nil {
					return errors.New(string(out))
				}
				return nil
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			moves := len(c.and) > 0
			m := newDirectly(t, lan4, c.by, !moves, c.bpf, append([]string{DirectPrefix}, c.and...)...)
			c.spoil(m)
			conn, from := m.visit(m.config)
			if from != conn.LocalAddr().String() {
				t.Errorf("the tenant sees %s, and the client is %v", from, conn.LocalAddr())
			}
			m.echo(conn, much)
			if moves {
				m.expect(moved(1, false))
				return
			}
			conn.Close()
			polltest.Until(t, func() error {
				if got := m.way.counts(t); got.Relayed != 1 || got.Moved != 0 {
					return fmt.Errorf("it counts %+v", got)
				}
				return nil
			})
		})
	}
}

// answering is a machine that answers from the gateway's address.
type answering struct {
	t              *testing.T
	in             places
	tenant         nstest.Namespace
	public, client netip.AddrPort
	ip             string // command
	now            time.Time
}

func newAnswering(t *testing.T, in places) *answering {
	router, tenant := nstest.New(t), nstest.New(t)
	nstest.Link(t, nstest.End{In: tenant, Device: "net", Addrs: []string{in.site}}, nstest.End{In: router, Device: "net", Addrs: []string{in.inside}})
	a := &answering{t, in, tenant, at(in.public, 443), at(in.from, 50000), "ip ", time.Now()}
	if a.public.Addr().Is6() {
		a.ip = "ip -6 "
	}
	return a
}

// remembers lets answers last until something changes.
func (a *answering) remembers() {
	var watch *path.Watch
	a.tenant.Do(a.t, func() (err error) {
		watch, err = path.NewWatch()
		return err
	})
	a.t.Cleanup(func() { watch.Close() })
}

func (a *answering) run(commands string) {
	a.t.Helper()
	a.tenant.Do(a.t, func() error {
		out, err := exec.Command("sh", "-ec", commands).CombinedOutput()
		if err != nil {
			err = errors.New(commands + ": " + string(out))
		}
		return err
	})
}

// ask fails unless the answer about a client is as wanted.
func (a *answering) ask(client netip.AddrPort, want string) (hint string, failed error) {
	a.tenant.Do(a.t, func() error {
		err := answersFrom(a.now, a.public, client, at(a.in.site, 0).Addr(), a.public.Addr())
		if hint = errhint.Of(err); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			failed = fmt.Errorf("%v: %v, not %q", client, err, want)
		}
		return nil
	})
	return hint, failed
}

func (a *answering) why(want string) (hint string) {
	a.t.Helper()
	hint, err := a.ask(a.client, want)
	if err != nil {
		a.t.Error(err)
	}
	return hint
}

// takes has the machine take all that it needs to.
func (a *answering) takes() {
	a.t.Helper()
	a.run(a.ip + "route add default via " + at(a.in.inside, 0).Addr().String())
	a.run(a.why("does not take packets of clients"))
	a.why("")
}

// An agent says what a machine lacks, and the commands of its hints mend it.
func TestAnswersFrom(t *testing.T) {
	for name, c := range map[string]struct {
		in        places
		remembers bool
	}{"IPv4": {lan4, false}, "IPv6": {lan6, false}, "IPv4, remembered": {lan4, true}, "IPv6, remembered": {lan6, true}} {
		t.Run(name, func(t *testing.T) {
			a := newAnswering(t, c.in)
			if c.remembers {
				a.remembers()
			}
			doctor := func(good bool) {
				t.Helper()
				a.tenant.Do(t, func() error {
					if err := CheckDirect(a.public.Addr()); (err == nil) != good {
						t.Errorf("doctor says %v", err)
					}
					return nil
				})
			}
			public := a.public.Addr().String()
			a.run(a.ip + "route add default via " + at(c.in.inside, 0).Addr().String())
			hint := a.why("does not take packets of clients")
			doctor(false)
			a.run(strings.Join(strings.Split(hint, "; ")[:2], "; ")) // without the last one
			a.why("does not take messages of routers")
			a.run(strings.Split(hint, "; ")[2])
			a.why("")
			doctor(true)
			a.run(a.ip + "route add local " + public + " dev lo")
			a.why("would tell the network that it is the gateway")
			doctor(false)
			a.run(a.ip + "route del local " + public + " dev lo")
			a.run(a.ip + "route replace default via " + public)
			a.why("leads through the gateway's machine")
			a.run(a.ip + "rule add from " + public + " lookup 5")
			a.why("")
			a.run(a.ip + "rule del from " + public + " lookup 5; " + a.ip + "route del default")
			if a.why("it "); a.public.Addr().Is4() { // has no route
				a.run("ip link add out type veth peer name peer; ip link set out up; ip link set peer up; ip route add default dev out; sysctl -qw net.ipv4.conf.net.rp_filter=1")
				a.run(a.why("rp_filter"))
				a.why("")
			}
			a.run(a.ip + "address del " + c.in.site + " dev net")
			a.why("no device has the address")
		})
	}
}

// An agent asks the kernel once for all connections of a client, unless rules tell these apart. It looks each second whether the next hop is the gateway's machine.
func TestAnswersAreRemembered(t *testing.T) {
	for name, in := range map[string]places{"IPv4": lan4, "IPv6": lan6} {
		t.Run(name, func(t *testing.T) {
			a := newAnswering(t, in)
			a.remembers()
			a.takes()
			other := netip.AddrPortFrom(a.client.Addr(), a.client.Port()+1)
			polltest.Until(t, func() error { // the kernel may still tell how it sets devices up
				before := path.Questions()
				_, err := a.ask(other, "")
				if asked := path.Questions() - before; err == nil && asked > 0 {
					err = fmt.Errorf("%d questions although nothing changed", asked)
				}
				return err
			})
			a.run(fmt.Sprintf("%srule add pref 1 iif net to %v ipproto tcp sport %d unreachable", a.ip, a.public.Addr(), other.Port()))
			for range 2 {
				a.why("")
				if _, err := a.ask(other, "does not take packets of clients"); err != nil {
					t.Error(err)
				}
			}
			for _, one := range []string{in.inside, in.public} {
				a.run(fmt.Sprintf("%sneigh replace %v lladdr 02:00:00:00:00:01 dev net nud permanent", a.ip, at(one, 0).Addr()))
			}
			a.now = a.now.Add(time.Second)
			a.why("leads through the gateway's machine")
		})
	}
}

// An agent takes no other foreign address than it was told.
func TestAgentIsToldItsAddresses(t *testing.T) {
	public := at(lan4.public, 443)
	err := (&Agent{Direct: []netip.Addr{public.Addr().Next()}}).answers(tcprepair.State{Local: public}, at(lan4.site, 0).Addr(), public.Addr())
	if err == nil || !strings.Contains(errhint.Of(err), `direct = ["203.0.113.2"]`) {
		t.Errorf("%v; %s", err, errhint.Of(err))
	}
}
