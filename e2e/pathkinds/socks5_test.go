package pathkinds

import (
	"net/netip"
	"strings"
	"testing"

	"heddle/lab"
	"heddle/lab/peer"
)

// socks5 starts the unmodified SOCKS5 server of github.com/wzshiming/socks5 on a host, built from the module version that
// go.mod pins. It takes one user and password (RFC 1929), where danted knows the machine's accounts only, and relays UDP.
func (w *world) socks5(host string, at netip.AddrPort, user, password string) {
	w.t.Helper()
	program, err := peer.GoProgram(w.t.Context(), "socks5", "github.com/wzshiming/socks5", "/cmd/socks5")
	if err != nil {
		w.t.Fatal(err)
	}
	p := w.need(peer.Start(w.t.Context(), w.Host(host), program, "-a", at.String(), "-u", user, "-p", password))
	w.answers(host, p, at)
}

// A proxy that is not ours lets in who knows the password (RFC 1929), and relays UDP for nobody else.
func TestSOCKS5PasswordLetsIn(t *testing.T) {
	w := newWorld(t, lab.ThreeWaysUnlimited())
	ask := w.udpEcho("server", quicAt, relayAt)
	const right, wrong = "a-secret: with a colon", "another-secret"
	at := netip.MustParseAddrPort("10.100.2.2:1080") // core, as lte sees it: what the proxy relays has no other source there
	w.socks5("core", at, "anna", right)
	via := []string{"--via", "p=socks5:" + at.String() + "@lte", "--path", "lte=if:lte", "--secret"}

	stop := w.watch("lte-gw/client", "home-gw/client", "server/core")
	relay := w.split(append(via, "p="+w.secret("anna:"+right))...)
	ask(20)
	relay.Stop()
	seen := stop()
	wantPeers(t, "lte", seen["lte-gw/client"], between(lteAddr, at.Addr()))
	wantPeers(t, "home", seen["home-gw/client"])
	wantPeers(t, "the server", seen["server/core"], proxyToServer)

	stop = w.watch("server/core")
	refused := w.split(append(via, "p="+w.secret("anna:"+wrong))...)
	if _, err := w.udp("client", netip.MustParseAddrPort("127.0.0.1:0")).WriteToUDPAddrPort([]byte("hello"), relayAt); err != nil {
		t.Fatal(err)
	}
	const why = "does not accept the user and password"
	w.await(why, refused, func() bool { return strings.Contains(refused.Log(), why) })
	wantPeers(t, "the server", stop()["server/core"])
	for _, secret := range []string{right, wrong} {
		if strings.Contains(relay.Log()+refused.Log(), secret) {
			t.Errorf("%s is in the log:\n%s%s", secret, relay.Log(), refused.Log())
		}
	}
}
