package pseudonym

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket/layers"

	"heddle/internal/pgtest"
	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// withSpare adds a machine beside the host cloud of a world of [lab.OpenCloud] with one site, which nobody's route leads through:
//
//	+-----+              +-------+              +------+
//	| isp |--------------| spare |--------------| news |
//	+-----+              +-------+              +------+
//	198.18.1.1    198.18.1.2  198.18.2.1   198.18.2.2
func withSpare(w lab.World) lab.World {
	address := func(text string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(text)} }
	w.Hosts = append(w.Hosts, lab.HostSpec{Name: "spare", Router: true, Routes: []lab.Route{
		{To: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("198.18.1.1"), Device: "isp"},
		{To: netip.MustParsePrefix("10.9.1.0/24"), Via: netip.MustParseAddr("198.18.2.2"), Device: "news"}}})
	w.Links = append(w.Links,
		lab.LinkSpec{Name: "spare", A: lab.End{Host: "isp", Device: "spare", Addrs: address("198.18.1.1/24")}, B: lab.End{Host: "spare", Device: "isp", Addrs: address("198.18.1.2/24")}},
		lab.LinkSpec{Name: "spare-news", A: lab.End{Host: "spare", Device: "news", Addrs: address("198.18.2.1/24")}, B: lab.End{Host: "news", Device: "spare", Addrs: address("198.18.2.2/24")}})
	return w
}

// ip runs ip(8) on a host.
func (w *world) ip(host, command string) {
	w.t.Helper()
	if out, err := w.Host(host).Command(w.t.Context(), "ip", strings.Fields(command)...).CombinedOutput(); err != nil {
		w.t.Fatalf("%s: ip %s: %v\n%s", host, command, err, out)
	}
}

// open asks for a page over a connection of its own, and returns the answer before anybody reads it.
func (w *world) open(r registered, path string) io.Reader {
	w.t.Helper()
	root, err := os.ReadFile(w.cloud.Root())
	if err != nil {
		w.t.Fatal(err)
	}
	own, err := tls.LoadX509KeyPair(r.Certificate(), r.Key())
	if err != nil {
		w.t.Fatal(err)
	}
	config := &tls.Config{ServerName: r.Name, RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS13}
	config.RootCAs.AppendCertsFromPEM(root)
	var raw net.Conn
	if err := w.Host("client").Do(func() (err error) {
		raw, err = net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(netip.AddrPortFrom(gateway, 443)))
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { raw.Close() })
	_ = raw.SetDeadline(time.Now().Add(polltest.Patience))
	c := tls.Client(raw, config)
	ask, err := http.NewRequest("GET", r.To(path), nil)
	if err == nil {
		err = ask.Write(c)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), ask)
	if err != nil {
		w.t.Fatal(err)
	}
	if answer.StatusCode != 200 {
		w.t.Fatalf("the site answers %s", answer.Status)
	}
	return answer.Body
}

// spareKind is a kind of switch by which a machine takes the place of another one.
type spareKind struct {
	name   string
	of     lab.World
	bridge bool                                   // it is a bridge, on either machine
	leads  func(context.Context, *lab.Host) error // reports why the host leads nothing, or nil
}

// Another machine takes the place of the gateway's, which fails. A connection that had been handed over goes on, and nobody sees the site's address.
func TestSpareSwitchTakesOver(t *testing.T) {
	for _, k := range []spareKind{{"bpf", lab.OpenCloud("cloud", "news"), false, programsLead}, {"nft", lab.OpenCloud("cloud", "news"), false, rulesLead},
		{"ovs", lab.BridgedCloud("cloud", "news"), true, flowsLead}} {
		t.Run(k.name, func(t *testing.T) { spareTakesOver(t, k) })
	}
}

func spareTakesOver(t *testing.T, k spareKind) {
	var serving *peer.Process
	w, r, _ := movingWorld(t, withSpare(k.of), func(w *world) {
		w.set(`# switch-shares = false`, `switch-shares = true`, `database = "pseudonyms.db"`, fmt.Sprintf("database = %q", pgtest.Start(t).Database(t)))
		if k.bridge {
			w.bridge("cloud")
			w.bridge("spare")
		} else {
			w.set(`# gateway-switch = "auto"`, fmt.Sprintf("gateway-switch = %q", k.name))
		}
		var err error
		if serving, err = w.cloud.Serve(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	text, err := os.ReadFile(w.cloud.File())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(w.dir, "spare.toml")
	own := strings.NewReplacer(gatewayMetrics, "", `# switch = "unix:/run/heddle-switch/socket"`, fmt.Sprintf("switch = %q", "unix:"+filepath.Join(t.TempDir(), "switch")),
		peer.BridgeSocket(w.Host("cloud"), bridge), peer.BridgeSocket(w.Host("spare"), bridge))
	if err := os.WriteFile(file, []byte(own.Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Start("spare", "serving "+zone, "pseudonym", "serve", file, "--only", "switch")

	const size = 5 << 20
	page := w.open(r, "/large.bin")
	w.moved(1)
	polltest.Until(t, func() error { return k.leads(t.Context(), w.Host("spare")) })
	stop := labtest.Watch(t, w.Instance, "isp/client", "spare/isp")
	serving.Kill()
	w.ip("cloud", "link set isp down")
	w.ip("cloud", "link set news down")
	w.ip("isp", "route add "+gateway.String()+" via 198.18.1.2")
	w.ip("news", "route replace default via 198.18.2.1 dev spare")
	if n, err := io.Copy(io.Discard, page); err != nil || n != size {
		t.Errorf("%d of %d bytes come, %v", n, size, err)
	}
	seen := stop()
	passed := 0
	for _, p := range seen["spare/isp"] {
		if tcp, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP); ok {
			passed += len(tcp.Payload)
		}
	}
	if passed < size/4 {
		t.Errorf("%d bytes pass the spare machine", passed)
	}
	site := w.Host("news").Addrs()[0].AsSlice()
	for _, p := range seen["isp/client"] {
		ip, ok := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		if tcp, is := p.Layer(layers.LayerTypeTCP).(*layers.TCP); ok && (ip.SrcIP.Equal(site) || p.Layer(layers.LayerTypeICMPv4) != nil || is && tcp.RST) {
			t.Errorf("the client's network sees %v", p)
		}
	}
}

// rulesLead reports why the rules of a host lead nothing, or nil.
func rulesLead(ctx context.Context, host *lab.Host) error {
	out, err := host.Command(ctx, "nft", "list", "map", "inet", "heddle_gateway", "to4").CombinedOutput()
	if err == nil && !bytes.Contains(out, []byte("elements")) {
		err = errors.New("no connection is led")
	}
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", host.Name(), err, out)
	}
	return nil
}

// flowsLead reports why the flows of a host's bridge lead nothing, or nil.
func flowsLead(ctx context.Context, host *lab.Host) error {
	out, err := host.Command(ctx, "ovs-ofctl", "--protocols=OpenFlow14", "dump-flows", "unix:"+peer.BridgeSocket(host, bridge)).CombinedOutput()
	if err == nil && !bytes.Contains(out, []byte("->ip_dst")) {
		err = errors.New("no connection is led")
	}
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", host.Name(), err, out)
	}
	return nil
}

// programsLead reports why the BPF programs of a host lead nothing, or nil.
func programsLead(_ context.Context, host *lab.Host) error {
	maps, err := filepath.Glob(filepath.Join(host.Dir(), "bpf", "heddle", "net-*", "heddle_to"))
	if err != nil || len(maps) != 1 {
		return fmt.Errorf("%s has maps %q, %w", host.Name(), maps, err)
	}
	m, err := ebpf.LoadPinnedMap(maps[0], nil)
	if err != nil {
		return err
	}
	defer m.Close()
	var key []byte
	err = m.NextKey(nil, &key)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("%s leads no connection", host.Name())
	}
	return err
}
