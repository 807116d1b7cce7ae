package node

import (
	"io"
	"net"
	"sync/atomic"

	"heddle/internal/netutil"
	"heddle/overlay/client"
)

// relay carries a stream both ways until both directions or the use end, and returns why. first was already received.
func (n *Node) relay(u *use, client net.Conn, first []byte, target net.Conn) error {
	near := netutil.Side{Reader: &prefixed{first, client}, Writer: &counted{client, u, &n.counts.down}}
	far := netutil.Side{Reader: target, Writer: &counted{target, u, &n.counts.up}}
	_, _, err := netutil.Pipe(u.ctx, near, far, func(error) { breakOff(client, target) })
	return err
}

// prefixed reads the bytes already received, and then the connection.
type prefixed struct {
	first []byte
	net.Conn
}

func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.first) == 0 {
		return p.Conn.Read(b)
	}
	n := copy(b, p.first)
	p.first = p.first[n:]
	return n, nil
}

// breakOff resets both sides, so that neither takes a truncated stream for a complete one.
func breakOff(client, target net.Conn) {
	if v, ok := client.(*visitor); ok {
		netutil.Reset(v.place.NetConn())
	}
	netutil.Reset(target)
}

// counted sends as much as the grant has bytes for.
type counted struct {
	to    net.Conn
	u     *use
	count *atomic.Uint64
}

func (c *counted) Write(data []byte) (int, error) {
	given := c.u.account.take(len(data), 0)
	sent, err := c.to.Write(data[:given])
	c.count.Add(uint64(sent))
	if err == nil && given < len(data) {
		err = &client.Refusal{Reason: client.ReasonUsedUp}
	}
	return sent, err
}

// CloseWrite forwards the end of one direction.
func (c *counted) CloseWrite() error {
	if half, ok := c.to.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return io.EOF // ends the other direction too
}
