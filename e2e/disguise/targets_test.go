package disguise

import (
	"bytes"
	"crypto/rand"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// copyBoth copies a file to the server by scp and back, by a port of the client.
func (w *bridgeWorld) copyBoth(s *peer.SSH, port string) {
	w.t.Helper()
	dir := w.t.TempDir()
	file, there, back := filepath.Join(dir, "file"), filepath.Join(dir, "there"), filepath.Join(dir, "back")
	want := make([]byte, copied)
	rand.Read(want)
	if err := os.WriteFile(file, want, 0o600); err != nil {
		w.t.Fatal(err)
	}
	for _, way := range [][2]string{{file, "127.0.0.1:" + there}, {"127.0.0.1:" + there, back}} {
		if out, err := w.Host("client").Command(w.t.Context(), "scp", "-q", "-F", s.Config, "-P", port, way[0], way[1]).CombinedOutput(); err != nil {
			w.t.Fatalf("scp: %v\n%s\n%s", err, out, s.Log())
		}
	}
	if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, want) {
		w.t.Errorf("%d bytes came back of %d, %v", len(got), len(want), err)
	}
}

const copied = 1_000_000 // bytes

// seen returns how many bytes each network saw. It fails if one saw another address than the bridge's, or text of the program.
func (w *bridgeWorld) seen(dir string, networks map[string]string, text string) map[string]int {
	w.t.Helper()
	total := map[string]int{}
	for name := range networks {
		for place, n := range bytesBy(w.t, labtest.Read(w.t, labtest.File(dir, name), clients)) {
			if place != netip.AddrPortFrom(lab.ServerAddr, 443) {
				w.t.Errorf("%s saw %d bytes with %v", name, n, place)
			}
			total[name] += n
		}
		data, err := os.ReadFile(labtest.File(dir, name))
		if err != nil || bytes.Contains(data, []byte(text)) {
			w.t.Errorf("%s could read %q: %v", name, text, err)
		}
	}
	return total
}

// scp to an sshd that is the bridge's target. Neither knows of the bridge, and the network does not see what they speak.
func TestSSHServerBehindABridge(t *testing.T) {
	w := newBridgeWorld(t, "--to", "127.0.0.1:22")
	s := w.SSH("server")
	places, dir := map[string]string{"lte": "lte-gw/client"}, t.TempDir()
	end := labtest.Capture(t, w.Instance, dir, places)
	w.Start("client", "disguise is up", "disguise", "dial", w.client, "--listen", "127.0.0.1:2222", "--to", "bridge", "--via", "lte=if:lte")
	w.copyBoth(s, "2222")
	end()
	if total := w.seen(dir, places, "SSH-2.0"); total["lte"] < 2*copied {
		t.Errorf("the network saw %v bytes", total)
	}
}

// A stream server that listens behind a bridge. Its client stripes over two disguised paths, each by another network.
func TestStreamServerBehindABridge(t *testing.T) {
	at := netip.MustParseAddrPort("127.0.0.1:4470")
	w := newBridgeWorld(t, "--destinations", "--allow", at.String())
	s := w.SSH("server")
	w.StreamServer("server", at, "stream", "serve", "--name", "ssh", "--to", "127.0.0.1:22")
	places, dir := map[string]string{"home": "home-gw/client", "lte": "lte-gw/client", "office": "office-gw/client"}, t.TempDir()
	end := labtest.Capture(t, w.Instance, dir, places)
	w.Start("client", "is up", "stream", "dial", "ssh", "--to", at.String(), "--key", w.Key("server"), "--listen", "127.0.0.1:2222", "--schedule", "strict",
		"--path", "home=if:home", "--path", "lte=if:lte", "--via", "a=disguise:"+w.client+"@home", "--via", "b=disguise:"+w.client+"@lte")
	w.copyBoth(s, "2222")
	end()
	total := w.seen(dir, places, "SSH-2.0")
	if whole := 2 * copied; total["home"] < whole*2/5 || total["lte"] < whole*2/5 || total["office"] > 0 {
		t.Errorf("the networks saw %v bytes", total)
	}
}

// nodeAt is where a node behind the bridge listens.
var (
	nodeAt = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), peer.NodePort)
	toNode = []string{"--destinations", "--allow", nodeAt.String()}
)

// nodeBehind starts an overlay node that only the bridge reaches. It returns the flags of a path to it by a device.
func (w *bridgeWorld) nodeBehind(device string) []string {
	w.t.Helper()
	w.Node("server", "--listen", nodeAt.String())
	w.Pass("hidden", "server", nodeAt.Addr(), "--to", lab.WebAddr.String())
	return []string{"--via", "n=node:hidden@b", "--path", "b=disguise:" + w.client + "@" + device, "--path", device + "=if:" + device}
}

// An overlay node that listens behind a bridge: the network sees the bridge, and the website the node.
func TestNodeBehindABridge(t *testing.T) {
	w := newBridgeWorld(t, toNode...)
	flags := w.nodeBehind("lte")
	places, dir := map[string]string{"lte": "lte-gw/client"}, t.TempDir()
	end := labtest.Capture(t, w.Instance, dir, places)
	out, talk, err := w.Try("client", "GET / HTTP/1.0\r\n\r\n", append(append([]string{"connect"}, flags...), lab.WebAddr.String(), "80")...)
	if err != nil || !strings.HasSuffix(out, string(w.page)) {
		t.Errorf("%d bytes came, %v\n%s", len(out), err, talk)
	}
	end()
	if total := w.seen(dir, places, "nobody may read"); total["lte"] < len(w.page) {
		t.Errorf("the network saw %v bytes", total)
	}
}
