package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/miekg/dns"

	"heddle/lab"
	"heddle/lab/peer"
)

// world is the stage with network namespaces.
type world struct {
	o           Options
	in          *lab.Instance
	server      *peer.WireGuard
	web         *peer.Web
	names       *dns.Server
	file        string // the client's wg-quick file
	list        []target
	certificate string
}

// theWorld is three access networks, as in the lab, but with the web host in reach of everybody and a resolver on it,
// so that a session without any tunnel is possible.
func theWorld() lab.World {
	w := lab.ThreeWays()
	w.Name, w.Names = "demo", nil
	for i := range w.Hosts {
		h := &w.Hosts[i]
		switch h.Name {
		case "client":
			h.Nameservers = []netip.Addr{lab.WebAddr}
		case "core":
			h.Routes = append(h.Routes, lab.Route{To: netip.PrefixFrom(lab.WebAddr, 24).Masked(), Via: lab.ServerAddr, Device: "server"})
		}
	}
	return w
}

func openWorld(ctx context.Context, o Options, work string) (stage, error) {
	if err := needCurl(); err != nil {
		return nil, err
	}
	fmt.Fprintln(o.Talk, "lay a world: a client with three access networks, a WireGuard server, a web server")
	in, err := lab.Up(ctx, theWorld(), lab.Options{})
	if err != nil {
		return nil, err
	}
	w := &world{o: o, in: in, file: filepath.Join(work, "work.conf")}
	if err := w.serve(ctx, work); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// serve starts the servers.
func (w *world) serve(ctx context.Context, work string) (err error) {
	fmt.Fprintln(w.o.Talk, "start wireguard-go on the server (the first time it is built)")
	w.server, err = peer.WireGuardServer(ctx, w.in.Host("server"), peer.WireGuardConfig{
		Endpoint: netip.AddrPortFrom(lab.ServerAddr, 51820), File: w.file,
		Allowed: []netip.Prefix{netip.PrefixFrom(lab.WebAddr, 24).Masked()}})
	if err != nil {
		return err
	}
	root := filepath.Join(work, "site")
	pages, err := peer.Site(root, w.o.Large)
	if err != nil {
		return err
	}
	w.list = targets(root, pages)
	host := w.in.Host("web")
	if w.web, err = peer.WebServer(ctx, host, root, work, names...); err != nil {
		return err
	}
	fmt.Fprintf(w.o.Talk, "start %s on the web host\n", w.web.Server)
	w.certificate = w.web.Certificate
	return host.Do(func() error {
		socket, err := net.ListenPacket("udp", netip.AddrPortFrom(lab.WebAddr, 53).String())
		if err == nil {
			w.names = serveNames(socket, lab.WebAddr)
		}
		return err
	})
}

func (w *world) urls() []target { return w.list }

// phases begin with no tunnel: the server goes on for a while to call a client that has left, and that would show.
func (w *world) phases() []phase {
	return []phase{
		{2, "no tunnel", "nothing", func(ctx context.Context, dir string, fetch func(curl) error) error {
			return w.in.CaptureWays(ctx, dir, lab.Ways[:1], func() error { return fetch(w.curl) })
		}},
		{0, "Heddle", "heddle", w.withHeddle},
		{1, "WireGuard alone", "wireguard", w.withWireGuard},
	}
}

func (w *world) curl(ctx context.Context, args ...string) *exec.Cmd {
	return w.in.Host("client").Command(ctx, "curl", append([]string{"--cacert", w.certificate}, args...)...)
}

func (w *world) withHeddle(ctx context.Context, dir string, fetch func(curl) error) error {
	args := []string{"up", w.file, "--schedule", "weighted", "--every", "100ms"}
	for _, way := range lab.Ways {
		args = append(args, "--via", way+"=if:"+way)
	}
	return w.in.CaptureWays(ctx, dir, lab.Ways, func() error {
		return withHeddle(ctx, w.in.Host("client").Command(ctx, w.o.Heddle, args...), w.o.Talk,
			func(string) error { return fetch(w.curl) })
	})
}

func (w *world) withWireGuard(ctx context.Context, dir string, fetch func(curl) error) error {
	return w.in.CaptureWays(ctx, dir, lab.Ways[:1], func() error {
		client, err := w.server.Client(ctx, w.in.Host("client"), netip.AddrPortFrom(lab.ServerAddr, 51820))
		if err != nil {
			return err
		}
		defer client.Stop()
		return fetch(w.curl)
	})
}

// late is the mean lateness of the emulated links, in milliseconds, above which they are not what they claim to be.
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

func (w *world) close() error {
	if w.names != nil {
		_ = w.names.Shutdown()
	}
	if w.web != nil {
		w.web.Stop()
	}
	if w.server != nil {
		w.server.Stop()
	}
	return w.in.Down()
}
