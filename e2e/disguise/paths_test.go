package disguise

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/netutil"
	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
	"heddle/observe"
)

const proxyAt = "127.0.0.1:1080"

// bridgeAt is where clients find the bridge.
var bridgeAt = netip.AddrPortFrom(lab.ServerAddr, 443)

// toWeb has a bridge lead clients to the website.
var toWeb = []string{"--destinations", "--allow", lab.WebAddr.String()}

// bridgeWorld has a bridge on the server, a website that only the server reaches, and a client with three networks.
type bridgeWorld struct {
	labtest.Overlay
	t      *testing.T
	client string // its bridge.toml
	key    string // the file of the bridge's
	bridge *peer.Process
	page   []byte
}

// newBridgeWorld takes the flags that say where the bridge leads.
func newBridgeWorld(t *testing.T, leads ...string) *bridgeWorld {
	t.Helper()
	w := newKeyedWorld(t)
	w.bridge = w.Start("server", "listening on", w.serving(bridgeAt, leads...)...)
	return w
}

// newKeyedWorld is a world whose bridge has a key, and does not run.
func newKeyedWorld(t *testing.T) *bridgeWorld {
	t.Helper()
	t.Parallel()
	w := &bridgeWorld{Overlay: labtest.UpOverlay(t, lab.ThreeWays()), t: t, client: filepath.Join(t.TempDir(), "bridge.toml"), key: filepath.Join(t.TempDir(), "bridge.pem"),
		page: bytes.Repeat([]byte("a page that nobody may read "), 60_000)}
	if out, err := w.Host("server").Command(t.Context(), labtest.Heddle, "disguise", "keys", "--address", bridgeAt.String(), "--identity", w.key, "--client", w.client).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	err := w.Host("web").Do(func() error {
		l, err := net.Listen("tcp", netip.AddrPortFrom(lab.WebAddr, 80).String())
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		go http.Serve(l, http.HandlerFunc(func(w2 http.ResponseWriter, _ *http.Request) { w2.Write(w.page) }))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// serving is the command of the bridge.
func (w *bridgeWorld) serving(at netip.AddrPort, leads ...string) []string {
	serve := []string{"disguise", "serve", "--identity", w.key, "--state", filepath.Join(w.t.TempDir(), "state")}
	if !slices.Contains(leads, "--behind") {
		serve = append(serve, "--listen", at.String())
	}
	return append(serve, leads...)
}

func (w *bridgeWorld) fetch(args ...string) error {
	file := filepath.Join(w.t.TempDir(), "page")
	_, err := peer.Curl(w.t.Context(), w.Host("client"), "http://"+lab.WebAddr.String()+"/", file, append(args, "--socks5-hostname", proxyAt)...)
	if err != nil {
		return err
	}
	if got, err := os.ReadFile(file); err != nil || sha256.Sum256(got) != sha256.Sum256(w.page) {
		w.t.Errorf("%d bytes of %d, %v", len(got), len(w.page), err)
	}
	return nil
}

// Each of two networks sees a part of a link, to the bridge and to nobody else. The third network sees nothing. When one path dies,
// the link stops, and nothing leaves another way.
func TestLinkOverTwoPaths(t *testing.T) {
	w := newBridgeWorld(t, toWeb...)
	places := map[string]string{"home": "home-gw/client", "lte": "lte-gw/client", "office": "office-gw/client"}
	dir := t.TempDir()
	end := labtest.Capture(t, w.Instance, dir, places)
	dial := w.Start("client", "disguise is up", "disguise", "dial", w.client, "--listen", proxyAt, "--via", "home=if:home", "--via", "lte=if:lte", "--schedule", "round-robin",
		"--connections", "6")
	for range 3 {
		if err := w.fetch(); err != nil {
			t.Fatalf("%v\n%s", err, dial.Log())
		}
	}
	if out, err := w.Host("client").Command(t.Context(), "ip", "link", "set", "lte", "down").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	polltest.Await(t, "the link stops", func() bool {
		if w.fetch("--max-time", "2") == nil {
			return false
		}
		out, err := w.Host("client").Command(t.Context(), labtest.Heddle, "disguise", "status").CombinedOutput()
		return err == nil && strings.Contains(string(out), "1 of 2 required paths")
	})
	dial.Stop()
	end()
	total := w.seen(dir, places, "nobody may read")
	if whole := total["home"] + total["lte"]; total["home"] < whole/10 || total["lte"] < whole/10 || whole < 3*len(w.page) || total["office"] > 0 {
		t.Errorf("the networks saw %v bytes", total)
	}
}

// A UDP session over a path that a bridge disguises, and over a node behind the bridge: the network of its base sees connections to
// the bridge, and no other network sees anything.
func TestDatagramsByThePath(t *testing.T) {
	t.Run("the bridge", func(t *testing.T) {
		w := newBridgeWorld(t, toWeb...)
		w.echoed("--via", "b=disguise:"+w.client+"@lte", "--path", "lte=if:lte")
	})
	t.Run("a node behind it", func(t *testing.T) {
		w := newBridgeWorld(t, toNode...)
		w.echoed(w.nodeBehind("lte")...)
	})
}

// echoed sends datagrams by heddle split with these flags, of which path lte is the only device.
func (w *bridgeWorld) echoed(flags ...string) {
	w.t.Helper()
	t := w.t
	err := w.Host("web").Do(func() error {
		echo, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(lab.WebAddr, 5000)))
		if err != nil {
			return err
		}
		t.Cleanup(func() { echo.Close() })
		go func() {
			b := make([]byte, 2000)
			for {
				n, from, err := echo.ReadFromUDPAddrPort(b)
				if err != nil {
					return
				}
				echo.WriteToUDPAddrPort(b[:n], from)
			}
		}()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	end := labtest.Capture(t, w.Instance, dir, map[string]string{"home": "home-gw/client", "lte": "lte-gw/client"})
	p := w.Start("client", "", append([]string{"split", "--listen", "127.0.0.1:5000", "--to", lab.WebAddr.String() + ":5000"}, flags...)...)
	var program net.Conn
	if err := w.Host("client").Do(func() (err error) { program, err = net.Dial("udp", "127.0.0.1:5000"); return err }); err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	answers := make(chan string, 1000)
	go func() {
		b := make([]byte, 2000)
		for {
			if n, err := program.Read(b); err == nil {
				netutil.Offer(answers, string(b[:n]))
			} else if errors.Is(err, net.ErrClosed) {
				return
			}
		}
	}()
	for i := range 20 {
		want := strings.Repeat("datagram ", 10+5*i)
		polltest.Await(t, "an answer", func() bool {
			program.Write([]byte(want))
			select {
			case got := <-answers:
				return got == want
			case <-time.After(50 * time.Millisecond):
				return false
			}
		})
	}
	p.Stop()
	end()
	home, lte := bytesBy(t, labtest.Read(t, labtest.File(dir, "home"), clients)), bytesBy(t, labtest.Read(t, labtest.File(dir, "lte"), clients))
	if len(home) > 0 || len(lte) != 1 || lte[netip.AddrPortFrom(lab.ServerAddr, 443)] < 5000 {
		t.Errorf("home saw %v, lte %v", home, lte)
	}
}

var clients = []netip.Addr{netip.MustParseAddr("10.101.1.2"), netip.MustParseAddr("10.101.2.2"), netip.MustParseAddr("10.101.3.2")}

// bytesBy sums what a capture has for each server.
func bytesBy(t *testing.T, c *observe.Capture) map[netip.AddrPort]int {
	t.Helper()
	sums := map[netip.AddrPort]int{}
	for _, p := range c.Packets {
		sums[c.Flows[p.Flow].Server] += p.Size
	}
	return sums
}
