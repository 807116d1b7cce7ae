package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"heddle/lab"
	"heddle/lab/peer"
)

// world is a client with three access networks, a WireGuard server, and hosts for the sites' latencies and protocols.
type world struct {
	*stage
	file    string // the client's wg-quick file
	origins map[origin]server
}

// origin is what the sites on one host share.
type origin struct {
	latency  time.Duration
	protocol string
}

// server serves one origin.
type server struct {
	addr        netip.AddrPort
	certificate string
}

func (s Site) origin() origin { return origin{s.Latency.Duration, s.Protocol} }

// origins lists the origins of the sites in a fixed order.
func (s Sites) origins() []origin {
	var all []origin
	for _, site := range s.Site {
		if !slices.Contains(all, site.origin()) {
			all = append(all, site.origin())
		}
	}
	slices.SortFunc(all, func(a, b origin) int {
		return cmp.Or(cmp.Compare(a.latency, b.latency), cmp.Compare(a.protocol, b.protocol))
	})
	return all
}

// plan is [lab.ThreeWays] with the sites' hosts instead of its web host.
func plan(origins []origin) lab.World {
	w := lab.ThreeWays()
	w.Name, w.About, w.Names = "collect", "threeways with an origin for each latency behind the server", nil
	w.Hosts = slices.DeleteFunc(w.Hosts, func(h lab.HostSpec) bool { return h.Name == "web" })
	w.Links = slices.DeleteFunc(w.Links, func(l lab.LinkSpec) bool { return l.Name == "web" })
	for i, o := range origins {
		name := fmt.Sprintf("origin-%d", i)
		near, far := netip.AddrFrom4([4]byte{198, 51, 100, byte(4*i + 1)}), netip.AddrFrom4([4]byte{198, 51, 100, byte(4*i + 2)})
		w.Hosts = append(w.Hosts, lab.HostSpec{Name: name, Routes: []lab.Route{{To: netip.MustParsePrefix("0.0.0.0/0"), Via: near, Device: "server"}}})
		w.Links = append(w.Links, lab.LinkSpec{
			Name: name,
			A:    lab.End{Host: "server", Device: name, Addrs: []netip.Prefix{netip.PrefixFrom(near, 30)}},
			B:    lab.End{Host: name, Device: "server", Addrs: []netip.Prefix{netip.PrefixFrom(far, 30)}},
		}.Both(lab.Shape{Delay: o.latency, Rate: 200_000_000}))
	}
	return w
}

func begin(ctx context.Context, s Sites) (w *world, err error) {
	origins := s.origins()
	w = &world{origins: map[origin]server{}}
	if ctx, w.stage, err = raise(ctx, plan(origins)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.end())
		}
	}()
	w.file = filepath.Join(w.work, "tunnel.conf")
	_, err = peer.WireGuardServer(ctx, w.in.Host("server"), peer.WireGuardConfig{
		Endpoint: netip.AddrPortFrom(lab.ServerAddr, 51820), File: w.file, Allowed: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}})
	if err != nil {
		return w, err
	}
	for i, o := range origins {
		if err = w.serve(ctx, s, i, o); err != nil {
			return w, err
		}
	}
	return w, nil
}

// serve starts the server of one origin for all its names.
func (w *world) serve(ctx context.Context, s Sites, i int, o origin) error {
	var names []string
	for _, site := range s.Site {
		if site.origin() == o {
			names = append(names, site.Server())
		}
	}
	work := filepath.Join(w.work, fmt.Sprintf("origin-%d", i))
	if err := os.Mkdir(work, 0o700); err != nil {
		return err
	}
	host := w.in.Host(fmt.Sprintf("origin-%d", i))
	addr := netip.AddrPortFrom(host.Addrs()[0], 443)
	if o.protocol == HTTP3 {
		h3, err := peer.QUICServer(ctx, host, "quic-go", peer.QUICConfig{Addr: addr, Names: names, Work: work, Root: s.Root})
		if err != nil {
			return err
		}
		w.origins[o] = server{addr, h3.Certificate}
		return nil
	}
	web, err := peer.WebServer(ctx, host, s.Root, work, names...)
	if err != nil {
		return err
	}
	w.origins[o] = server{addr, web.Certificate}
	return nil
}
