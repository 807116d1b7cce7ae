package pathkinds

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"heddle/internal/nstest"
	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

var (
	nameserverAt = netip.AddrPortFrom(lab.ServerAddr, 53)
	nodeAt       = netip.AddrPortFrom(openvpnAt.Addr(), peer.NodePort) // the host of other tests' OpenVPN
)

// nameserver is the only one that the client has. It answers from when the test says so.
type nameserver struct {
	answer chan struct{} // closed by then

	mu    sync.Mutex
	asked map[string][]netip.Addr // who asked for a name
}

// names starts the nameserver on the server.
func (w *world) names(records map[string]netip.Addr) *nameserver {
	w.t.Helper()
	n := &nameserver{answer: make(chan struct{}), asked: map[string][]netip.Addr{}}
	var socket net.PacketConn
	if err := w.Host("server").Do(func() (err error) {
		socket, err = net.ListenPacket("udp4", nameserverAt.String())
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	s := &dns.Server{PacketConn: socket, Handler: dns.HandlerFunc(func(out dns.ResponseWriter, q *dns.Msg) {
		name := strings.TrimSuffix(q.Question[0].Name, ".")
		n.mu.Lock()
		n.asked[name] = append(n.asked[name], out.RemoteAddr().(*net.UDPAddr).AddrPort().Addr())
		n.mu.Unlock()
		select {
		case <-n.answer:
		case <-w.t.Context().Done():
			return
		}
		m := new(dns.Msg)
		m.SetReply(q)
		m.RecursionAvailable = true // else an answer without an address is asked for again
		if at, ok := records[name]; ok && q.Question[0].Qtype == dns.TypeA {
			m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: at.AsSlice()})
		}
		_ = out.WriteMsg(m)
	})}
	go func() { _ = s.ActivateAndServe() }()
	w.t.Cleanup(func() { _ = s.Shutdown() })
	return n
}

// wasAsked reports whether the name was asked for, by this address only.
func (n *nameserver) wasAsked(t *testing.T, name string, by netip.Addr) bool {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range n.asked[name] {
		if a != by {
			t.Fatalf("%v asks for %s, and not %v only", a, name, by)
		}
	}
	return len(n.asked[name]) > 0
}

func (n *nameserver) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.asked)
}

// named is the world of [newTunnels], whose client has the nameserver, with a full tunnel in session.conf, and a way out of each
// kind by name.
func named(t *testing.T) (w *tunnels, start func() *relay) {
	t.Helper()
	ways := waysOut()
	for i := range ways.Hosts {
		ways.Hosts[i].Nameservers = []netip.Addr{nameserverAt.Addr()}
	}
	w = &tunnels{world: newWorld(t, ways), file: filepath.Join(t.TempDir(), "tunnel.conf")}
	o, err := peer.NewOverlay(labtest.Heddle, t.TempDir(), w.Instance)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Stop)
	w.dante("proxy", danteConfig{listen: proxyAt})
	_, masque, secret := w.masque()
	w.need(o.Node(t.Context(), "openvpn"))
	pass, err := o.Pass(t.Context(), "n", "openvpn", nodeAt.Addr())
	if err != nil {
		t.Fatal(err)
	}
	w.rename(pass, nodeAt, "node.example")
	if _, err := peer.WireGuardServer(t.Context(), w.Host("vpn"), peer.WireGuardConfig{Endpoint: vpnAt, File: w.file}); err != nil {
		t.Fatal(err)
	}
	w.rename(w.file, vpnAt, "vpn.example")
	session := filepath.Join(t.TempDir(), "session.conf")
	if w.far, err = peer.WireGuardServer(t.Context(), w.Host("server"), peer.WireGuardConfig{Endpoint: tunnelAt, MTU: sessionMTU, File: session,
		Server: []netip.Prefix{netip.MustParsePrefix("10.77.0.1/24")}, Client: []netip.Prefix{insideSession},
		DNS: []netip.Addr{netip.MustParseAddr("10.77.0.1")}}); err != nil {
		t.Fatal(err)
	}
	w.web()
	args := append([]string{"HEDDLE_HOME=" + o.Home("client"), "PATH=", // no resolvconf and no resolvectl, whatever this machine has
		labtest.Heddle, "up", session, "--name", "tunnels", "--min-paths", "4", "--schedule", "round-robin", "--every", "5p",
		"--via", "m=" + strings.Replace(masque, masqueAt.Addr().String(), "masque.example", 1) + "@lte", "--via", "n=node:" + pass,
		"--via", "p=socks5:proxy.example:1080@home", "--via", "t=wireguard:" + w.file + "@office",
		"--path", "home=if:home", "--path", "lte=if:lte", "--path", "office=if:office"}, secret...)
	return w, func() *relay { return &relay{w.need(peer.Start(t.Context(), w.Host("client"), "env", args...)), w} }
}

// rename puts a name into a file for the address of a server.
func (w *tunnels) rename(file string, at netip.AddrPort, name string) {
	w.t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte(strings.Replace(string(text), at.Addr().String(), name, 1)), 0o600)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// bystander is another program on the client, which sends to the nameserver's machine until the test ends. sent counts what the
// kernel took.
func (w *world) bystander() (sent func() int) {
	w.t.Helper()
	var mu sync.Mutex
	n := 0
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	w.t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = w.Host("client").Do(func() error {
				c, err := net.Dial("udp", netip.AddrPortFrom(lab.ServerAddr, 54).String())
				if err != nil {
					return err
				}
				defer c.Close()
				mu.Lock()
				defer mu.Unlock()
				if _, err = c.Write([]byte("in clear")); err == nil {
					n++
				}
				return err
			})
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// Under the kill switch, the name of a path's own server is asked for over what the path rides, at the nameservers of before the
// tunnel: at the start, and again when the path is opened again. Nothing else leaves.
func TestKillSwitchAndPathsByName(t *testing.T) {
	w, start := named(t)
	servers := map[string]netip.Addr{"masque.example": masqueAt.Addr(), "proxy.example": proxyAt.Addr(), "vpn.example": vpnAt.Addr(), "node.example": nodeAt.Addr()}
	names := w.names(servers)
	askers := map[string]netip.Addr{"masque.example": lteAddr, "proxy.example": homeAddr, "vpn.example": officeAddr, "node.example": homeAddr}
	// With strict filtering the kernel drops what comes by home, once the default route is the tunnel, unless it belongs to marked packets.
	if err := w.Host("client").Do(func() error {
		return errors.Join(nstest.Set("ipv4/conf/all/rp_filter", "1"), nstest.Set("ipv4/conf/home/rp_filter", "1")) // the larger one holds
	}); err != nil {
		t.Fatal(err)
	}
	sent := w.bystander()
	polltest.Await(t, "packets of another program without a tunnel", func() bool { return sent() > 0 })

	r := start()
	w.await("the claim", r.Process, func() bool { return strings.Contains(r.Log(), "all else is kept from leaving") })
	before, claims := sent(), r.Log()
	stop := w.watch("client/home", "client/lte", "client/office")
	for name, by := range askers {
		w.await("a question for "+name, r.Process, func() bool { return names.wasAsked(t, name, by) })
		if !regexp.MustCompile(`claim: the name ` + name + `, of path \w, is asked of this machine's nameservers over `).MatchString(claims) {
			t.Errorf("no claim about %s:\n%s", name, claims)
		}
	}
	if n := sent(); n > before {
		t.Errorf("%d packets of another program left before the tunnel was up", n-before)
	}
	close(names.answer)
	w.await("is up", r.Process, func() bool { return strings.Contains(r.Log(), "is up: device") })
	if err := w.fetch(); err != nil {
		t.Fatalf("%v\n%s", err, r.Log())
	}
	names.forget()
	for _, device := range []string{"home", "office"} {
		if err := w.Link(device).Unplug(); err != nil {
			t.Fatal(err)
		}
		r.await(func(paths map[string]pathStatus) bool { return !up(paths) })
		if err := w.Link(device).Restore(); err != nil {
			t.Fatal(err)
		}
		r.await(up)
	}
	if !names.wasAsked(t, "proxy.example", homeAddr) {
		t.Error("the proxy was not looked up again")
	}
	if err := w.fetch(); err != nil {
		t.Fatalf("%v\n%s", err, r.Log())
	}
	seen := stop()
	for place, c := range seen {
		for _, p := range c.Packets {
			if f := c.Flows[p.Flow]; p.Out && f.Transport == "ip" && f.Server.Addr().Is4() && !f.Server.Addr().IsMulticast() {
				t.Errorf("%s carried an ICMP message or the like to %v", place, f.Server)
			}
		}
	}
	question := "udp " + nameserverAt.String()
	lte := conversations(seen["client/lte"])
	delete(lte, "udp "+nodeAt.String()) // the way of this machine's own routes while home is down
	only(t, "home", conversations(seen["client/home"]), 1, question, "tcp "+proxyAt.String(), "udp "+proxyAt.Addr().String(), "udp "+nodeAt.String())
	only(t, "lte", lte, 1, question, "udp "+masqueAt.String())
	only(t, "office", conversations(seen["client/office"]), 1, question, "WireGuard "+vpnAt.String())
}
