package demo

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"

	"heddle/lab"
	"heddle/lab/peer"
)

// world is the stage with network namespaces.
type world struct {
	*stage
	in     *lab.Instance
	server *peer.WireGuard
}

var (
	tunnelEndpoint = netip.AddrPortFrom(lab.ServerAddr, 51820)
	webNetwork     = netip.PrefixFrom(lab.WebAddr, 24).Masked()
)

// theWorld has three access networks, as in the lab, but everybody can reach the web host and its resolver, so that a
// session without a tunnel is possible.
func theWorld() lab.World {
	w := lab.ThreeWays()
	w.Name, w.Names = "demo", nil
	for i := range w.Hosts {
		h := &w.Hosts[i]
		switch h.Name {
		case "client":
			h.Nameservers = []netip.Addr{lab.WebAddr}
		case "core":
			h.Routes = append(h.Routes, lab.Route{To: webNetwork, Via: lab.ServerAddr, Device: "server"})
		}
	}
	return w
}

// openWorld makes the stage with network namespaces. Its servers end with ctx.
func (s *stage) openWorld(ctx context.Context, root string) error {
	fmt.Fprintln(s.o.Talk, "lay a world: a client with three access networks, a WireGuard server, a web server")
	in, err := lab.Up(ctx, theWorld(), lab.Options{})
	if err != nil {
		return err
	}
	s.close = in.Down
	fmt.Fprintln(s.o.Talk, "start wireguard-go on the server (the first time it is built)")
	w := &world{stage: s, in: in}
	w.server, err = peer.WireGuardServer(ctx, in.Host("server"), peer.WireGuardConfig{
		Endpoint: tunnelEndpoint, File: s.file, Allowed: []netip.Prefix{webNetwork}})
	if err != nil {
		return err
	}
	host := in.Host("web")
	web, err := peer.WebServer(ctx, host, root, s.work, names...)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.o.Talk, "start %s on the web host\n", web.Server)
	s.certificate = web.Certificate
	// No tunnel comes first: the server calls a client that has left for a while, and that would be captured.
	s.phases = []phase{
		{2, "no tunnel", "nothing", w.withNothing},
		{0, "Heddle", "heddle", w.withHeddle},
		{1, "WireGuard alone", "wireguard", w.withWireGuard},
	}
	s.finish = w.finish
	return host.Do(func() error {
		socket, err := net.ListenPacket("udp", netip.AddrPortFrom(lab.WebAddr, 53).String())
		if err == nil {
			serveNames(ctx, socket, allAt(lab.WebAddr), nil)
		}
		return err
	})
}

func (w *world) curl(ctx context.Context, args ...string) *exec.Cmd {
	return w.in.Host("client").Command(ctx, "curl", append([]string{"--cacert", w.certificate}, args...)...)
}

func (w *world) withNothing(ctx context.Context, dir string, fetch func(curl) error) error {
	return w.in.CaptureWays(ctx, dir, lab.Ways[:1], func() error { return fetch(w.curl) })
}

func (w *world) withHeddle(ctx context.Context, dir string, fetch func(curl) error) error {
	args := []string{"up", w.file, "--schedule", "weighted", "--every", "100ms"}
	for _, way := range lab.Ways {
		args = append(args, "--via", way+"=if:"+way)
	}
	return w.in.CaptureWays(ctx, dir, lab.Ways, func() error {
		up := func() (*peer.Process, error) { return peer.Start(ctx, w.in.Host("client"), w.o.Heddle, args...) }
		return w.stage.withHeddle(ctx, up, func(string) error { return fetch(w.curl) })
	})
}

func (w *world) withWireGuard(ctx context.Context, dir string, fetch func(curl) error) error {
	return w.in.CaptureWays(ctx, dir, lab.Ways[:1], func() error {
		client, err := w.server.Client(ctx, w.in.Host("client"), tunnelEndpoint)
		if err != nil {
			return err
		}
		defer client.Stop()
		return fetch(w.curl)
	})
}

// late is the mean lateness of the emulated links, in milliseconds, above which a run is rejected.
const late = 1.0

func (w *world) finish(r *Result) {
	l := w.in.Lateness()
	r.Lateness = &l
	if l.Mean > late {
		r.Notes = append(r.Notes, fmt.Sprintf("This machine was busy: emulated links were %.1f ms late on average.", l.Mean))
	}
	r.Notes = append(r.Notes, "Captured at the routers of the access networks "+strings.Join(lab.Ways, ", ")+
		"; WireGuard alone and no tunnel use "+lab.Ways[0]+" only.")
}
