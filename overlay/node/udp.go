package node

import (
	"context"
	"net"
	"net/http"
	"net/netip"

	"github.com/quic-go/quic-go/http3"

	"heddle/identity"
	"heddle/overlay/client"
	"heddle/proxy/connectudp"
)

// serveUDP makes the proxy for UDP.
func (n *Node) serveUDP(socket net.PacketConn) (*connectudp.Proxy, error) {
	config, err := n.o.Identity.Server(func(identity.Key) error { return nil }, http3.NextProtoH3)
	if err != nil {
		return nil, err
	}
	return connectudp.New(socket, connectudp.Options{TLS: config, Gate: n, MaxFlows: n.o.MaxFlows, Idle: n.o.Idle, Drain: n.o.Drain, Log: n.log})
}

// Admit admits a UDP flow of a client that proved a key and shows a grant. The proxy calls it.
func (n *Node) Admit(r *http.Request, host string, port uint16) (connectudp.Admission, error) {
	none := connectudp.Admission{}
	holder, err := identity.PeerKey(*r.TLS)
	if err != nil {
		return none, n.refused(r, &client.Refusal{Reason: client.ReasonRequest})
	}
	u, why := n.enter(r, holder)
	if why != nil {
		return none, n.refused(r, why)
	}
	return connectudp.Admission{
		User: holder.String(),
		Resolve: func(ctx context.Context) ([]netip.AddrPort, error) {
			to, why := n.resolve(ctx, u.account.grant, host, port)
			if why != nil {
				return nil, n.refused(r, why)
			}
			n.counts.flows.Add(1)
			return to, nil
		},
		Carry: func(up bool, bytes int) bool {
			if u.account.take(bytes, bytes) < bytes {
				return false
			}
			if up {
				n.counts.up.Add(uint64(bytes))
			} else {
				n.counts.down.Add(uint64(bytes))
			}
			return true
		},
		Ends: u.ctx,
		Done: func() { n.leave(u) },
	}, nil
}
