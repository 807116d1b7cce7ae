package pathkinds

import (
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
	"heddle/observe"
)

// The proxy of these tests runs on core, beside the server:
//
//	client ==lte== lte-gw --- core (proxy, 192.0.2.254:4433) --- server 192.0.2.1
//	       ==home= home-gw ---/

var (
	masqueAt = netip.MustParseAddrPort("192.0.2.254:4433")
	quicAt   = netip.AddrPortFrom(lab.ServerAddr, 443)
	relayAt  = netip.MustParseAddrPort("127.0.0.1:4000")
)

// masque starts a proxy, and gives how a client names it and the flag with its token's file.
func (w *world) masque(args ...string) (proxy *peer.Process, place string, secret []string) {
	w.t.Helper()
	m, err := peer.MasqueProxy(w.t.Context(), w.Host("core"), labtest.Heddle, w.dir, masqueAt, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(m.Stop)
	return m.Process, m.Place, []string{"--secret", "m=" + m.Token}
}

// split starts a relay to the server over the paths that args name.
func (w *world) split(args ...string) *peer.Process {
	w.t.Helper()
	return w.start("client", "listening on", append([]string{"split", "--listen", relayAt.String(), "--to", quicAt.String()}, args...)...)
}

// between is how peers names two ends.
func between(a, b netip.Addr) string {
	if b.Less(a) {
		a, b = b, a
	}
	return a.String() + " " + b.String()
}

var (
	homeToServer  = between(homeAddr, quicAt.Addr())
	lteToProxy    = between(lteAddr, masqueAt.Addr())
	proxyToServer = between(masqueAt.Addr(), quicAt.Addr())
)

func wantPeers(t *testing.T, place string, c *observe.Capture, want ...string) {
	t.Helper()
	got := peers(c)
	slices.Sort(want)
	if seen := slices.Sorted(maps.Keys(got)); !slices.Equal(seen, want) {
		t.Errorf("%s saw %v, want %v", place, got, want)
	}
}

func TestMasqueCarriesQUIC(t *testing.T) {
	w := newWorld(t, lab.ThreeWays())
	w.quicEcho("server", quicAt, 1280)
	_, place, secret := w.masque()
	stop := w.watch("lte-gw/client", "home-gw/client", "server/core")
	w.split(append(secret, "--via", "m="+place+"@lte", "--path", "lte=if:lte")...)
	echoed(t, w.quicDial(relayAt, 1280), 1<<19) // what quic-go begins with
	seen := stop()
	wantPeers(t, "lte", seen["lte-gw/client"], lteToProxy)
	wantPeers(t, "home", seen["home-gw/client"])
	wantPeers(t, "the server", seen["server/core"], proxyToServer)
	for _, f := range seen["lte-gw/client"].Flows {
		if f.Transport == "udp" && f.Server != masqueAt {
			t.Errorf("lte saw a flow to %v", f.Server)
		}
	}
}

func TestMasqueBesideAnotherPath(t *testing.T) {
	w := newWorld(t, labtest.WithBystander(lab.ThreeWays()))
	t.Cleanup(labtest.Unchosen(t, w.Instance, "client/"+labtest.Bystander))
	w.quicEcho("server", quicAt, 1280)
	_, place, secret := w.masque()
	w.split(append(secret, "--via", "home=if:home", "--via", "m="+place+"@lte", "--path", "lte=if:lte", "--schedule", "round-robin", "--every", "100ms")...)
	polltest.Again(t, func(int) error { // a path that a busy machine made late carries little
		stop := w.watch("lte-gw/client", "home-gw/client", "server/core")
		echoed(t, w.quicDial(relayAt, 1280), 1<<22) // many units after the handshake, which keeps one path
		seen := stop()
		wantPeers(t, "lte", seen["lte-gw/client"], lteToProxy)
		wantPeers(t, "home", seen["home-gw/client"], homeToServer)
		wantPeers(t, "the server", seen["server/core"], homeToServer, proxyToServer)
		up := peers(seen["server/core"])
		if share := float64(up[proxyToServer]) / float64(up[proxyToServer]+up[homeToServer]); share < 0.1 || share > 0.9 {
			return fmt.Errorf("the proxy had %.2f of the packets: %v", share, up)
		}
		return nil
	})
}

// A proxy that goes away takes nothing with it, and is used again once it is back.
func TestMasqueProxyVanishes(t *testing.T) {
	w := newWorld(t, lab.ThreeWays())
	ask := w.udpEcho("server", quicAt, relayAt)
	proxy, place, secret := w.masque()
	relay := w.split(append(secret, "--via", "home=if:home", "--via", "m="+place+"@lte", "--path", "lte=if:lte", "--min-paths", "1",
		"--schedule", "round-robin", "--every", "1p")...)
	ask(20)
	out, err := w.Host("core").Command(t.Context(), labtest.Heddle, "status", "masque-4433").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ann: 1 flow open") {
		t.Errorf("status of the proxy: %v\n%s", err, out)
	}
	proxy.Stop()
	w.await("path is down", relay, func() bool { return strings.Contains(relay.Log(), "path is down") })
	stop := w.watch("home-gw/client", "server/core")
	ask(20)
	seen := stop()
	wantPeers(t, "home", seen["home-gw/client"], homeToServer)
	wantPeers(t, "the server", seen["server/core"], homeToServer)
	w.masque()
	back := w.watch("server/core")
	w.await("path is up again", relay, func() bool {
		ask(2)
		return strings.LastIndex(relay.Log(), "path is up") > strings.LastIndex(relay.Log(), "path is down")
	})
	ask(20)
	wantPeers(t, "the server", back()["server/core"], homeToServer, proxyToServer)
}

// A network whose device is narrow is refused before anything is sent.
func TestMasqueOverANarrowDevice(t *testing.T) {
	spec := lab.ThreeWaysUnlimited()
	for i := range spec.Links {
		if spec.Links[i].Name == "lte" {
			spec.Links[i].MTU = 1300
		}
	}
	w := newWorld(t, labtest.WithBystander(spec))
	t.Cleanup(labtest.Unchosen(t, w.Instance, "client/"+labtest.Bystander))
	w.quicEcho("server", quicAt, 1280)
	_, place, secret := w.masque()
	stop := w.watch("lte-gw/client")
	relay := w.split(append(secret, "--via", "home=if:home", "--via", "m="+place+"@lte", "--path", "lte=if:lte", "--min-paths", "1")...)
	echoed(t, w.quicDial(relayAt, 1280), 1<<16)
	w.await("needs 1308", relay, func() bool {
		return strings.Contains(relay.Log(), "carries packets of 1300 bytes, and QUIC inside QUIC needs 1308")
	})
	wantPeers(t, "lte", stop()["lte-gw/client"])
}

// A device that is narrow, but not too narrow, costs no round of handshakes: the proxy begins with packets that pass it.
func TestMasqueProxyBeginsWithWhatTheDeviceCarries(t *testing.T) {
	const mtu = 1360
	spec := lab.ThreeWaysUnlimited()
	for i := range spec.Links {
		if spec.Links[i].Name == "lte" {
			spec.Links[i].MTU = mtu
		}
	}
	w := newWorld(t, spec)
	t.Cleanup(labtest.Unchosen(t, w.Instance, "client/home"))
	w.quicEcho("server", quicAt, 1280)
	_, place, secret := w.masque()
	stop := w.watch("core/lte")
	w.split(append(secret, "--via", "m="+place+"@lte", "--path", "lte=if:lte")...)
	echoed(t, w.quicDial(relayAt, 1280), 1<<16)
	seen, first := stop()["core/lte"], map[int]int{}
	for _, p := range seen.Packets {
		if f := seen.Flows[p.Flow]; f.Server == masqueAt && !p.Out && first[p.Flow] == 0 {
			first[p.Flow] = p.Size
		}
	}
	if len(first) == 0 {
		t.Error("no packet of the proxy")
	}
	for _, size := range first {
		if size > mtu {
			t.Errorf("the first packets of the proxy, in bytes, one for each round: %v", first)
		}
	}
}

// A server that sends packets of 1,350 bytes from the start, as quiche's do, reaches its client although the connection to the proxy has not
// searched for the largest packet yet.
func TestMasqueCarriesAServerOf1350(t *testing.T) {
	w := newWorld(t, lab.ThreeWaysUnlimited())
	w.quicEcho("server", quicAt, 1350)
	_, place, secret := w.masque()
	w.split(append(secret, "--via", "m="+place+"@lte", "--path", "lte=if:lte")...)
	echoed(t, w.quicDial(relayAt, 1200), 1<<16)
}

// A network that is narrow further away is found out by what does not arrive.
func TestMasqueOverANarrowNetwork(t *testing.T) {
	spec := lab.ThreeWaysUnlimited()
	for i := range spec.Links {
		if spec.Links[i].Name == "lte-core" {
			spec.Links[i].MTU = 1340
		}
	}
	w := newWorld(t, spec)
	t.Cleanup(labtest.Unchosen(t, w.Instance, "client/home"))
	w.quicEcho("server", quicAt, 1200)
	_, place, secret := w.masque()
	stop := w.watch("server/core")
	w.split(append(secret, "--via", "m="+place+"@lte", "--path", "lte=if:lte")...)
	echoed(t, w.quicDial(relayAt, 1200), 1<<16)
	wantPeers(t, "the server", stop()["server/core"], proxyToServer)
}

// The tunnel of WireGuard fits, and its server sees the proxy.
func TestMasqueCarriesWireGuard(t *testing.T) {
	w := newWorld(t, lab.ThreeWays())
	file := filepath.Join(w.dir, "vpn.conf")
	_, err := peer.WireGuardServer(t.Context(), w.Host("server"), peer.WireGuardConfig{Endpoint: netip.AddrPortFrom(lab.ServerAddr, 51820), File: file,
		Allowed: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")}})
	if err != nil {
		t.Fatal(err)
	}
	_, place, secret := w.masque()
	stop := w.watch("lte-gw/client", "home-gw/client", "server/core")
	up := w.start("client", "running", append([]string{"up", file, "--via", "home=if:home", "--via", "m=" + place + "@lte", "--path", "lte=if:lte",
		"--schedule", "round-robin", "--every", "5p"}, secret...)...)
	w.await("a ping", up, func() bool {
		out, err := w.Host("client").Command(t.Context(), "ping", "-c", "40", "-i", "0.02", "-W", "2", "-s", "1200", "10.9.0.1").CombinedOutput()
		if err != nil {
			t.Logf("%v: %s", err, out)
		}
		return err == nil && strings.Contains(string(out), " 0% packet loss")
	})
	up.Stop()
	seen := stop()
	wantPeers(t, "lte", seen["lte-gw/client"], lteToProxy)
	wantPeers(t, "home", seen["home-gw/client"], homeToServer)
	wantPeers(t, "the server", seen["server/core"], homeToServer, proxyToServer)
	if got := peers(seen["server/core"]); got[proxyToServer] < 30 {
		t.Errorf("the server saw %v", got)
	}
}

// What the proxy refuses is said, and nothing leaves in another way.
func TestMasqueRefusals(t *testing.T) {
	w := newWorld(t, lab.ThreeWaysUnlimited())
	w.quicEcho("server", quicAt, 1280)
	_, place, secret := w.masque("--deny", "192.0.2.1")
	stop := w.watch("lte-gw/client", "home-gw/client", "server/core")
	relay := w.split(append(secret, "--via", "m="+place+"@lte", "--path", "lte=if:lte")...)
	client := w.udp("client", netip.MustParseAddrPort("127.0.0.1:0"))
	if _, err := client.WriteToUDPAddrPort([]byte("hello"), relayAt); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("the proxy does not forward to %v", quicAt)
	w.await(want, relay, func() bool { return strings.Contains(relay.Log(), want) })
	seen := stop()
	wantPeers(t, "home", seen["home-gw/client"])
	wantPeers(t, "the server", seen["server/core"])
}
