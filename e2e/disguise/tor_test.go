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

// fetches has an unmodified Tor reach the network by the transport and a bridge line, and compares what it fetches. It returns whom the
// bridge is connected with meanwhile (control-spec, orconn-status).
func (w *torBridge) fetches(line string, flags ...string) (connected string) {
	w.t.Helper()
	w.clients++
	socks, client, heddle := 9060+w.clients, w.Host("client"), peer.HeddleTransport(labtest.Heddle, flags...)
	tor, err := w.network.Client(w.t.Context(), client, fmt.Sprint("client", w.clients), socks, line, heddle)
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
	if connected, err = w.bridge.Ask("GETINFO orconn-status"); err != nil {
		w.t.Fatal(err)
	}
	return connected
}

// Debian's Tor with the transport at both ends reaches the network, and what it fetches is right. With connections of 15 kB it does so
// behind a filter that freezes those which carry 16 kB. It also reaches it by bridges that are websites, of their own and behind nginx.
func TestTorOverTheTransport(t *testing.T) {
	w := newTorBridge(t)
	before, err := w.Link("access").Status()
	if err != nil {
		t.Fatal(err)
	}
	w.fetches(w.bridge.Line("heddle"))
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
	w.fetches(w.bridge.Line("heddle"), "--max-bytes-per-connection", "15kB")
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

// websites has Tor reach the network by bridges that are websites. The network sees HTTP with the one and TLS with the others, and nothing
// else. Those behind nginx know their clients by what it says, and strangers see the operator's own site.
func (w *torBridge) websites() {
	w.t.Helper()
	site := ":site=" + recordedSite(w.t)
	cover, certificate, key := pinned(w.t)
	w.website("http", peer.HeddleTransport(labtest.Heddle, "--cover", "http"+site))
	w.website("https", peer.HeddleTransport(labtest.Heddle, "--cover", cover+":certificate="+certificate+":key="+key))

	socket := filepath.Join(w.t.TempDir(), "bridge.sock")
	behind := peer.HeddleTransport(labtest.Heddle)
	behind.Options = []string{"cover=" + cover, "behind=unix:" + socket, "visitor-header=X-Forwarded-For", "origin=http://127.0.0.1:8080"}
	at := netip.AddrPortFrom(w.Host("bridge").Addrs()[0], behind.Port)
	front := peer.Front{Listen: at, To: "http://unix:" + socket + ":", Certificate: certificate, Key: key}
	nginx := w.fronted(front)
	client := w.Host("client").Addrs()[0].String() + ":1 CONNECTED"
	if connected := w.website("https", behind); !strings.Contains(connected, client) {
		w.t.Errorf("behind nginx Tor is connected with\n%s", connected)
	}
	page := filepath.Join(w.t.TempDir(), "page")
	_, err := peer.Curl(w.t.Context(), w.Host("client"), "https://"+at.String()+"/", page, "--insecure")
	if text, readErr := os.ReadFile(page); err != nil || readErr != nil || string(text) != ownPage {
		w.t.Errorf("a stranger gets %q, %v, %v", text, err, readErr)
	}
	nginx.Stop()

	front.To = "http://127.0.0.1:8081"
	w.fronted(front)
	w.visited("https", w.serve(at, cover, "127.0.0.1:8081"))
}

const ownPage = "<!doctype html><title>Own</title><p>The operator's own page.\n"

// fronted starts nginx in front of a bridge. It also has the operator's own site.
func (w *torBridge) fronted(f peer.Front) *peer.Process {
	w.t.Helper()
	f.Work = w.t.TempDir()
	if err := os.WriteFile(filepath.Join(f.Work, "index.html"), []byte(ownPage), 0o644); err != nil {
		w.t.Fatal(err)
	}
	f.More = "server { listen 127.0.0.1:8080; root " + f.Work + "; }"
	nginx, err := f.Start(w.t.Context(), w.Host("bridge"))
	if errors.Is(err, peer.ErrMissing) {
		w.t.Skip(err)
	} else if err != nil {
		w.t.Fatal(err)
	}
	return nginx
}

// website starts the bridge anew, as a website.
func (w *torBridge) website(protocol string, t peer.TorTransport) (connected string) {
	w.t.Helper()
	w.bridge.Stop()
	if err := os.Remove(filepath.Join(w.bridge.Dir, "pt_state", "heddle_bridgeline.txt")); err != nil {
		w.t.Fatal(err)
	}
	var err error
	if w.bridge, err = w.network.Bridge(w.t.Context(), w.Host("bridge"), t); err != nil {
		w.t.Fatal(err)
	}
	return w.visited(protocol, w.bridge.Line(t.Name))
}

// visited fetches by a bridge that is a website.
func (w *torBridge) visited(protocol, line string) (connected string) {
	w.t.Helper()
	dir := w.t.TempDir()
	end := labtest.Capture(w.t, w.Instance, dir, map[string]string{"isp": "isp/client"})
	connected = w.fetches(line, "--cover", protocol+":site="+recordedSite(w.t))
	end()
	if n := spoken(w.t, labtest.File(dir, "isp"), netip.MustParseAddrPort(strings.Fields(line)[1]), protocol); n < 1_000_000 {
		w.t.Errorf("%s: %d bytes come down", line, n)
	}
	return connected
}

// serve starts `heddle disguise serve` behind a web server, which leads to the ORPort of the bridge. It returns the bridge line.
func (w *torBridge) serve(at netip.AddrPort, cover, behind string) (line string) {
	w.t.Helper()
	host, dir := w.Host("bridge"), w.t.TempDir()
	key, plain := filepath.Join(dir, "bridge.pem"), strings.Fields(w.bridge.Line(""))
	out, err := host.Command(w.t.Context(), labtest.Heddle, "disguise", "keys", "--address", at.String(), "--identity", key, "--cover", cover).Output()
	if err != nil {
		w.t.Fatal(err)
	}
	p, err := peer.Start(w.t.Context(), host, labtest.Heddle, "disguise", "serve", "--identity", key, "--state", filepath.Join(dir, "state"), "--cover", cover,
		"--behind", behind, "--to", plain[0])
	if err == nil {
		err = p.AwaitLog(w.t.Context(), "listening on")
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(p.Stop)
	_, line, _ = strings.Cut(strings.TrimSpace(string(out)), " ")
	return strings.Replace(line, at.String(), at.String()+" "+plain[1], 1)
}
