package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"heddle/internal/socks5"
	"heddle/lab"
	"heddle/lab/peer"
)

// pseudonymSite is the address of the site's own server.
var pseudonymSite = netip.MustParseAddr("10.9.1.2")

// Ports of the host cloud, beside the gateway's 443.
const (
	haproxyPort    = 8443
	nginxRelayPort = 8444
	v6Port         = 8445 // the gateway's too, since nginx has 443 of all addresses of the site
)

// way is one way to the site.
type way struct {
	dial  func(ctx context.Context) (net.Conn, error)
	tls   *tls.Config
	query string // of each URL
	slow  bool   // fetch less
	// pieces is how many pieces of an object the page defence's Service Worker fetches at most, 0 without it.
	pieces int
	own    peer.Pseudonym
	// controller is the id of the process that leads connections, 0 for none.
	controller int
	// load loads the page in a browser with an empty cache so many times, and returns how long each load took, in milliseconds.
	load func(ctx context.Context, times int) ([]float64, error)
}

// pseudonymServers are the servers of a topology.
type pseudonymServers struct {
	*stage
	ways  map[string]way
	cloud *peer.Cloud
	// serving is the cloud's process.
	serving *peer.Process
	// certificate and key are files of a client of nginx, and server is that of nginx's certificate.
	certificate, key, server string
}

// start starts the site's nginx, a cloud, the sidecars, and what else the wanted ways need, and says how to go each way.
func (p *pseudonymServers) start(ctx context.Context, wanted []string) error {
	for _, part := range []func(context.Context, []string) error{p.startSite, p.startCloud, p.startRelays, p.startTor} {
		if err := part(ctx, wanted); err != nil {
			return err
		}
	}
	return nil
}

// startTor starts a private Tor network.
func (p *pseudonymServers) startTor(ctx context.Context, wanted []string) error {
	if !slices.Contains(wanted, wayTor) {
		return nil
	}
	n, err := peer.StartTor(ctx, p.Instance)
	if err != nil {
		return err
	}
	if _, err := n.Client(ctx, p.Host("client"), "direct", peer.TorSOCKS, ""); err != nil {
		return err
	}
	tor := p.ways[wayHTTPS]
	tor.dial, tor.slow = p.byTor, true
	p.ways[wayTor] = tor
	return nil
}

// startSite starts nginx with the objects and the page.
func (p *pseudonymServers) startSite(ctx context.Context, _ []string) error {
	root := filepath.Join(p.work, "objects")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	for _, size := range append(pseudonymSizes, largest) {
		if err := os.WriteFile(filepath.Join(root, size.name), make([]byte, size.bytes), 0o644); err != nil {
			return err
		}
	}
	if err := writePage(root); err != nil {
		return err
	}
	p.certificate, p.key = filepath.Join(p.work, "client.pem"), filepath.Join(p.work, "client-key.pem")
	if err := peer.SelfSigned(p.certificate, p.key, nil, nil); err != nil {
		return err
	}
	web, err := peer.MutualWebServer(ctx, p.Host("site"), root, p.work, p.certificate, pseudonymName)
	if err != nil {
		return err
	}
	p.server = web.Certificate
	plain, err := clientTLS(pseudonymName, p.server, "", "")
	if err != nil {
		return err
	}
	shown, err := clientTLS(pseudonymName, p.server, p.certificate, p.key)
	if err != nil {
		return err
	}
	p.ways[wayHTTPS] = way{dial: p.to(netip.AddrPortFrom(pseudonymSite, 443)), tls: plain}
	p.ways[wayMutual] = way{dial: p.to(netip.AddrPortFrom(pseudonymSite, peer.MutualPort)), tls: shown}
	return nil
}

// startCloud starts what is Heddle's, and gets pseudonyms.
func (p *pseudonymServers) startCloud(ctx context.Context, wanted []string) error {
	devices, err := peer.NewOverlay(p.heddle, p.work, p.Instance)
	if err != nil {
		return err
	}
	if p.cloud, err = peer.NewCloud(ctx, devices, filepath.Join(p.work, "cloud"), lab.CloudGateway); err != nil {
		return err
	}
	if p.serving, err = p.cloud.Serve(ctx); err != nil {
		return err
	}
	w, err := p.add(ctx, p.cloud.At("site", pseudonymName, pseudonymSite))
	if err != nil {
		return err
	}
	for name, at := range map[string]netip.AddrPort{waySidecar: netip.AddrPortFrom(pseudonymSite, peer.SidecarPort),
		wayGateway: netip.AddrPortFrom(lab.CloudGateway, 443), wayHAProxy: netip.AddrPortFrom(lab.CloudGateway, haproxyPort),
		wayNginx: netip.AddrPortFrom(lab.CloudGateway, nginxRelayPort)} {
		w.dial = p.to(at)
		p.ways[name] = w
	}
	return p.addOthers(ctx, wanted)
}

// addOthers adds the sites beside the first one. Their sidecars are on a machine of their own, before the same server.
func (p *pseudonymServers) addOthers(ctx context.Context, wanted []string) error {
	inside := p.Host("defended").Addrs()[0]
	for i, name := range []string{wayDefence, wayHandoff, wayMovedDefence} {
		if !slices.Contains(wanted, name) {
			continue
		}
		s, pieces := p.cloud.At("defended", name+".example", inside), 0
		s.To = "http://" + netip.AddrPortFrom(pseudonymSite, 80).String()
		if name != wayHandoff {
			s.Flags, pieces = append(s.Flags, "--defence", "pieces"), paperPieces
		}
		add := p.add
		if name != wayDefence {
			add = func(ctx context.Context, s peer.Sidecar) (way, error) {
				return p.addAgent(ctx, s, wayHandoff, netip.AddrPortFrom(inside, agentPort+uint16(i)))
			}
		}
		w, err := add(ctx, s)
		if err != nil {
			return err
		}
		w.pieces = pieces
		p.ways[name] = w
		if err := p.await(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// add adds a site with a sidecar to the cloud, and returns the way to it by the gateway.
func (p *pseudonymServers) add(ctx context.Context, s peer.Sidecar) (w way, err error) {
	if _, err := p.cloud.Add(ctx, s); err != nil {
		return w, err
	}
	own, err := p.cloud.Get(ctx, "client", s.Site)
	if err != nil {
		return w, err
	}
	w, err = p.visit(own)
	w.dial, w.controller = p.to(netip.AddrPortFrom(lab.CloudGateway, 443)), p.serving.PID()
	return w, err
}

// addAgent is add for a site that only an agent leads to, whose kind of address is handoff or handoff-direct.
func (p *pseudonymServers) addAgent(ctx context.Context, s peer.Sidecar, kind string, agent netip.AddrPort, flags ...string) (way, error) {
	s.Socket, s.Addresses = filepath.Join(p.work, s.Site), []string{kind + ":" + agent.String()}
	w, err := p.add(ctx, s)
	if err == nil {
		_, err = p.cloud.Agent(ctx, s, agent, flags...)
	}
	return w, err
}

// await waits until a way leads to its site: the gateway learns of sites a little later.
func (p *pseudonymServers) await(ctx context.Context, name string) error {
	err := p.serving.Await(ctx, func() error {
		_, err := p.ways[name].fetch(ctx, smallest)
		return err
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return err
}

// paperPieces is how many pieces the strategy of the paper draws at most.
const paperPieces = 3

// visit is a way to the site of a pseudonym, without what dials.
func (p *pseudonymServers) visit(own peer.Pseudonym) (w way, err error) {
	w.own = own
	if w.tls, err = clientTLS(own.Name, p.cloud.Root(), own.Certificate(), own.Key()); err != nil {
		return w, err
	}
	u, err := url.Parse(own.URL)
	if err == nil {
		w.query = "?" + u.RawQuery
	}
	return w, err
}

// startRelays starts the relays that are not Heddle's.
func (p *pseudonymServers) startRelays(ctx context.Context, wanted []string) error {
	relay := peer.Relay{Name: p.ways[wayNginx].own.Name, To: netip.AddrPortFrom(pseudonymSite, peer.SidecarPort), Work: p.work}
	for _, r := range []struct {
		way  string
		port uint16
		run  func(peer.Relay, context.Context, *lab.Host) (*peer.Process, error)
	}{{wayHAProxy, haproxyPort, peer.Relay.HAProxy}, {wayNginx, nginxRelayPort, peer.Relay.Nginx}} {
		if !slices.Contains(wanted, r.way) {
			continue
		}
		relay.Listen = r.port
		running, err := r.run(relay, ctx, p.Host("cloud"))
		if err != nil {
			return err
		}
		w := p.ways[r.way]
		w.controller = running.PID()
		p.ways[r.way] = w
	}
	return nil
}

// to connects from the client to an address.
func (p *pseudonymServers) to(at netip.AddrPort) func(context.Context) (net.Conn, error) {
	client := p.Host("client")
	return func(ctx context.Context) (c net.Conn, err error) {
		err = client.Do(func() error {
			c, err = (&net.Dialer{}).DialContext(ctx, "tcp", at.String())
			return err
		})
		return c, err
	}
}

// byTor connects from the client to the site by Tor.
func (p *pseudonymServers) byTor(ctx context.Context) (net.Conn, error) {
	c, err := p.to(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), peer.TorSOCKS))(ctx)
	if err != nil {
		return nil, err
	}
	target, err := socks5.NewTarget(pseudonymSite.String(), 443)
	if err == nil {
		err = socks5.Greet(c, nil)
	}
	if err == nil {
		_, err = socks5.Request(c, socks5.Connect, target)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// clientTLS is what a client needs for a server, with a certificate of its own if there is one.
func clientTLS(name, root, certificate, key string) (*tls.Config, error) {
	text, err := os.ReadFile(root)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{ServerName: name, RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13}
	c.RootCAs.AppendCertsFromPEM(text)
	if certificate == "" {
		return c, nil
	}
	own, err := tls.LoadX509KeyPair(certificate, key)
	c.Certificates = []tls.Certificate{own}
	return c, err
}
