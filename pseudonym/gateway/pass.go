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
	"sync"
	"time"

	"heddle/internal/clienthello"
	"heddle/internal/netutil"
)

// A sidecar on the gateway's machine, at unix:FILE, takes over connections themselves: the gateway passes the descriptor, with what the
// client said so far, and has no part in them any more. The message has a version, the client's address after its length (8 bits), and
// what the client said after its length (32 bits). The descriptor comes with the first byte. The sidecar answers with one byte when its
// server has accepted the connection. Processes of root, of the sidecar's own user and of the group of the socket may pass connections.
const (
	passVersion   = 1
	passTaken     = 1
	passForbidden = 2
	// passMost is the most that a client may have said: a hello, and what came in the same segment.
	passMost = 4 * clienthello.Limit
	// passAtOnce is how many messages a sidecar reads at a time.
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
}

func (p passage) message() []byte {
	from := p.client.String()
	b := append([]byte{passVersion, byte(len(from))}, from...)
	return append(binary.BigEndian.AppendUint32(b, uint32(len(p.sent))), p.sent...)
}

// readPassage reads the rest of a message whose first bytes came with the descriptor.
func readPassage(r io.Reader) (p passage, err error) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(r, head); err != nil || head[0] != passVersion {
		return p, errors.Join(errPass, err)
	}
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

// pass gives a connection to the sidecar at the other end of way. If the sidecar may need the gateway once more, it gets one end of a pipe
// in its place, and pass returns the other.
func pass(ctx context.Context, c net.Conn, way *net.UnixConn, first greeting) (to net.Conn, err error) {
	defer way.Close()
	until, _ := ctx.Deadline()
	_ = way.SetDeadline(until)
	given, whole := under(c).(*net.TCPConn)
	if !whole || first.opened != nil && mayAskAgain(first.opened.Hello) {
		var far net.Conn
		if to, far, err = socketPair(); err != nil {
			return nil, err
		}
		defer far.Close()
		err = giveTaken(way, far, passage{netutil.AddrPort(c.RemoteAddr()), first.send})
	} else {
		err = giveTaken(way, given, passage{netutil.AddrPort(c.RemoteAddr()), first.send})
	}
	if err != nil && to != nil {
		to.Close()
		to = nil
	}
	return to, err
}

// giveTaken gives a connection to a sidecar, until that says that it has it.
func giveTaken(way *net.UnixConn, c net.Conn, p passage) error {
	err := giveDescriptor(way, c, p.message())
	if err != nil {
		_ = way.CloseWrite() // the sidecar waits for no more
	}
	answer := make([]byte, 1)
	if _, other := io.ReadFull(way, answer); err == nil {
		err = other
	}
	switch { // a sidecar that forbids it does so before it has all
	case answer[0] == passForbidden:
		return errForbidden
	case err == nil && answer[0] != passTaken:
		return errPass
	}
	return err
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

// passed returns a listener whose connections are those that gateways of this machine pass by the unix socket l.
func passed(l net.Listener) net.Listener {
	p := &passedListener{Listener: l, group: groupOf(l.Addr().String()), conns: make(chan net.Conn), ended: make(chan struct{})}
	go p.run()
	return p
}

type passedListener struct {
	net.Listener
	group int // of the socket
	conns chan net.Conn
	ended chan struct{}
	once  sync.Once
}

func (p *passedListener) run() {
	places := make(chan struct{}, passAtOnce)
	_ = netutil.Serve(context.Background(), netutil.Patient(p.Listener), func(way net.Conn) {
		_ = way.SetDeadline(time.Now().Add(dialFor))
		if !mayPass(way, p.group) {
			_, _ = way.Write([]byte{passForbidden})
			way.Close()
			return
		}
		places <- struct{}{}
		go func() {
			defer func() { <-places }()
			defer way.Close()
			c, err := takePassed(way)
			if err != nil {
				return
			}
			select {
			case p.conns <- c: // from here on the server has it, so the gateway does not count what a sidecar dropped that ended before
				_, _ = way.Write([]byte{passTaken})
			case <-p.ended:
				c.Close()
			}
		}()
	})
	p.Close()
}

// takePassed reads one connection.
func takePassed(way net.Conn) (net.Conn, error) {
	c, r, err := takeDescriptor(way)
	if err != nil {
		return nil, err
	}
	message, err := readPassage(r)
	if err != nil {
		c.Close()
		return nil, err
	}
	return &passedConn{Conn: c, rest: message.sent, client: net.TCPAddrFromAddrPort(message.client)}, nil
}

// Accept implements [net.Listener].
func (p *passedListener) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (p *passedListener) Close() error {
	p.once.Do(func() { close(p.ended) })
	return p.Listener.Close()
}

// passedConn begins with what the gateway had read.
type passedConn struct {
	net.Conn
	rest   []byte // only for the reader
	client net.Addr
}

func (p *passedConn) Read(b []byte) (int, error) {
	if len(p.rest) > 0 {
		n := copy(b, p.rest)
		p.rest = p.rest[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

// RemoteAddr returns the client's address.
func (p *passedConn) RemoteAddr() net.Addr { return p.client }

// NetConn returns the connection of the kernel.
func (p *passedConn) NetConn() net.Conn { return p.Conn }
