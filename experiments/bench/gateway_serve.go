package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/miekg/dns"

	"heddle/lab"
	"heddle/lab/peer"
)

// agentPort is the agent's on the site's machine.
const agentPort = 4444

// directPort is that of the one that answers past the gateway.
const directPort = 4445

// movedSite is the address of the site's machine to which connections are handed over. It is another than that of the ways without a gateway, so
// that entries of the switch for a client's port do not meet other connections from that port.
var movedSite = netip.MustParseAddr("10.9.1.3")

// gatewayServers are the servers of a topology of the gateway. Each mode has a site of its own, whose only address is one of that mode, so that
// no connection goes another way. All sites have the same nginx.
type gatewayServers struct {
	pseudonymServers
	bridge string // of Open vSwitch, which joins the cloud's networks and leads what moves; "" for none
}

// start starts what the wanted ways need, and says how to go each way.
func (g *gatewayServers) start(ctx context.Context, wanted []string) error {
	if err := g.startSite(ctx, wanted); err != nil {
		return err
	}
	devices, err := peer.NewOverlay(g.heddle, g.work, g.Instance)
	if err != nil {
		return err
	}
	if g.cloud, err = peer.NewCloud(ctx, devices, filepath.Join(g.work, "cloud"), lab.CloudGateway); err != nil {
		return err
	}
	if slices.Contains(wanted, wayV6) {
		err = errors.Join(g.Host("site").Own(lab.CloudPrefix), g.cloud.Replace(`# v6-prefix = "2001:db8:77:1::/64"`, fmt.Sprintf("v6-prefix = %q", lab.CloudPrefix),
			`# v6-device = "eth0"`, `v6-device = "isp"`, `listen = [":443"]`, fmt.Sprintf(`listen = [":443", ":%d"]`, v6Port)))
		if err != nil {
			return err
		}
	}
	if err := g.startBridge(ctx); err != nil {
		return err
	}
	if g.serving, err = g.cloud.Serve(ctx); err != nil {
		return err
	}
	for _, add := range []func(context.Context, []string) error{g.addRelayed, g.addPassed, g.addMoved, g.addDirect, g.addLed, g.startRelays} {
		if err := add(ctx, wanted); err != nil {
			return err
		}
	}
	for _, name := range wanted {
		if err := g.await(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// startBridge joins the cloud's networks.
func (g *gatewayServers) startBridge(ctx context.Context) error {
	if g.bridge == "" {
		return nil
	}
	cloud := g.Host("cloud")
	if err := peer.OpenVSwitch(ctx, cloud, g.bridge); err != nil {
		return err
	}
	return g.cloud.Replace(`# gateway-switch = "auto"`, `gateway-switch = "ovs"`, `# gateway-bridge = "br0"`, fmt.Sprintf("gateway-bridge = %q", peer.BridgeSocket(cloud, g.bridge)))
}

// addRelayed adds the site of a gateway that relays, of relays in its place, and of none.
func (g *gatewayServers) addRelayed(ctx context.Context, _ []string) error {
	w, err := g.add(ctx, g.cloud.At("site", pseudonymName, pseudonymSite))
	if err != nil {
		return err
	}
	g.ways[wayProxy] = w
	w.controller = 0 // startRelays knows those of the others
	for name, at := range map[string]netip.AddrPort{wayMutual: netip.AddrPortFrom(pseudonymSite, peer.SidecarPort),
		wayHAProxy: netip.AddrPortFrom(lab.CloudGateway, haproxyPort), wayNginx: netip.AddrPortFrom(lab.CloudGateway, nginxRelayPort)} {
		w.dial = g.to(at)
		g.ways[name] = w
	}
	return nil
}

// site is the sidecar of the site of a mode.
func (g *gatewayServers) site(mode, host string) peer.Sidecar {
	s := g.cloud.At(host, mode+".example", pseudonymSite)
	s.To = "http://" + netip.AddrPortFrom(pseudonymSite, 80).String()
	return s
}

// addPassed adds the site whose sidecar is on the gateway's machine.
func (g *gatewayServers) addPassed(ctx context.Context, wanted []string) (err error) {
	if slices.Contains(wanted, wayPass) {
		s := g.site(wayPass, "cloud")
		s.Socket = filepath.Join(g.work, "passed")
		g.ways[wayPass], err = g.add(ctx, s)
	}
	return err
}

// addMoved adds the site with an agent.
func (g *gatewayServers) addMoved(ctx context.Context, wanted []string) (err error) {
	if slices.Contains(wanted, wayHandoff) {
		g.ways[wayHandoff], err = g.addAgent(ctx, g.site(wayHandoff, "site"), wayHandoff, netip.AddrPortFrom(movedSite, agentPort))
	}
	return err
}

// addDirect adds the site with an agent that answers past the gateway.
func (g *gatewayServers) addDirect(ctx context.Context, wanted []string) (err error) {
	if !slices.Contains(wanted, wayPast) {
		return nil
	}
	if err := g.Host("site").AnswerPast(ctx, lab.CloudGateway); err != nil {
		return err
	}
	g.ways[wayPast], err = g.addAgent(ctx, g.site(wayPast, "site"), wayPast, netip.AddrPortFrom(movedSite, directPort), "--direct", lab.CloudGateway.String())
	return err
}

// pseudoAddresses are how many a client takes in turn, in place of a question to the nameserver before each connection: the other ways have none.
const pseudoAddresses = 16

// addLed adds the site with pseudo-addresses.
func (g *gatewayServers) addLed(ctx context.Context, wanted []string) error {
	if !slices.Contains(wanted, wayV6) {
		return nil
	}
	s := g.site(wayV6, "site")
	s.Listen, s.Addresses = netip.AddrPortFrom(netip.IPv6Unspecified(), v6Port), []string{"v6:" + lab.CloudSite6(1).String()}
	w, err := g.add(ctx, s)
	if err != nil {
		return err
	}
	// The nameserver learns of the site's address a little later. Until then its answers lead to the gateway, which has no way to the site.
	err = g.serving.Await(ctx, func() error {
		at, err := g.pseudoAddress(ctx, w.tls.ServerName)
		if err != nil {
			return err
		}
		w.dial = g.to(netip.AddrPortFrom(at, v6Port))
		_, err = w.fetch(ctx, smallest)
		return err
	})
	if err != nil {
		return err
	}
	var dials []func(context.Context) (net.Conn, error)
	for range pseudoAddresses {
		at, err := g.pseudoAddress(ctx, w.tls.ServerName)
		if err != nil {
			return err
		}
		dials = append(dials, g.to(netip.AddrPortFrom(at, v6Port)))
	}
	var next atomic.Uint64
	w.dial = func(ctx context.Context) (net.Conn, error) { return dials[next.Add(1)%pseudoAddresses](ctx) }
	g.ways[wayV6] = w
	return nil
}

// pseudoAddress asks the cloud's nameserver for an address. Each answer has another.
func (g *gatewayServers) pseudoAddress(ctx context.Context, name string) (netip.Addr, error) {
	var answer *dns.Msg
	err := g.Host("client").Do(func() (err error) {
		question := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeAAAA)
		answer, err = dns.ExchangeContext(ctx, question, netip.AddrPortFrom(lab.CloudGateway, 53).String())
		return err
	})
	if err != nil {
		return netip.Addr{}, err
	}
	for _, r := range answer.Answer {
		if aaaa, ok := r.(*dns.AAAA); ok {
			at, _ := netip.AddrFromSlice(aaaa.AAAA)
			return at, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%s has no pseudo-address", name)
}
