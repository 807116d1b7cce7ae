package tenants

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"

	"heddle/lab/peer"
)

// inner is where a server on a tenant's machine listens that hears of clients from that machine alone.
var inner = netip.MustParseAddrPort("127.0.0.1:4443")

// local is a sidecar, or what takes its place, that listens there.
func local(s peer.Sidecar) peer.Sidecar {
	s.Socket, s.Listen, s.Flags = "", inner, []string{"--gateway-from", "127.0.0.1/32"}
	return s
}

// front starts what serves a tenant's pseudonyms where s says. The agent leads there with some flags.
func (w *world) front(ctx context.Context, f front, s peer.Sidecar, work string) (flags []string, err error) {
	switch {
	case w.way == Pass: // by a socket that only a sidecar takes
	case f == byNginx:
		return w.nginx(ctx, s, work)
	case f == byHAProxy:
		if _, err := w.cloud.Sidecar(ctx, local(s)); err != nil {
			return nil, err
		}
		return w.haproxy(ctx, s, work)
	}
	_, err = w.cloud.Sidecar(ctx, s)
	return nil, err
}

// nginx starts nginx in place of the sidecar. Clients that come without a gateway have an address of their own there.
func (w *world) nginx(ctx context.Context, s peer.Sidecar, work string) (flags []string, err error) {
	at := s
	if w.way != Proxy {
		at = local(s)
	}
	if w.way == Direct || w.way == V6 {
		at.Flags = append(at.Flags, "--listen-v6", s.Listen.String())
	}
	own := filepath.Join(work, "front")
	include, err := w.cloud.Nginx(ctx, at, filepath.Join(work, "heddle"))
	if err = errors.Join(err, os.Mkdir(own, 0o755)); err == nil {
		_, err = peer.StartNginx(ctx, w.in.Host(s.Host), own, "include "+include+";")
	}
	return []string{"--to", "proxy:" + inner.String()}, err
}

// haproxy starts HAProxy before a sidecar.
func (w *world) haproxy(ctx context.Context, s peer.Sidecar, work string) (flags []string, err error) {
	at := s.Listen.String()
	if s.Socket != "" {
		at = "unix:" + s.Socket
	}
	_, err = peer.HAProxyAt(ctx, w.in.Host(s.Host), work, at, w.way == Proxy || moves(w.way), inner)
	return []string{"--to", "proxy:" + at}, err
}
