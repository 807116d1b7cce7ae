package gateway

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"heddle/internal/clienthello"
	"heddle/internal/netutil"
)

// A sidecar on the gateway's machine, at unix:FILE, takes over connections themselves: the gateway passes the descriptor, with what the
// client said so far, and has no part in them any more. The message has a version, the client's address after its length (8 bits), and
// what the client said after its length (32 bits). The descriptor comes with the first byte. The sidecar answers with one byte when its
// server has accepted the connection, and waits for the next message. Processes of root, of the sidecar's own user and of the group of the
// socket may pass connections.
//
// An agent passes a connection that it takes over before that may speak, so that the sidecar works on the answer to the client meanwhile. The
// version says so, and one byte follows when the connection may speak, in place of the sidecar's answer. If none does, the sidecar closes
// the connection, which the client does not notice.
const (
	passVersion   = 1
	passSilent    = 2 // in place of passVersion
	passBegin     = 1
	passTaken     = 1
	passForbidden = 2
	// passMost is the most that a client may have said: a hello, and what came in the same segment.
	passMost = 4 * clienthello.Limit
	// passAtOnce is how many gateways' connections a sidecar has at a time. The one that waits for the longest gives way to another.
	passAtOnce = 256
)

var (
	errPass      = errors.New("it is no connection that a gateway passes")
	errForbidden = errors.New("the sidecar takes no connections of this program's user; its gateway-group may pass them")
)

// passage is what a gateway passes beside the descriptor.
type passage struct {
	client netip.AddrPort
	sent   []byte
	silent bool // it may not speak yet
}

func (p passage) message() []byte {
	from := p.client.String()
	b := append([]byte{passVersion, byte(len(from))}, from...)
	if p.silent {
		b[0] = passSilent
	}
	return append(binary.BigEndian.AppendUint32(b, uint32(len(p.sent))), p.sent...)
}

// readPassage reads the rest of a message whose first bytes came with the descriptor.
func readPassage(r io.Reader) (p passage, err error) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(r, head); err != nil || head[0] != passVersion && head[0] != passSilent {
		return p, errors.Join(errPass, err)
	}
	p.silent = head[0] == passSilent
	from := make([]byte, int(head[1])+4)
	if _, err := io.ReadFull(r, from); err != nil {
		return p, err
	}
	size := binary.BigEndian.Uint32(from[head[1]:])
	if p.client, err = netip.ParseAddrPort(string(from[:head[1]])); err != nil || size > passMost {
		return p, errors.Join(errPass, err)
	}
	p.sent = make([]byte, size)
	_, err = io.ReadFull(r, p.sent)
	return p, err
}

// mayAskAgain reports whether a sidecar may ask a client for another hello, which is encrypted for the gateway too. crypto/tls asks if the
// client knows a post-quantum group and sent no share of the best one, or if it sent no share of a group that the server knows.
func mayAskAgain(handshake []byte) bool {
	h, err := clienthello.Parse(handshake)
	if err != nil {
		return true
	}
	has := func(groups []uint16, one tls.CurveID) bool { return slices.Contains(groups, uint16(one)) }
	for _, one := range []tls.CurveID{tls.X25519MLKEM768, tls.SecP256r1MLKEM768, tls.SecP384r1MLKEM1024} {
		if has(h.Groups, one) {
			return !has(h.KeyShares, tls.X25519MLKEM768)
		}
	}
	return !has(h.KeyShares, tls.X25519)
}

// passTo gives a connection to one of a tenant's sidecars on this machine, by a way that waits. It reports false if there is none.
func (g *Gateway) passTo(ctx context.Context, c net.Conn, addresses []string, first greeting) (to net.Conn, passes bool, err error) {
	for _, a := range addresses {
		file, local := netutil.UnixFile(a)
		if !local {
			continue
		}
		way, _ := g.sidecars.take(file).(*net.UnixConn)
		if way == nil {
			continue
		}
		if to, err = g.pass(ctx, c, way, first); !gone(err) {
			return to, true, err
		}
	}
	return nil, false, nil
}

// gone reports whether a sidecar has ended its end of a way before it had a whole message.
func gone(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// pass is the function pass, and keeps the way for the next client.
func (g *Gateway) pass(ctx context.Context, c net.Conn, way *net.UnixConn, first greeting) (to net.Conn, err error) {
	if to, err = pass(ctx, c, way, first); err != nil {
		way.Close()
		return nil, err
	}
	g.sidecars.keep(way.RemoteAddr().String(), way)
	return to, nil
}

// pass gives a connection to the sidecar at the other end of way. If the sidecar may need the gateway once more, it gets one end of a pipe
// in its place, and pass returns the other.
func pass(ctx context.Context, c net.Conn, way *net.UnixConn, first greeting) (to net.Conn, err error) {
	until, _ := ctx.Deadline()
	_ = way.SetDeadline(until)
	given, whole := under(c).(*net.TCPConn)
	if !whole || first.opened != nil && mayAskAgain(first.opened.Hello) {
		var far net.Conn
		if to, far, err = socketPair(); err != nil {
			return nil, err
		}
		defer far.Close()
		err = giveTaken(way, far, passage{client: netutil.AddrPort(c.RemoteAddr()), sent: first.send})
	} else {
		err = giveTaken(way, given, passage{client: netutil.AddrPort(c.RemoteAddr()), sent: first.send})
	}
	if err != nil && to != nil {
		to.Close()
		to = nil
	}
	return to, err
}

// giveTaken gives a connection to a sidecar, until that says that it has it.
func giveTaken(way *net.UnixConn, c net.Conn, p passage) error {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = giveDescriptor(way, int(fd), p.message()) }); err != nil {
		return err
	}
	return taken(way, failed)
}

// taken reads the sidecar's answer to a message. failed is why that could not be sent, or nil.
func taken(way *net.UnixConn, failed error) error {
	if failed != nil {
		_ = way.CloseWrite() // the sidecar waits for no more
	}
	answer := make([]byte, 1)
	if _, err := io.ReadFull(way, answer); failed == nil {
		failed = err
	}
	switch { // a sidecar that forbids it does so before it has all
	case answer[0] == passForbidden:
		return errForbidden
	case failed == nil && answer[0] != passTaken:
		return errPass
	}
	return failed
}

// under returns the connection of the kernel.
func under(c net.Conn) net.Conn {
	for {
		inner, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return c
		}
		c = inner.NetConn()
	}
}
