package bench

import (
	"context"
	"net/netip"
	"slices"

	"heddle/lab"
	"heddle/lab/peer"
)

var (
	quicServer = netip.AddrPortFrom(lab.ServerAddr, 4433)
	quicRelay  = netip.MustParseAddrPort("127.0.0.1:4433")
	// The tunnel's server forwards to the web host; nothing else in the world does.
	quicBehind = netip.AddrPortFrom(lab.WebAddr, 4433)
	// The three paths meet at core, so a proxy there has three entries and one exit.
	quicProxy = netip.MustParseAddrPort("192.0.2.254:4434")
)

// quicPlace is how a QUIC session reaches its server.
type quicPlace struct {
	name  string
	world func() lab.World
	host  string         // of the server
	at    netip.AddrPort // where it listens
	to    netip.AddrPort // the client sends to this
	// prepare starts what the path to the server needs, which ends with the world; may be nil.
	prepare func(*quicSession, context.Context, *stage) error
	// start starts the client side, switching as the flags say.
	start func(q *quicSession, ctx context.Context, s *stage, flags []string) (*peer.Process, error)
}

var quicPlaces = []quicPlace{
	{"distinct", lab.ThreeWays, "server", quicServer, quicRelay, nil, (*quicSession).relay},
	{"one-exit", lab.ThreeWaysOneExit, "server", quicServer, quicRelay, nil, (*quicSession).relay},
	{"tunnel", lab.ThreeWays, "web", quicBehind, quicBehind, (*quicSession).serveTunnel, (*quicSession).tunnel},
	{"exit", lab.ThreeWays, "server", quicServer, quicRelay, (*quicSession).serveProxy, (*quicSession).relayByProxy},
}

func (q *quicSession) serve(ctx context.Context, s *stage) (err error) {
	if q.prepare != nil {
		if err := q.prepare(q, ctx, s); err != nil {
			return err
		}
	}
	q.QUIC, err = peer.QUICServer(ctx, s.Host(q.host), q.library,
		peer.QUICConfig{Addr: q.at, Names: []string{q.host + ".example"}, Work: s.work, Say: s.say})
	return err
}

// relay starts `heddle split` over all access networks.
func (q *quicSession) relay(ctx context.Context, s *stage, flags []string) (*peer.Process, error) {
	return q.split(ctx, s, append(over(lab.Ways), flags...))
}

func (q *quicSession) split(ctx context.Context, s *stage, flags []string) (*peer.Process, error) {
	args := append([]string{"split", "--listen", quicRelay.String(), "--to", quicServer.String()}, flags...)
	return s.startUntil(ctx, "listening on", args...)
}

// serveTunnel starts the WireGuard server, the one exit of all paths: the QUIC server sees one address and port.
func (q *quicSession) serveTunnel(ctx context.Context, s *stage) (err error) {
	_, q.file, err = serveWireGuard(ctx, s, "10.9.0.0/24", lab.WebAddr.String()+"/32")
	return err
}

// tunnel starts `heddle up`.
func (q *quicSession) tunnel(ctx context.Context, s *stage, flags []string) (*peer.Process, error) {
	up, err := s.start(ctx, slices.Concat([]string{"up", q.file}, over(lab.Ways), flags)...)
	if err != nil {
		return nil, err
	}
	if err := awaitTunnel(ctx, s, []*peer.Process{up}); err != nil {
		up.Stop()
		return nil, err
	}
	return up, nil
}

// serveProxy starts the proxy, which each path reaches over its own access network.
func (q *quicSession) serveProxy(ctx context.Context, s *stage) error {
	proxy, err := peer.MasqueProxy(ctx, s.Host("core"), s.heddle, s.work, quicProxy)
	if err != nil {
		return err
	}
	q.proxy, q.token = proxy.Place, proxy.Token
	return nil
}

// relayByProxy starts `heddle split` over all access networks to the proxy.
func (q *quicSession) relayByProxy(ctx context.Context, s *stage, flags []string) (*peer.Process, error) {
	for _, way := range lab.Ways {
		flags = append(flags, "--path", way+"=if:"+way, "--via", "by-"+way+"="+q.proxy+"@"+way, "--secret", "by-"+way+"="+q.token)
	}
	return q.split(ctx, s, flags)
}
