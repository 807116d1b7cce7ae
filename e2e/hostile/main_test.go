package hostile

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/miekg/dns"

	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

func TestMain(m *testing.M) { labtest.Main(m) }

const serverName = "vpn.example"

var (
	nameserver = netip.MustParseAddr("192.0.2.254") // of core
	moved      = netip.MustParseAddr("192.0.2.2")   // where the server moves to
	attacker   = netip.MustParseAddr("203.0.113.66")
)

// world is threeways with a nameserver that all networks lead to, a server with a name, and an attacker's machine that answers
// whatever it gets.
type world struct {
	*lab.Instance
	t    *testing.T
	name atomic.Pointer[netip.Addr] // the server's address by the nameserver
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	spec := lab.ThreeWaysUnlimited()
	for i := range spec.Hosts {
		spec.Hosts[i].Nameservers = []netip.Addr{nameserver}
	}
	w := &world{Instance: labtest.Up(t, spec), t: t}
	w.leads(lab.ServerAddr)
	w.must("core", "ip", "address", "add", attacker.String()+"/32", "dev", "lo")
	socket := w.listen("core", netip.AddrPortFrom(nameserver, 53))
	s := &dns.Server{PacketConn: socket, Handler: dns.HandlerFunc(func(answer dns.ResponseWriter, q *dns.Msg) {
		_ = answer.WriteMsg(reply(q, *w.name.Load()))
	})}
	go func() { _ = s.ActivateAndServe() }()
	t.Cleanup(func() { _ = s.Shutdown() })
	return w
}

// reply answers a question for the server's name with an address.
func reply(q *dns.Msg, at netip.Addr) *dns.Msg {
	m := new(dns.Msg)
	m.SetReply(q)
	if len(q.Question) == 1 && q.Question[0].Qtype == dns.TypeA && q.Question[0].Name == serverName+"." {
		m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: serverName + ".", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 5}, A: at.AsSlice()})
	}
	return m
}

// leads changes the server's address by the nameserver.
func (w *world) leads(to netip.Addr) { w.name.Store(&to) }

// must runs a program in a host.
func (w *world) must(host, name string, args ...string) {
	w.t.Helper()
	if out, err := w.Host(host).Command(w.t.Context(), name, args...).CombinedOutput(); err != nil {
		w.t.Fatalf("%s %v in %s: %v: %s", name, args, host, err, out)
	}
}

// silence makes all that the server sends to the client vanish, until it speaks.
func (w *world) silence() { w.must("server", "ip", "route", "add", "blackhole", "10.101.0.0/16") }
func (w *world) speak()   { w.must("server", "ip", "route", "del", "blackhole", "10.101.0.0/16") }

// move gives the server another address in place of its own.
func (w *world) move(to netip.Addr) {
	w.t.Helper()
	if err := w.Link("server").Readdress("server", netip.PrefixFrom(to, 24), netip.PrefixFrom(lab.ServerAddr6, 64)); err != nil {
		w.t.Fatal(err)
	}
	w.leads(to)
}

func (w *world) listen(host string, at netip.AddrPort) (socket net.PacketConn) {
	w.t.Helper()
	err := w.Host(host).Do(func() (err error) {
		socket, err = net.ListenPacket("udp4", at.String())
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { socket.Close() })
	return socket
}

// echo answers at a port of a host, with what it gets.
func (w *world) echo(host string, at netip.AddrPort) {
	socket := w.listen(host, at)
	go func() {
		buffer := make([]byte, 1<<16)
		for {
			n, from, err := socket.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = socket.WriteTo(buffer[:n], from)
		}
	}()
}

// via are the flags of the three networks. One path that works is enough for these sessions.
func via() []string {
	args := []string{"--degrade", "--schedule", "uniform", "--every", "50ms"}
	for _, way := range lab.Ways {
		args = append(args, "--via", way+"=if:"+way)
	}
	return args
}

// session is a running heddle with one session.
type session struct {
	*peer.Process
	w *world
}

func (w *world) start(word string, args ...string) *session {
	w.t.Helper()
	p, err := peer.Start(w.t.Context(), w.Host("client"), labtest.Heddle, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(p.Stop)
	if err := p.AwaitLog(w.t.Context(), word); err != nil {
		w.t.Fatal(err, p.Log())
	}
	return &session{p, w}
}

// server is the address that the session sends to.
func (s *session) server() string {
	out, err := s.w.Host("client").Command(s.w.t.Context(), labtest.Heddle, "status", "--json").Output()
	var all struct {
		Running []struct {
			Sessions []struct {
				Server string `json:"server"`
			} `json:"sessions"`
		} `json:"running"`
	}
	if err != nil || json.Unmarshal(out, &all) != nil || len(all.Running) != 1 || len(all.Running[0].Sessions) != 1 {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return all.Running[0].Sessions[0].Server
}

// at waits until the session sends to an address, and carries a program's packets there and back.
func (s *session) at(server netip.AddrPort, carries func() error) {
	s.w.t.Helper()
	polltest.Until(s.w.t, func() error {
		err := carries() // a relay's session begins with the first packet
		if got := s.server(); got != server.String() {
			return fmt.Errorf("it sends to %s, not %v\n%s", got, server, s.Log())
		}
		return err
	})
}

// watch captures at the client's devices until stop, which gives the packets that named the attacker's address, and by which
// networks they went, and how many packets each network carried to an address.
func (w *world) watch() (stop func() (sent map[netip.Addr]map[string]int)) {
	w.t.Helper()
	dir, places := w.t.TempDir(), map[string]string{}
	for _, way := range lab.Ways {
		places[way] = "client/" + way
	}
	end := labtest.Capture(w.t, w.Instance, dir, places)
	return sync.OnceValue(func() map[netip.Addr]map[string]int {
		w.t.Helper()
		end()
		sent := map[netip.Addr]map[string]int{}
		own := w.Host("client").Addrs()
		for way := range places {
			for _, p := range labtest.Packets(w.t, filepath.Join(dir, way+".pcapng")) {
				ip, is4 := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
				if !is4 {
					continue
				}
				from, _ := netip.AddrFromSlice(ip.SrcIP)
				to, _ := netip.AddrFromSlice(ip.DstIP)
				if !slices.Contains(own, from.Unmap()) {
					continue
				}
				if sent[to] == nil {
					sent[to] = map[string]int{}
				}
				sent[to][way]++
			}
		}
		return sent
	})
}
