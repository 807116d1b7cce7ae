package pathkinds

import (
	"net/netip"
	"strings"
	"testing"

	"heddle/lab"
)

// An address does not choose a network: without rules both leave by the default route's device, and Heddle says so.
// With the rules of docs/paths.md each leaves by its own.
func TestSourceAddressesNeedRules(t *testing.T) {
	w := newWorld(t, lab.ThreeWaysUnlimited())
	ask := w.udpEcho("server", quicAt, relayAt)
	via := []string{"--via", "a=src:" + homeAddr.String(), "--via", "b=src:" + lteAddr.String(), "--schedule", "round-robin", "--every", "1p"}
	stop := w.watch("lte-gw/client")
	relay := w.split(via...)
	if _, err := w.udp("client", netip.MustParseAddrPort("127.0.0.1:0")).WriteToUDPAddrPort([]byte("hello"), relayAt); err != nil {
		t.Fatal(err)
	}
	w.await("a warning", relay, func() bool { return strings.Contains(relay.Log(), "paths a and b share an observer (if:home)") })
	relay.Stop()
	wantPeers(t, "lte", stop()["lte-gw/client"])
	for _, c := range []string{"route add default via 10.101.1.1 dev home table 101", "rule add from 10.101.1.2 lookup 101",
		"route add default via 10.101.2.1 dev lte table 102", "rule add from 10.101.2.2 lookup 102"} {
		if out, err := w.Host("client").Command(t.Context(), "ip", strings.Fields(c)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", c, err, out)
		}
	}
	stop = w.watch("home-gw/client", "lte-gw/client")
	relay = w.split(via...)
	ask(20)
	relay.Stop()
	seen := stop()
	wantPeers(t, "home", seen["home-gw/client"], homeToServer)
	wantPeers(t, "lte", seen["lte-gw/client"], between(lteAddr, quicAt.Addr()))
	if strings.Contains(relay.Log(), "share an observer") {
		t.Errorf("with rules:\n%s", relay.Log())
	}
}
