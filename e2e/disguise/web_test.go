package disguise

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// A page by a bridge that is a website. The network sees conversations of HTTP with it, and tshark finds nothing malformed in them. A
// stranger browses the same bridge.
func TestBridgeThatIsAWebsite(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip(peer.ErrMissing, err)
	}
	site, err := filepath.Abs("../../disguise/cover/web/testdata/site.db")
	if err != nil {
		t.Fatal(err)
	}
	cover := "http:site=" + site
	w := newBridgeWorld(t, append(toWeb, "--cover", cover)...)
	places, dir := map[string]string{"home": "home-gw/client", "lte": "lte-gw/client"}, t.TempDir()
	end := labtest.Capture(t, w.Instance, dir, places)
	dial := w.Start("client", "disguise is up", "disguise", "dial", w.client, "--listen", proxyAt, "--via", "home=if:home", "--cover", cover)
	if err := w.fetch(); err != nil {
		t.Fatalf("%v\n%s", err, dial.Log())
	}
	at, page := netip.AddrPortFrom(lab.ServerAddr, 443).String(), filepath.Join(t.TempDir(), "page")
	if _, err := peer.Curl(t.Context(), w.Host("client"), "http://"+at+"/about", page, "--interface", "home"); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(page); err != nil || !bytes.Contains(got, []byte("never changes")) {
		t.Errorf("a stranger got %q, %v", got, err)
	}
	dial.Stop()
	end()
	if total := w.seen(dir, places, "nobody may read"); total["home"] < len(w.page) || total["lte"] > 0 {
		t.Errorf("the networks saw %v bytes", total)
	}
	shark := func(filter, field string) []string {
		return tshark(t, labtest.File(dir, "home"), filter, field, "-d", "tcp.port==443,http")
	}
	requests, answers, broken := shark("http.request", "http.request.method"), shark("http.response", "http.response.code"), shark(malformed, "frame.number")
	// The last answers may be cut when the client stops.
	if len(requests) < 20 || len(answers) < len(requests)-8 || len(broken) > 0 {
		t.Errorf("tshark sees %d requests, %d answers, and frames %v are malformed", len(requests), len(answers), broken)
	}
	for _, code := range answers {
		if code != "200" {
			t.Errorf("an answer %s", code)
		}
	}
}

// malformed is a filter for frames of which tshark says so. To tshark a segment that TCP sent twice is one.
const malformed = `_ws.malformed && !(_ws.expert.message contains "overlaps old data")`

// tshark returns a field of all packets of a capture that a filter passes.
func tshark(t *testing.T, capture, filter, field string, more ...string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "tshark", append([]string{"-r", capture, "-Y", filter, "-T", "fields", "-e", field}, more...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// The same inside TLS: the network sees a browser's TLS 1.3 with the site, and nothing that is malformed.
func TestBridgeThatIsAWebsiteInsideTLS(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip(peer.ErrMissing, err)
	}
	site, err := filepath.Abs("../../disguise/cover/web/testdata/site.db")
	if err != nil {
		t.Fatal(err)
	}
	certificate, key := filepath.Join(t.TempDir(), "certificate.pem"), filepath.Join(t.TempDir(), "key.pem")
	if err := peer.SelfSigned(certificate, key, []string{"www.example"}, nil); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(pair.Leaf.RawSubjectPublicKeyInfo)
	cover := "https:site=" + site + ":pin=" + base64.RawURLEncoding.EncodeToString(sum[:])
	w := newBridgeWorld(t, append(toWeb, "--cover", cover+":certificate="+certificate+":key="+key)...)
	places, dir := map[string]string{"home": "home-gw/client", "lte": "lte-gw/client"}, t.TempDir()
	end := labtest.Capture(t, w.Instance, dir, places)
	dial := w.Start("client", "disguise is up", "disguise", "dial", w.client, "--listen", proxyAt, "--via", "home=if:home", "--cover", cover)
	if err := w.fetch(); err != nil {
		t.Fatalf("%v\n%s", err, dial.Log())
	}
	at, page := netip.AddrPortFrom(lab.ServerAddr, 443).String(), filepath.Join(t.TempDir(), "page")
	if _, err := peer.Curl(t.Context(), w.Host("client"), "https://"+at+"/about", page, "--interface", "home", "--insecure"); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(page); err != nil || !bytes.Contains(got, []byte("never changes")) {
		t.Errorf("a stranger got %q, %v", got, err)
	}
	dial.Stop()
	end()
	if total := w.seen(dir, places, "nobody may read"); total["home"] < len(w.page) || total["lte"] > 0 {
		t.Errorf("the networks saw %v bytes", total)
	}
	capture := labtest.File(dir, "home")
	const once = " && !tcp.analysis.retransmission && !tcp.analysis.spurious_retransmission"
	if names := tshark(t, capture, "tls.handshake.type == 1 && tls.handshake.extensions_server_name"+once, "tls.handshake.extensions_server_name"); !slices.Equal(names, []string{"www.example"}) {
		t.Errorf("clients asked for %q, in one connection for each path", names)
	}
	versions, broken := tshark(t, capture, "tls.handshake.type == 2"+once, "tls.handshake.extensions.supported_version"), tshark(t, capture, malformed, "frame.number")
	if len(versions) != 2 || strings.Trim(strings.Join(versions, ""), "0x34") != "" || len(broken) > 0 {
		t.Errorf("the bridge chose the versions %q, and frames %v are malformed", versions, broken)
	}
}
