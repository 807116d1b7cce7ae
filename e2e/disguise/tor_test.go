package disguise

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"heddle/experiments/censor"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
	"heddle/observe"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// torBridge is a private Tor network with a bridge whose transport is Heddle's.
type torBridge struct {
	*lab.Instance
	t       *testing.T
	network *peer.TorNetwork
	bridge  *peer.TorBridge
	clients uint16
}

func newTorBridge(t *testing.T) *torBridge {
	t.Helper()
	w := &torBridge{Instance: labtest.Up(t, lab.Tor("tor", lab.DSL(0))), t: t}
	var err error
	if w.network, err = peer.TorSite(t.Context(), w.Instance); errors.Is(err, peer.ErrMissing) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if w.bridge, err = w.network.Bridge(t.Context(), w.Host("bridge"), peer.HeddleTransport(labtest.Heddle)); err != nil {
		t.Fatal(err)
	}
	return w
}

// fetches has an unmodified Tor reach the network by the transport, and compares what it fetches.
func (w *torBridge) fetches(flags ...string) {
	w.t.Helper()
	w.clients++
	socks, client, heddle := 9060+w.clients, w.Host("client"), peer.HeddleTransport(labtest.Heddle, flags...)
	tor, err := w.network.Client(w.t.Context(), client, fmt.Sprint("client", w.clients), socks, w.bridge.Line(heddle.Name), heddle)
	if err != nil {
		w.t.Fatal(err)
	}
	defer tor.Stop()
	file := filepath.Join(w.t.TempDir(), "large.bin")
	if _, err := peer.Curl(w.t.Context(), client, "http://web.example/large.bin", file, peer.BySOCKS(socks)...); err != nil {
		w.t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(w.Host("web").Dir(), "site", "large.bin"))
	if err != nil {
		w.t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) || len(got) != 1_000_000 {
		w.t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
	}
}

// Debian's Tor with the transport at both ends reaches the network, and what it fetches is right. With connections of 15 kB it does so
// behind a filter that freezes those which carry 16 kB. It also reaches it by bridges that are websites.
func TestTorOverTheTransport(t *testing.T) {
	w := newTorBridge(t)
	before, err := w.Link("access").Status()
	if err != nil {
		t.Fatal(err)
	}
	w.fetches()
	after, err := w.Link("access").Status()
	if err != nil {
		t.Fatal(err)
	}
	if down := after.BtoA.DeliveredBytes - before.BtoA.DeliveredBytes; down < 1_000_000 {
		t.Errorf("only %d bytes crossed the link", down)
	}

	dir := t.TempDir()
	end := labtest.Capture(t, w.Instance, dir, map[string]string{"isp": "isp/client"})
	filter, err := censor.Start(t.Context(), w.Host("isp"), censor.Options{Attacks: []string{"freeze"}, Clients: w.Host("client").Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { filter.Stop() })
	w.fetches("--max-bytes-per-connection", "15kB")
	end()
	if s := filter.Status(); s.Attacks[0].Connections > 0 || s.Packets == 0 || s.Lost > 0 {
		t.Errorf("%+v", s)
	}
	w.short(labtest.File(dir, "isp"))
	if err := filter.Stop(); err != nil {
		t.Error(err)
	}
	w.websites()
}

// short checks that the connections of a capture carry at most 15 kB each way, and a whole page in sum.
func (w *torBridge) short(file string) {
	w.t.Helper()
	f, err := os.Open(file)
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	all, stopped, err := observe.Conversations(f)
	if stopped != "" || err != nil {
		w.t.Fatal(stopped, err)
	}
	down := 0
	for _, c := range all {
		if len(c.Up) > 15_000 || len(c.Down) > 15_000 {
			w.t.Errorf("a connection carries %d bytes up and %d down", len(c.Up), len(c.Down))
		}
		down += len(c.Down)
	}
	if down < 1_000_000 {
		w.t.Errorf("%d bytes in %d connections", down, len(all))
	}
}

// websites has Tor reach the network by bridges that are websites. The network sees HTTP with the one and TLS with the other, and nothing else.
func (w *torBridge) websites() {
	w.t.Helper()
	site := ":site=" + recordedSite(w.t)
	cover, certificate, key := pinned(w.t)
	for name, flag := range map[string]string{"http": "http" + site, "https": cover + ":certificate=" + certificate + ":key=" + key} {
		w.bridge.Stop()
		if err := os.Remove(filepath.Join(w.bridge.Dir, "pt_state", "heddle_bridgeline.txt")); err != nil {
			w.t.Fatal(err)
		}
		var err error
		if w.bridge, err = w.network.Bridge(w.t.Context(), w.Host("bridge"), peer.HeddleTransport(labtest.Heddle, "--cover", flag)); err != nil {
			w.t.Fatal(err)
		}
		dir := w.t.TempDir()
		end := labtest.Capture(w.t, w.Instance, dir, map[string]string{"isp": "isp/client"})
		w.fetches("--cover", name+site)
		end()
		at := netip.MustParseAddrPort(strings.Fields(w.bridge.Line("heddle"))[1])
		if n := spoken(w.t, labtest.File(dir, "isp"), at, name); n < 1_000_000 {
			w.t.Errorf("%s: %d bytes come down", name, n)
		}
	}
}
