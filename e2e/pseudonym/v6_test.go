package pseudonym

import (
	"bytes"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/miekg/dns"

	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// withIPv6 is a world of [lab.WithIPv6], where each site takes pseudo-addresses for its own.
func withIPv6(t *testing.T, sites ...string) *world {
	t.Helper()
	t.Parallel()
	w := &world{Overlay: labtest.UpOverlay(t, lab.WithIPv6(lab.OpenCloud("cloud", sites...))), t: t, dir: filepath.Join(t.TempDir(), "cloud")}
	for _, site := range sites {
		if err := w.Host(site).Own(lab.CloudPrefix); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if w.cloud, err = peer.NewCloud(t.Context(), w.Overlay.Overlay, w.dir, gateway); err != nil {
		t.Fatal(err)
	}
	return w
}

// The switch of pseudo-addresses runs in a process of its own, and all other parts have no rights.
func TestPseudoAddressesBySwitchApart(t *testing.T) {
	w := withIPv6(t, "news")
	const metrics = "127.0.0.1:9481"
	w.set(`# gateway-mode = "auto"`, `gateway-mode = "v6"`, `# v6-prefix = "2001:db8:77:1::/64"`, fmt.Sprintf("v6-prefix = %q", lab.CloudPrefix),
		`# v6-device = "eth0"`, `v6-device = "isp"`, `listen = [":443"]`, `listen = [":443", ":8443"]`, `# metrics = "127.0.0.1:9480"`, `metrics = "`+gatewayMetrics+`"`)
	w.serveInTwo(metrics)
	w.webServer(news, "news")
	s := w.cloud.At("news", news, w.Host("news").Addrs()[0])
	s.Listen, s.Addresses = netip.MustParseAddrPort("[::]:8443"), []string{"v6:" + lab.CloudSite6(1).String()} // the site has port 443 itself
	if _, err := w.cloud.Add(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	r := w.get(news)
	url := strings.Replace(r.URL, r.Name+"/", r.Name+":8443/", 1)
	polltest.Await(t, "switch and nameserver learn of the site", func() bool {
		page, status, err := w.curl(r, url, "-6")
		return err == nil && status == 200 && strings.Contains(page, text(news))
	})
	if n := number(w, metrics, "heddle_pseudonym_switch_led"); n == 0 {
		t.Error("the switch led no packets")
	}
	if n := number(w, gatewayMetrics, "heddle_pseudonym_switch_led"); n != 0 {
		t.Errorf("the other process led %v packets", n)
	}
}

// A switch leads a client's packets to the site, a sidecar or nginx in its place, by their address, of which each visit has another. The gateway has no part in it, and an
// observer sees addresses that tell nothing.
func TestPseudoAddresses(t *testing.T) {
	w := withIPv6(t, "news", "shop")
	const metrics = "127.0.0.1:9480"
	if err := w.cloud.Replace(`# gateway-mode = "auto"`, `gateway-mode = "v6"`, `# v6-prefix = "2001:db8:77:1::/64"`, fmt.Sprintf("v6-prefix = %q", lab.CloudPrefix),
		`# v6-device = "eth0"`, `v6-device = "isp"`, `listen = [":443"]`, `listen = [":443", ":8443"]`, `# metrics = "127.0.0.1:9480"`, `metrics = "`+metrics+`"`); err != nil {
		t.Fatal(err)
	}
	serving, err := w.cloud.Serve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	visits := map[string]registered{}
	for i, site := range []string{news, shop} {
		host := strings.TrimSuffix(site, ".example")
		w.webServer(site, host)
		const listen = "[::]:8443" // the site has port 443 itself
		address := "v6:" + lab.CloudSite6(i+1).String()
		if site == shop {
			w.nginx(host, site, address, "--listen-v6", listen)
		} else {
			sidecar := w.cloud.At(host, site, w.Host(host).Addrs()[0])
			sidecar.Listen, sidecar.Addresses = netip.MustParseAddrPort(listen), []string{address}
			if _, err := w.cloud.Add(t.Context(), sidecar); err != nil {
				t.Fatal(err)
			}
		}
		r := w.get(site)
		r.URL = strings.Replace(r.URL, r.Name+"/", r.Name+":8443/", 1)
		visits[site] = r
		polltest.Await(t, "switch and nameserver learn of "+site, func() bool {
			_, status, err := w.curl(r, r.URL, "-6")
			return err == nil && status == 200
		})
	}
	relayed := number(w, metrics, "heddle_pseudonym_gateway_relayed")

	const atClient, atNews = "isp/client", "cloud/news"
	stop := labtest.Watch(t, w.Instance, atClient, atNews)
	const times = 3
	for range times {
		for site, r := range visits {
			if page, status, err := w.curl(r, r.URL, "-6"); err != nil || status != 200 || !strings.Contains(page, text(site)) {
				t.Fatalf("%s: %d, %v, %s\n%s", site, status, err, page, serving.Log())
			}
		}
	}
	if page, status, err := w.curl(visits[news], visits[news].To("/large.bin"), "-6"); err != nil || status != 200 || len(page) != 5<<20 {
		t.Fatalf("%d bytes, %d, %v", len(page), status, err)
	}
	seen := stop()
	if n := number(w, metrics, "heddle_pseudonym_gateway_relayed"); n != relayed {
		t.Errorf("the gateway relayed %v connections", n-relayed)
	}
	if n := number(w, metrics, "heddle_pseudonym_switch_led"); n == 0 {
		t.Error("the switch led no packets")
	}
	client, to := w.Host("client").Addrs()[1], map[netip.Addr]bool{}
	for _, p := range seen[atClient] {
		ip, ok := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
		tcp, isTCP := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if !ok || !isTCP {
			continue
		}
		from, _ := netip.AddrFromSlice(ip.SrcIP)
		target, _ := netip.AddrFromSlice(ip.DstIP)
		switch {
		case target == client:
			if !lab.CloudPrefix.Contains(from) || tcp.RST {
				t.Errorf("the client's network sees %v", p)
			}
		case lab.CloudPrefix.Contains(target):
			to[target] = true
		default:
			t.Errorf("the client goes to %v", target)
		}
	}
	if want := times*len(visits) + 1; len(to) < want-1 || len(to) > want { // a name has 1024 addresses, so two may be equal
		t.Errorf("%d visits went to %d addresses", want, len(to))
	}
	// A name that nobody has leads to the gateway by an address of the same kind.
	own := number(w, metrics, "heddle_pseudonym_switch_own")
	name := strings.Repeat("a", 26) + "." + zone
	if _, status, err := w.curl(registered{}, "https://"+name+":8443/", "-6"); err == nil || status != 0 {
		t.Errorf("%s answers %d", name, status)
	}
	polltest.Await(t, "the gateway got packets", func() bool { return number(w, metrics, "heddle_pseudonym_switch_own") > own })
	// The switch goes on without its process, and the next process takes over.
	serving.Stop()
	if serving, err = w.cloud.Serve(t.Context()); err != nil {
		t.Fatal(err)
	}
	if page, status, err := w.curl(visits[shop], visits[shop].URL, "-6"); err != nil || status != 200 || !strings.Contains(page, text(shop)) {
		t.Errorf("after a new start: %d, %v, %s\n%s", status, err, page, serving.Log())
	}
}

// pseudoAddress asks for an address of a name.
func (w *world) pseudoAddress(name string) netip.Addr {
	w.t.Helper()
	m, err := resolve(w.Host("client"), new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeAAAA))
	if err != nil || len(m.Answer) != 1 {
		w.t.Fatalf("%s: %v, %v", name, m, err)
	}
	a, _ := netip.AddrFromSlice(m.Answer[0].(*dns.AAAA).AAAA)
	return a
}

// A client that encrypts names whenever the HTTPS record has a key reaches sites by pseudo-addresses too, where nobody could open its hellos. The records
// of all names are alike, and those of the cloud's own names keep the key.
func TestPseudoAddressesForAClientWithECH(t *testing.T) {
	for _, mode := range []string{"auto", "v6"} {
		t.Run(mode, func(t *testing.T) {
			w := withIPv6(t, "news")
			w.set(`# gateway-mode = "auto"`, fmt.Sprintf("gateway-mode = %q", mode), `# v6-prefix = "2001:db8:77:1::/64"`, fmt.Sprintf("v6-prefix = %q", lab.CloudPrefix),
				`# v6-device = "eth0"`, `v6-device = "isp"`, `listen = [":443"]`, `listen = [":443", ":8443"]`, `# metrics = "127.0.0.1:9480"`, `metrics = "`+gatewayMetrics+`"`)
			w.serveAll()
			w.webServer(news, "news")
			sidecar := w.cloud.At("news", news, w.Host("news").Addrs()[0])
			sidecar.Listen, sidecar.Addresses = netip.MustParseAddrPort("[::]:8443"), []string{"v6:" + lab.CloudSite6(1).String()}
			if _, err := w.cloud.Add(t.Context(), sidecar); err != nil {
				t.Fatal(err)
			}
			r := w.get(news)
			nobody := strings.Repeat("a", 26) + "." + zone
			own := w.hello()
			polltest.Await(t, "the switch leads the site's packets", func() bool {
				_, status, err := w.curl(r, strings.Replace(r.URL, r.Name+"/", r.Name+":8443/", 1), "-6")
				return err == nil && status == 200
			})
			list := keyOf(w.record(r.Name))
			if other := keyOf(w.record(nobody)); !bytes.Equal(list, other) {
				t.Errorf("the record of a name has the key %x, and that of one that nobody has %x", list, other)
			}
			relayed := number(w, gatewayMetrics, "heddle_pseudonym_gateway_relayed")
			page, state, err := w.fetch(r, list, netip.AddrPortFrom(w.pseudoAddress(r.Name), 8443))
			if err != nil || page != text(news) || state.ECHAccepted {
				t.Errorf("%q, %v, %+v", page, err, state)
			}
			if n := number(w, gatewayMetrics, "heddle_pseudonym_gateway_relayed"); n != relayed {
				t.Errorf("the gateway relayed %v connections", n-relayed)
			}
			linker := registered{Dir: r.Dir, URL: "https://linker." + zone + "/"}
			if _, state, err := w.fetch(linker, own, byIPv4); err != nil || !state.ECHAccepted {
				t.Errorf("the cloud's own name: %v, %+v", err, state)
			}
		})
	}
}
