package bridge

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"heddle/disguise/handshake"
	"heddle/internal/connlimit"
	"heddle/internal/netutil"
	"heddle/path"
)

// Limits of what strangers can make a door for datagrams do.
const (
	// A datagram of an unknown source costs a key agreement for each lead. So many are looked at at once, and one more per
	// lookEvery; the others are dropped, as a network would. Clients repeat their hellos.
	looksAtOnce = 200
	lookEvery   = time.Second / 1000
	mostPackets = 256 // of a client that wait to be read
	// headers are the bytes of IPv6 and UDP around a datagram.
	headers = 40 + 8
)

// packets is the door for clients over UDP. It looks like a listener: it accepts a [caller] for each source that sent a hello.
// Other sources get no answer and take no memory.
type packets struct {
	b       *Bridge
	socket  *net.UDPConn
	looks   connlimit.Bucket // of the reading goroutine
	arrived chan *caller
	closing chan struct{}
	once    sync.Once

	mu      sync.Mutex
	callers map[netip.AddrPort]*caller
	limit   *connlimit.Limiter[netip.Addr]
	closed  bool
}

// Packets makes a listener for [Bridge.Serve] of a UDP socket, which it takes over.
func (b *Bridge) Packets(socket *net.UDPConn) net.Listener {
	p := &packets{b: b, socket: socket, arrived: make(chan *caller), closing: make(chan struct{}), callers: map[netip.AddrPort]*caller{},
		limit: connlimit.NewLimiter[netip.Addr](guests.Source, guests.All)}
	go p.read()
	return p
}

func (p *packets) Addr() net.Addr { return p.socket.LocalAddr() }

func (p *packets) Accept() (net.Conn, error) {
	select {
	case c := <-p.arrived:
		return c, nil
	case <-p.closing:
		return nil, net.ErrClosed
	}
}

// Close accepts no more. The socket stays open for those who were accepted.
func (p *packets) Close() error {
	p.once.Do(func() { close(p.closing) })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return p.closeUnused()
}

// closeUnused closes the socket if nobody needs it any more. p.mu is held.
func (p *packets) closeUnused() error {
	if p.closed && len(p.callers) == 0 {
		return p.socket.Close()
	}
	return nil
}

func (p *packets) read() {
	buffer := make([]byte, 1<<16)
	for {
		n, from, err := p.socket.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP message, on some systems
		}
		p.mu.Lock()
		c := p.callers[from]
		p.mu.Unlock()
		if c != nil {
			c.give(buffer[:n])
		} else if c := p.look(buffer[:n], from); c != nil {
			select {
			case p.arrived <- c:
			case <-p.closing:
				c.Close()
			}
		}
	}
}

// look returns a caller if the datagram of an unknown source is a hello.
func (p *packets) look(datagram []byte, from netip.AddrPort) *caller {
	now := time.Now()
	if p.looks.Fill(now, looksAtOnce, lookEvery); p.looks.Left < 1 {
		return nil
	}
	p.looks.Left--
	a, err := p.b.helloIn(datagram)
	if err != nil {
		p.b.refused(net.UDPAddrFromAddrPort(from), err)
		return nil
	}
	c := &caller{p: p, from: from, source: connlimit.Source(from.Addr()), accepted: a, waiting: make(chan []byte, mostPackets), done: make(chan struct{})}
	c.got.Store(int64(len(datagram) + headers))
	if !p.limit.Acquire(c.source) {
		return nil
	}
	p.mu.Lock()
	p.callers[from] = c
	p.mu.Unlock()
	return c
}

// helloIn reads the hello that is a datagram, behind one of the leads.
func (b *Bridge) helloIn(datagram []byte) (*handshake.Accepted, error) {
	refusal := error(&handshake.Refusal{Reason: handshake.NoHello})
	for _, lead := range b.datagramLeads {
		if lead > len(datagram) {
			continue
		}
		_, a, err := b.o.Server.Read(datagram[lead:], b.o.clock())
		if err == nil {
			return a, nil
		}
		refusal = worse(refusal, err)
	}
	return nil, refusal
}

// caller is the conversation with one source. Read and Write move whole datagrams.
type caller struct {
	p        *packets
	from     netip.AddrPort
	source   netip.Addr
	accepted *handshake.Accepted
	waiting  chan []byte
	deadline path.Deadline
	done     chan struct{}
	once     sync.Once

	reached func() bool // reports whether the client has shown that it receives; set before the first Write
	proved  bool        // used by Write only
	sent    int64       // the same
	got     atomic.Int64
}

// give passes on a datagram, and drops it if too many wait.
func (c *caller) give(datagram []byte) {
	c.got.Add(int64(len(datagram) + headers))
	netutil.Offer(c.waiting, append([]byte(nil), datagram...))
}

func (c *caller) Read(b []byte) (int, error) {
	select {
	case <-c.deadline.Passed():
		return 0, os.ErrDeadlineExceeded
	default:
	}
	select {
	case datagram := <-c.waiting:
		return copy(b, datagram), nil
	case <-c.deadline.Passed():
		return 0, os.ErrDeadlineExceeded
	case <-c.done:
		return 0, net.ErrClosed
	}
}

// Write sends a datagram. Until the client has shown that it receives, it drops those that would make the bridge send more than
// came: anybody may have given the address.
func (c *caller) Write(b []byte) (int, error) {
	select {
	case <-c.done:
		return 0, net.ErrClosed
	default:
	}
	if c.proved = c.proved || c.reached(); !c.proved {
		if c.sent+int64(len(b)+headers) > c.got.Load() {
			return len(b), nil
		}
		c.sent += int64(len(b) + headers)
	}
	_, err := c.p.socket.WriteToUDPAddrPort(b, c.from)
	if errors.Is(err, net.ErrClosed) {
		return 0, err
	}
	return len(b), nil // what a full queue or an ICMP message says is a loss
}

func (c *caller) Close() error {
	c.once.Do(func() {
		close(c.done)
		c.p.limit.Release(c.source)
		c.p.mu.Lock()
		defer c.p.mu.Unlock()
		delete(c.p.callers, c.from)
		_ = c.p.closeUnused()
	})
	return nil
}

func (c *caller) LocalAddr() net.Addr  { return c.p.socket.LocalAddr() }
func (c *caller) RemoteAddr() net.Addr { return net.UDPAddrFromAddrPort(c.from) }

func (c *caller) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

func (c *caller) SetReadDeadline(t time.Time) error {
	c.deadline.Set(t)
	return nil
}

// SetWriteDeadline does nothing: writes do not block.
func (c *caller) SetWriteDeadline(time.Time) error { return nil }
