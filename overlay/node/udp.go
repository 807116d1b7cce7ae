package node

import (
	"context"
	"net/http"
	"net/netip"

	"github.com/quic-go/quic-go/http3"

	"heddle/path/identity"
	"heddle/path/masque/proxy"
	pathnode "heddle/path/node"
)

// listenUDP makes the proxy for UDP, on the port of the listener for TCP.
func (n *Node) listenUDP() (*proxy.Proxy, error) {
	config, err := n.o.Identity.Server(func(identity.Key) error { return nil }, http3.NextProtoH3)
	if err != nil {
		return nil, err
	}
	at := n.o.Listen
	if at.Port() == 0 {
		at = netip.AddrPortFrom(at.Addr(), n.Addr().Port())
	}
	return proxy.New(proxy.Options{Listen: at, TLS: config, Gate: n, MaxFlows: n.o.MaxFlows, Idle: n.o.Idle, Drain: n.o.Drain, Log: n.log})
}

// Admit lets in a UDP flow of somebody who proved a key and shows a grant. It is for the proxy.
func (n *Node) Admit(r *http.Request, host string, port uint16) (proxy.Admission, error) {
	none := proxy.Admission{}
	holder, err := identity.PeerKey(*r.TLS)
	if err != nil {
		return none, n.refused(r, &pathnode.Refusal{Reason: pathnode.ReasonRequest})
	}
	a, why := n.admit(r, holder, pathnode.ModeForward)
	if why != nil {
		return none, n.refused(r, why)
	}
	if !n.flows.Enter(holder) {
		return none, n.refused(r, &pathnode.Refusal{Reason: pathnode.ReasonBusy})
	}
	u, why := n.begin(a)
	if why != nil {
		n.flows.Leave(holder)
		return none, n.refused(r, why)
	}
	return proxy.Admission{
		User: holder.String(),
		Resolve: func(ctx context.Context) ([]netip.AddrPort, error) {
			to, why := n.resolve(ctx, a.grant, host, port)
			if why != nil {
				return nil, n.refused(r, why)
			}
			n.counts.flows.Add(1)
			return to, nil
		},
		Carry: func(up bool, bytes int) bool {
			if !a.takeAll(bytes) {
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
		Done: func() {
			u.end(context.Canceled)
			n.flows.Leave(holder)
		},
	}, nil
}
