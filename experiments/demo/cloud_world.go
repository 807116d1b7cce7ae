package demo

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"

	"heddle/lab"
	"heddle/lab/browser"
	"heddle/lab/peer"
)

// openWorld makes the stage with network namespaces: the client, the router of its network, where the observer is, and the cloud.
// Everything ends with ctx.
func (s *cloudStage) openWorld(ctx context.Context) error {
	fmt.Fprintln(s.Talk, "lay a world: a client, its network with an observer, and a cloud with three sites")
	w := lab.OpenCloud("cloud-demo", newsSite.host, clinicSite.host, shopSite.host)
	resolver := netip.MustParseAddr("10.1.0.1") // of the client's network
	for i := range w.Hosts {
		if h := &w.Hosts[i]; h.Name == w.Client {
			h.Nameservers = []netip.Addr{resolver}
		}
	}
	in, err := lab.Up(ctx, w, lab.Options{})
	if err != nil {
		return err
	}
	s.close = in.Down
	devices, err := peer.NewOverlay(s.Heddle, s.work, in)
	if err != nil {
		return err
	}
	fmt.Fprintln(s.Talk, "start the cloud and its sites")
	if s.cloud, err = peer.StartCloud(ctx, devices, filepath.Join(s.work, "cloud"), lab.CloudGateway); err != nil {
		return err
	}
	addrs := map[string]netip.Addr{}
	for _, site := range cloudSites {
		if addrs[site.name], err = s.openSite(ctx, in.Host(site.host), site); err != nil {
			return err
		}
	}
	isp, client := in.Host("isp"), in.Host("client")
	s.watch = func(ctx context.Context, dir string, use func() error) error {
		stop, err := in.CaptureAll(ctx, dir, map[string]string{"network": "isp/client"})
		if err != nil {
			return err
		}
		used := use()
		if err := stop(); err != nil {
			return err
		}
		return used
	}
	dial := func(ctx context.Context, network string, at netip.AddrPort) (c net.Conn, err error) {
		err = isp.Do(func() error {
			c, err = (&net.Dialer{Timeout: probePatience}).DialContext(ctx, network, at.String())
			return err
		})
		return c, err
	}
	s.dial = func(ctx context.Context, at netip.AddrPort) (net.Conn, error) { return dial(ctx, "tcp", at) }
	s.curl = func(ctx context.Context, args ...string) *exec.Cmd { return client.Command(ctx, "curl", args...) }
	s.visitor = &byBrowser{cloudStage: s, host: client}
	s.notes = append(s.notes, "Captured at the router of the client's network. Its resolver asks the nameserver of the cloud's zone.")
	return isp.Do(func() error {
		socket, err := net.ListenPacket("udp", netip.AddrPortFrom(resolver, 53).String())
		if err == nil {
			serveNames(ctx, socket, addrs, forward(func() (net.Conn, error) { return dial(ctx, "udp", netip.AddrPortFrom(lab.CloudGateway, 53)) }))
		}
		return err
	})
}

// openSite starts a site's own web server, and its sidecar. It returns the address of the server.
func (s *cloudStage) openSite(ctx context.Context, host *lab.Host, at site) (netip.Addr, error) {
	root, work := filepath.Join(s.work, at.host+"-site"), filepath.Join(s.work, at.host+"-server")
	if err := writeSite(root, at); err != nil {
		return netip.Addr{}, err
	}
	if err := os.Mkdir(work, 0o700); err != nil {
		return netip.Addr{}, err
	}
	web, err := peer.WebServer(ctx, host, root, work, at.name)
	if err != nil {
		return netip.Addr{}, err
	}
	s.certificates = append(s.certificates, web.Certificate)
	addr := host.Addrs()[0]
	_, err = s.cloud.Add(ctx, s.cloud.At(at.host, at.name, addr, trusts(at)...))
	return addr, err
}

// trusts are the flags for a site's sidecar.
func trusts(at site) []string {
	if at == shopSite {
		return []string{"--trusts", newsSite.name}
	}
	return nil
}

// BrowserSupported returns nil, or why no browser can visit.
func BrowserSupported() error { return browser.UserSupported() }
