package disguise

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"heddle/experiments/readers"
	"heddle/lab/browser"
	"heddle/lab/labtest"
	"heddle/lab/peer"
	"heddle/observe"
)

// A page by a bridge that is a website. The network sees conversations of HTTP with it, and tshark finds nothing malformed in them. A
// stranger browses the same bridge.
func TestBridgeThatIsAWebsite(t *testing.T) {
	needReaders(t)
	cover := "http:site=" + recordedSite(t)
	w := newBridgeWorld(t, append(toWeb, "--cover", cover)...)
	places, dir := map[string]string{"home": "home-gw/client", "lte": "lte-gw/client"}, t.TempDir()
	end := labtest.Capture(t, w.Instance, dir, places)
	dial := w.Start("client", "disguise is up", "disguise", "dial", w.client, "--listen", proxyAt, "--via", "home=if:home", "--cover", cover)
	if err := w.fetch(); err != nil {
		t.Fatalf("%v\n%s", err, dial.Log())
	}
	w.browsed("http://"+bridgeAt.String(), "/about", "never changes")
	dial.Stop()
	end()
	if total := w.seen(dir, places, "nobody may read"); total["home"] < len(w.page) || total["lte"] > 0 {
		t.Errorf("the networks saw %v bytes", total)
	}
	shark := func(filter, field string) []string {
		return tshark(t, labtest.File(dir, "home"), filter, field, "-d", "tcp.port==443,http")
	}
	requests, answers, broken := shark("http.request", "http.request.method"), shark("http.response", "http.response.code"), shark(readers.Malformed, "frame.number")
	// The last answers may be cut when the client stops.
	if len(requests) < 20 || len(answers) < len(requests)-8 || len(broken) > 0 {
		t.Errorf("tshark sees %d requests, %d answers, and frames %v are malformed", len(requests), len(answers), broken)
	}
	other := slices.DeleteFunc(answers, func(code string) bool { return code == "200" })
	if slices.Sort(other); !slices.Equal(other, []string{"206", "304", "304", "404"}) {
		t.Errorf("answers that are not 200, beside those that a stranger asked for: %q", other)
	}
	if flows, total := namedTalking(t, labtest.File(dir, "home")); total == 0 || flows["HTTP"] != total {
		t.Errorf("nDPI names %v of %d connections", flows, total)
	}
}

// namedTalking is [named] for the TCP connections that carried something. nDPI names the others by their ports: those that had just begun
// when the client stopped.
func namedTalking(t *testing.T, capture string) (flows map[string]int, total int) {
	t.Helper()
	talking := filepath.Join(t.TempDir(), "talking.pcap")
	if err := readers.Carrying(t.Context(), capture, talking); err != nil {
		t.Fatal(err)
	}
	return named(t, talking)
}

// tshark returns a field of all packets of a capture that a filter passes.
func tshark(t *testing.T, capture, filter, field string, more ...string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "tshark", append([]string{"-r", capture, "-Y", filter, "-T", "fields", "-e", field}, more...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// needReaders skips without the programs that judge a capture.
func needReaders(t *testing.T) {
	t.Helper()
	for _, program := range []string{"tshark", "ndpiReader"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(peer.ErrMissing, err)
		}
	}
}

// recordedSite is the site of the tests of the covers.
func recordedSite(t *testing.T) string {
	t.Helper()
	site, err := filepath.Abs("../../disguise/cover/web/testdata/site.db")
	if err != nil {
		t.Fatal(err)
	}
	return site
}

// pinned makes a certificate for the site. cover is that of clients of a bridge with it.
func pinned(t *testing.T) (cover, certificate, key string) {
	t.Helper()
	certificate, key = filepath.Join(t.TempDir(), "certificate.pem"), filepath.Join(t.TempDir(), "key.pem")
	if err := peer.SelfSigned(certificate, key, []string{"www.example"}, nil); err != nil {
		t.Fatal(err)
	}
	pin, err := peer.KeyHash(certificate)
	if err != nil {
		t.Fatal(err)
	}
	return "https:site=" + recordedSite(t) + ":pin=" + base64.RawURLEncoding.EncodeToString(pin), certificate, key
}

// The same inside TLS: the network sees a browser's TLS 1.3 with the site, and nothing that is malformed. Chromium browses the same bridge, and a
// client says what it said.
func TestBridgeThatIsAWebsiteInsideTLS(t *testing.T) {
	needReaders(t)
	cover, certificate, key := pinned(t)
	w := newBridgeWorld(t, append(toWeb, "--cover", cover+":certificate="+certificate+":key="+key)...)
	hello := ""
	var says []string
	t.Run("in Chromium", func(t *testing.T) { hello, says = w.inChromium(t, certificate) })
	if hello != "" {
		cover += ":hello=" + hello
	}
	places, dir := map[string]string{"home": "home-gw/client", "lte": "lte-gw/client"}, t.TempDir()
	end := labtest.Capture(t, w.Instance, dir, places)
	dial := w.Start("client", "disguise is up", "disguise", "dial", w.client, "--listen", proxyAt, "--via", "home=if:home", "--cover", cover)
	if err := w.fetch(); err != nil {
		t.Fatalf("%v\n%s", err, dial.Log())
	}
	w.browsed("https://"+bridgeAt.String(), "/about", "never changes")
	dial.Stop()
	end()
	if total := w.seen(dir, places, "nobody may read"); total["home"] < len(w.page) || total["lte"] > 0 {
		t.Errorf("the networks saw %v bytes", total)
	}
	capture := labtest.File(dir, "home")
	if names := tshark(t, capture, "tls.handshake.type == 1 && tls.handshake.extensions_server_name"+once, "tls.handshake.extensions_server_name"); !slices.Equal(names, []string{"www.example"}) {
		t.Errorf("clients asked for %q, in one connection for each path", names)
	}
	if said := helloOf(t, capture); hello != "" && !slices.Equal(said, says) {
		t.Errorf("a client says\n%q\nand Chromium\n%q", said, says)
	}
	versions, broken := tshark(t, capture, "tls.handshake.type == 2"+once, "tls.handshake.extensions.supported_version"), tshark(t, capture, readers.Malformed, "frame.number")
	hellos := tshark(t, capture, "tls.handshake.type == 1"+once, "frame.number")
	if strings.Trim(strings.Join(versions, ""), "0x34") != "" || len(versions) < 2 || len(versions) != len(hellos) || len(broken) > 0 {
		t.Errorf("for %d clients the bridge chose the versions %q, and frames %v are malformed", len(hellos), versions, broken)
	}
	if flows, total := namedTalking(t, capture); total == 0 || flows["TLS"] != total {
		t.Errorf("nDPI names %v of %d connections", flows, total)
	}
}

// once leaves out what TCP sent again.
const once = " && !tcp.analysis.retransmission && !tcp.analysis.spurious_retransmission"

// inChromium browses the bridge with Chromium. It returns a file with what Chromium said first in TLS, and what tshark sees in it.
func (w *bridgeWorld) inChromium(t *testing.T, certificate string) (hello string, says []string) {
	if err := browser.Supported(); err != nil {
		t.Skip("typed skip:", err)
	}
	dir := t.TempDir()
	end := labtest.Capture(t, w.Instance, dir, map[string]string{"home": "home-gw/client"})
	pages, err := browser.Visit{Server: "www.example:443", TCP: true, Relay: bridgeAt.String(), Certificate: certificate,
		Contexts: [][]string{{"", "watch", "about", ""}}, Timeout: time.Minute}.Run(t.Context(), w.Host("client"))
	end()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		if p.Error != "" || len(p.Failed) > 0 || len(p.Responses) == 0 || strings.HasSuffix(p.URL, "/") && p.Styles != 1 {
			t.Errorf("%+v", p)
		}
		for _, r := range p.Responses {
			if r.Protocol != "h2" {
				t.Errorf("%s comes by %s", r.URL, r.Protocol)
			}
		}
	}
	capture, err := os.Open(labtest.File(dir, "home"))
	if err != nil {
		t.Fatal(err)
	}
	defer capture.Close()
	all, stopped, err := observe.Conversations(capture)
	if err != nil || stopped != "" || len(all) == 0 {
		t.Fatal(len(all), stopped, err)
	}
	file := filepath.Join(w.t.TempDir(), "browser.hello")
	if err := os.WriteFile(file, all[0].Up, 0o600); err != nil {
		t.Fatal(err)
	}
	return file, helloOf(t, capture.Name())
}

// helloOf returns what tshark sees in the first ClientHello of a capture that names a server: what JA3 and JA4 are made of, in any order of the
// extensions, which Chromium draws for each connection, and without values of GREASE (RFC 8701).
func helloOf(t *testing.T, capture string) (says []string) {
	t.Helper()
	for _, field := range []string{"handshake.version", "handshake.ciphersuite", "handshake.extension.type", "handshake.extensions_supported_group",
		"handshake.sig_hash_alg", "handshake.extensions_alpn_str", "handshake.extensions.supported_version", "handshake.extensions_key_share_group",
		"compress_certificate.algorithm"} {
		hellos := tshark(t, capture, "tls.handshake.type == 1 && tls.handshake.extensions_server_name"+once, "tls."+field)
		if len(hellos) == 0 {
			t.Fatal("tshark finds none of tls.", field)
		}
		values := slices.DeleteFunc(strings.Split(hellos[0], ","), func(v string) bool {
			n, err := strconv.ParseUint(v, 0, 16)
			return err == nil && n&0x0f0f == 0x0a0a && n>>8 == n&0xff
		})
		slices.Sort(values)
		says = append(says, field+" "+strings.Join(values, " "))
	}
	return says
}

// One link by two covers: a website inside TLS, and the same over plain HTTP at another port of the bridge. The network sees connections of both, and each of
// them carries a part of what is fetched.
func TestCoversShareALink(t *testing.T) {
	needReaders(t)
	sealed, certificate, key := pinned(t)
	plain := "http:site=" + recordedSite(t) + ":port=80"
	w := newBridgeWorld(t, append(toWeb, "--cover", sealed+":certificate="+certificate+":key="+key, "--cover", plain)...)
	places, dir := map[string]string{"home": "home-gw/client"}, t.TempDir()
	end := labtest.Capture(t, w.Instance, dir, places)
	dial := w.Start("client", "disguise is up", "disguise", "dial", w.client, "--listen", proxyAt, "--via", "home=if:home", "--cover", sealed, "--cover", plain+":weight=2", "--connections", "3")
	for range 3 {
		if err := w.fetch(); err != nil {
			t.Fatalf("%v\n%s", err, dial.Log())
		}
	}
	out, err := w.Host("client").Command(t.Context(), labtest.Heddle, "disguise", "status", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	type coverStatus struct {
		Name        string
		Connections int
		Down        uint64
	}
	var status struct {
		Running []struct {
			Disguise *struct {
				Links []struct {
					Paths []struct{ Covers []coverStatus }
				}
			}
		}
	}
	_ = json.Unmarshal(out, &status)
	var covers []coverStatus
	for _, r := range status.Running {
		if r.Disguise != nil && len(r.Disguise.Links) == 1 {
			covers = r.Disguise.Links[0].Paths[0].Covers
		}
	}
	// A link on which nothing moved for a while has one more connection, which is the next one by weight.
	if len(covers) != 2 || covers[0].Name != "https" || covers[1].Name != "http" || covers[0].Connections != 1 || covers[1].Connections != 2 && covers[1].Connections != 3 {
		t.Fatalf("%v: %s", err, out)
	}
	dial.Stop()
	end()
	for i, port := range []string{"443", "80"} {
		carried := 0
		for _, length := range tshark(t, labtest.File(dir, "home"), "tcp.srcport == "+port+" && tcp.len > 0"+once, "tcp.len") {
			n, _ := strconv.Atoi(length)
			carried += n
		}
		if down := int(covers[i].Down); down < len(w.page)/50 || down >= 3*len(w.page) || carried < down {
			t.Errorf("of %d bytes %d come by %s, where the network sees %d", 3*len(w.page), down, covers[i].Name, carried)
		}
	}
	if flows, total := namedTalking(t, labtest.File(dir, "home")); flows["TLS"] < 1 || flows["HTTP"] < 2 || flows["TLS"]+flows["HTTP"] != total {
		t.Errorf("nDPI names %v of %d connections", flows, total)
	}
}
