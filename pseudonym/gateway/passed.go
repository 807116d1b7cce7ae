package gateway

import (
	"container/list"
	"context"
	"io"
	"net"
	"sync"
	"time"

	"heddle/internal/netutil"
)

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

	mu   sync.Mutex
	over bool
	idle list.List // of *passWay without a message, the one that waits for the longest first
}

// passWay is a connection of a gateway.
type passWay struct {
	net.Conn
	ends bool // after the message that it has begun; the listener's mu guards it
}

func (p *passedListener) run() {
	places := make(chan struct{}, passAtOnce)
	_ = netutil.Serve(context.Background(), netutil.Patient(p.Listener), func(c net.Conn) {
		_ = c.SetDeadline(time.Now().Add(dialFor))
		if !mayPass(c, p.group) {
			_, _ = c.Write([]byte{passForbidden})
			c.Close()
			return
		}
		select {
		case places <- struct{}{}:
		default:
			p.makeRoom()
			places <- struct{}{}
		}
		go func() {
			defer func() { <-places }()
			defer c.Close()
			for way := (&passWay{Conn: c}); p.take(way) == nil; {
			}
		}()
	})
	p.Close()
}

// makeRoom ends the way that waits for the longest, if there is one.
func (p *passedListener) makeRoom() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if longest := p.idle.Front(); longest != nil {
		p.end(longest)
	}
}

// end ends a way that waits. A message that comes meanwhile stays unread, so that the gateway learns of it. p.mu is held.
func (p *passedListener) end(e *list.Element) {
	way := p.idle.Remove(e).(*passWay)
	way.ends = true
	_ = way.SetReadDeadline(time.Unix(1, 0))
}

// take reads one connection, and gives it to the server.
func (p *passedListener) take(way *passWay) error {
	c, err := p.takePassed(way)
	if err != nil {
		return err
	}
	select {
	case p.conns <- c: // from here on the server has it, so the gateway does not count what a sidecar dropped that ended before
	case <-p.ended:
		c.Close()
		return net.ErrClosed
	}
	if c.begun == nil {
		_, err = way.Write([]byte{passTaken})
		return err
	}
	answer := make([]byte, 1)
	_ = way.SetDeadline(time.Now().Add(moveFor))
	if _, err = io.ReadFull(way, answer); err == nil && answer[0] != passBegin {
		err = errPass
	}
	if err != nil {
		c.Close()
		return err
	}
	close(c.begun)
	return nil
}

// takePassed reads one connection.
func (p *passedListener) takePassed(way *passWay) (*passedConn, error) {
	p.mu.Lock()
	if p.over || way.ends {
		p.mu.Unlock()
		return nil, net.ErrClosed
	}
	waits := p.idle.PushBack(way)
	_ = way.SetDeadline(time.Now().Add(idleFor))
	p.mu.Unlock()
	c, r, err := takeDescriptor(way.Conn)
	p.mu.Lock()
	p.idle.Remove(waits)
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	_ = way.SetDeadline(time.Now().Add(dialFor))
	message, err := readPassage(r)
	if err != nil {
		c.Close()
		return nil, err
	}
	passed := &passedConn{Conn: c, rest: message.sent, client: net.TCPAddrFromAddrPort(message.client), ended: make(chan struct{})}
	if message.silent {
		passed.begun = make(chan struct{})
	}
	return passed, nil
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
	p.once.Do(func() {
		close(p.ended)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.over = true
		for p.idle.Len() > 0 {
			p.end(p.idle.Front())
		}
	})
	return p.Listener.Close()
}

// passedConn begins with what the gateway had read.
type passedConn struct {
	net.Conn
	rest   []byte // only for the reader
	client net.Addr
	begun  chan struct{} // closed when the connection may speak; nil if it may from the first
	ended  chan struct{}
	once   sync.Once
}

func (p *passedConn) Read(b []byte) (int, error) {
	if len(p.rest) > 0 {
		n := copy(b, p.rest)
		p.rest = p.rest[n:]
		return n, nil
	}
	if err := p.wait(); err != nil {
		return 0, err
	}
	return p.Conn.Read(b)
}

func (p *passedConn) Write(b []byte) (int, error) {
	if err := p.wait(); err != nil {
		return 0, err
	}
	return p.Conn.Write(b)
}

// wait waits until the connection may speak. It takes no longer than moveFor, as it is closed then.
func (p *passedConn) wait() error {
	if p.begun == nil {
		return nil
	}
	select {
	case <-p.begun:
		return nil
	case <-p.ended:
		return net.ErrClosed
	}
}

// Close implements [net.Conn].
func (p *passedConn) Close() error {
	p.once.Do(func() { close(p.ended) })
	return p.Conn.Close()
}

// RemoteAddr returns the client's address.
func (p *passedConn) RemoteAddr() net.Addr { return p.client }

// NetConn returns the connection of the kernel.
func (p *passedConn) NetConn() net.Conn { return p.Conn }
