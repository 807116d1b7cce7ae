package gateway

import (
	"context"
	"net"
	"time"

	"heddle/internal/netutil"
	"heddle/internal/tcprepair"
)

// ProxyPrefix begins the address of a server that gets connections from an agent by the PROXY protocol, version 2. Such a server needs no part of
// Heddle, and the agent carries the bytes, within its machine.
const ProxyPrefix = "proxy:"

// tellServer connects to the server, and tells it who the client is and what that said.
func (a *Agent) tellServer(ctx context.Context, s tcprepair.State, said []byte) (receiver, error) {
	within, cancel := context.WithTimeout(ctx, dialFor)
	defer cancel()
	network, at := netutil.Network(a.Server)
	to, err := (&net.Dialer{}).DialContext(within, network, at)
	if err != nil {
		return nil, err
	}
	_ = to.SetDeadline(time.Now().Add(dialFor))
	if to, err = introduce(net.TCPAddrFromAddrPort(s.Remote), net.TCPAddrFromAddrPort(s.Local), to, said); err != nil {
		return nil, err
	}
	return relaying{a, ctx, to}, nil
}

// relaying is a connection that the server knows of, and which may not speak yet.
type relaying struct {
	agent *Agent
	ctx   context.Context
	net.Conn
}

func (r relaying) begin(held *tcprepair.Held) error {
	_ = r.SetDeadline(time.Time{})
	c, err := held.Resume()
	if err != nil {
		r.Close()
		return err
	}
	place := r.agent.relayed.Enter(c)
	place.Proved()
	go func() {
		defer place.Close()
		defer r.Close()
		_, _, _ = netutil.Pipe(r.ctx, netutil.Side{Reader: c, Writer: c}, netutil.Side{Reader: r.Conn, Writer: r.Conn}, func(error) { place.Close(); r.Close() })
	}()
	return nil
}
