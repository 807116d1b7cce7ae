package bench

import (
	"context"
	"net/netip"
	"path/filepath"

	"heddle/lab"
	"heddle/lab/peer"
)

// The tunnel's server forwards to the web host, which nothing else in the world does.
var quicBehind = netip.AddrPortFrom(lab.WebAddr, 4433)

// quicTunnel is a QUIC session inside a WireGuard tunnel that is split: the tunnel's server is the one exit of all
// paths, and the QUIC server sees one address and one port.
type quicTunnel struct {
	quicSession
	tunnel
}

func (q *quicTunnel) serve(ctx context.Context, s *stage) (err error) {
	q.file = filepath.Join(s.work, "client.conf")
	if q.WireGuard, err = peer.WireGuardServer(ctx, s.Host("server"), peer.WireGuardConfig{
		Endpoint: wireguardEndpoint, File: q.file, Device: "wg0",
		Allowed: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24"), netip.PrefixFrom(lab.WebAddr, 32)},
	}); err != nil {
		return err
	}
	q.QUIC, err = peer.QUICServer(ctx, s.Host("web"), q.library,
		peer.QUICConfig{Addr: quicBehind, Names: []string{"web.example"}, Work: s.work, Say: s.say})
	return err
}

// variant measures through `heddle up`, which switches so often.
func (q *quicTunnel) variant(name, every string, flags ...string) variant {
	return variant{name, func(ctx context.Context, s *stage, seed int) ([]figure, error) {
		args := append([]string{"up", q.file}, split(every, lab.Ways, seed)...)
		up, err := s.start(ctx, append(args, flags...)...)
		if err != nil {
			return nil, err
		}
		defer up.Stop()
		if err := awaitTunnel(ctx, s, []*peer.Process{up}); err != nil {
			return nil, err
		}
		return q.measure(ctx, s, quicBehind, up)
	}}
}
