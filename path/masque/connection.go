package masque

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"heddle/internal/errhint"
	"heddle/internal/netutil"
	"heddle/path"
	"heddle/path/resolve"
)

// Initial sizes of outer QUIC packets in bytes. An inner QUIC client's Initials of 1,200 bytes and their headers must fit
// one outer packet.
const (
	// PacketRoomy carries QUIC that begins with 1,350 bytes, as quiche does without a search for the largest size, and a WireGuard
	// tunnel of 1,280, the IPv6 minimum. A device of WireGuard carries it over IPv4.
	PacketRoomy  = 1392
	PacketNarrow = 1280 // the smallest size that carries an inner packet of 1,200
)

// Other sizes in bytes.
const (
	packetLargest = 1452 // maximum of quic-go
	sealing       = 37   // quic-go's sum of a short header with the longest connection ID, and the tag
	framing       = 2    // of a datagram: the quarter stream ID in its shortest form, and the context
	smallest      = 1200 // datagram that QUIC needs (RFC 9000, section 14.1)
	headers4      = 28   // of IPv4 and UDP
	headers6      = 48   // of IPv6 and UDP
)

const (
	handshakePatience = 3 * time.Second
	deadAfter         = 20 * time.Second // without an answer
	keepAlive         = 8 * time.Second
)

// connection is a connection to the proxy.
type connection struct {
	path      *tunnel
	quic      *quic.Conn
	http      *http3.ClientConn
	wire      *wire
	transport *quic.Transport
	uses      int // flows and callers; guarded by the path's lock
	goneAway  atomic.Bool
	closing   sync.Once
}

// payloadOf returns the largest UDP payload inside an outer QUIC packet of that many bytes.
func payloadOf(packet int) int { return min(packet, packetLargest) - sealing - framing }

// firstPacket returns the initial size of outer packets over a base with this MTU (0 if unknown), or 0 if none fits.
func firstPacket(mtu, overhead int) int {
	best := PacketRoomy
	if mtu > 0 {
		best = min(best, mtu-overhead)
	}
	if best < PacketNarrow {
		return 0
	}
	return best
}

// headersOf returns the size of the IP and UDP headers of a packet to an address, or the larger size if it is invalid.
func headersOf(to netip.Addr) int {
	if to.Unmap().Is4() {
		return headers4
	}
	return headers6
}

// proxyFamilyOverhead returns the header size for the proxy's family, or the larger one if only its name is known.
func (p *tunnel) proxyFamilyOverhead() int {
	host := p.template.Host
	if p.known != nil {
		host, _, _ = netutil.SplitHostPort(p.known.Addresses[0])
	}
	a, _ := netip.ParseAddr(host)
	return headersOf(a)
}

// dial connects to the first address of the proxy that answers. It tries silent ones again with smaller packets. Heddle's proxy
// begins with packets no larger than the client's, so that a narrow device costs no round, and a narrow network one. Other proxies may
// learn of either from failed handshakes.
func (p *tunnel) dial(ctx context.Context) (*connection, error) {
	addrs, err := p.addresses(ctx)
	if err != nil {
		return nil, err
	}
	var failed error
	for round := 0; len(addrs) > 0 && round < dialRounds; round++ {
		var silent []netip.AddrPort
		for _, a := range addrs {
			c, err := p.dialAddress(ctx, a, round)
			if err == nil {
				return c, nil
			}
			if isSilence(err) {
				silent = append(silent, a)
			}
			if failed == nil || isSilence(err) {
				failed = p.explainDial(a, err)
			}
			if ctx.Err() != nil {
				return nil, failed
			}
		}
		if addrs = silent; len(addrs) > 0 {
			p.noteNarrow()
		}
	}
	return nil, failed
}

const dialRounds = 4

// isSilence reports whether nothing was received.
func isSilence(err error) bool {
	var timeout *quic.HandshakeTimeoutError
	var idle *quic.IdleTimeoutError
	return errors.As(err, &timeout) || errors.As(err, &idle)
}

// addresses returns the addresses of the proxy, as far as its names can be looked up.
func (p *tunnel) addresses(ctx context.Context) ([]netip.AddrPort, error) {
	if p.known == nil {
		return p.lookup(ctx, p.template.Host, p.template.Port)
	}
	var all []netip.AddrPort
	var failed error
	for _, text := range p.known.Addresses {
		host, port, err := netutil.SplitHostPort(text)
		if err != nil {
			return nil, p.problem(err.Error(), "")
		}
		addrs, err := p.lookup(ctx, host, port)
		all, failed = append(all, addrs...), cmp.Or(failed, err)
	}
	if len(all) > 0 {
		failed = nil
	}
	return all, failed
}

func (p *tunnel) lookup(ctx context.Context, host string, port uint16) ([]netip.AddrPort, error) {
	addrs, err := p.o.AddressesOf(ctx, host)
	if err != nil {
		return nil, p.problem("the proxy's name cannot be looked up: "+err.Error(),
			cmp.Or(errhint.Of(err), "is it spelled right, and does this machine's resolver answer?"))
	}
	return resolve.Server{Port: port}.At(addrs), nil
}

// dialAddress tries one address of the proxy. Only the first round uses large packets.
func (p *tunnel) dialAddress(ctx context.Context, remote netip.AddrPort, round int) (*connection, error) {
	if _, err := p.packetSize(remote); err != nil {
		return nil, err
	}
	flow, err := path.Open(path.WithSession(ctx, ""), p.o.Base, remote) // shared by all sessions
	if err != nil {
		return nil, err
	}
	// A tunnel knows its MTU only once it is open.
	size, err := p.packetSize(remote)
	if err != nil {
		flow.Close()
		return nil, err
	}
	if round > 0 || p.isNarrow() {
		size = PacketNarrow
	}
	return p.handshake(ctx, flow, remote, size)
}

// packetSize returns the initial size of outer packets to the proxy over the base path as it is now.
func (p *tunnel) packetSize(remote netip.AddrPort) (int, error) {
	mtu, overhead := p.o.Base.Describe().MTU, headersOf(remote.Addr())
	size := firstPacket(mtu, overhead)
	if size == 0 {
		return 0, p.tooNarrow(mtu, overhead)
	}
	return size, nil
}

func (p *tunnel) tooNarrow(mtu, overhead int) *path.Error {
	return p.problem(fmt.Sprintf("the path that it rides carries packets of %d bytes, and QUIC inside QUIC needs %d", mtu, PacketNarrow+overhead),
		"raise the MTU of "+cmp.Or(p.spec.Base, "this machine's way to the proxy")+", or let the tunnel ride another path")
}

// narrowFor is how long large packets are not tried after silence. A connection then finds out itself whether it can grow.
const narrowFor = 10 * time.Minute

func (p *tunnel) isNarrow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.narrow)
}

func (p *tunnel) noteNarrow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.narrow = time.Now().Add(narrowFor)
}

// handshake makes a connection over a flow, which it takes over, with this initial packet size.
func (p *tunnel) handshake(ctx context.Context, flow path.Flow, remote netip.AddrPort, size int) (*connection, error) {
	socket, w := newWire(flow, remote)
	c := &connection{path: p, wire: w, transport: &quic.Transport{Conn: socket}}
	var err error
	c.quic, err = c.transport.Dial(ctx, net.UDPAddrFromAddrPort(remote), p.tlsConfig(), &quic.Config{
		HandshakeIdleTimeout: handshakePatience, MaxIdleTimeout: deadAfter, KeepAlivePeriod: keepAlive,
		EnableDatagrams: true, MaxIncomingStreams: -1, InitialPacketSize: uint16(size),
		MaxStreamReceiveWindow: 256 << 10, MaxConnectionReceiveWindow: 1 << 20,
		InitialStreamReceiveWindow: 64 << 10, InitialConnectionReceiveWindow: 256 << 10,
	})
	if err != nil {
		c.transport.Close()
		socket.Close()
		if u := w.refused.Load(); u != nil {
			return nil, u
		}
		if hint := w.Stranger.Hint(); hint != "" {
			return nil, &hintedError{err, hint}
		}
		return nil, err
	}
	w.up.Store(true)
	context.AfterFunc(c.quic.Context(), func() {
		c.transport.Close()
		socket.Close()
	})
	c.http = (&http3.Transport{EnableDatagrams: true, DisableCompression: true, MaxResponseHeaderBytes: 16 << 10}).NewClientConn(c.quic)
	if err := c.checkSettings(ctx); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// checkSettings waits for the proxy's settings and checks them (RFC 9220, RFC 9297).
func (c *connection) checkSettings(ctx context.Context) error {
	select {
	case <-c.http.ReceivedSettings():
	case <-c.quic.Context().Done():
		return context.Cause(c.quic.Context())
	case <-ctx.Done():
		return c.path.problem("the server is no HTTP/3 proxy: it sends no settings", "is this the proxy's address?")
	}
	s := c.http.Settings()
	switch {
	case !s.EnableExtendedConnect:
		return c.path.problem("the server has no extended CONNECT, so it is no proxy for UDP", "is this the proxy's address?")
	case !s.EnableDatagrams || !c.quic.ConnectionState().SupportsDatagrams.Remote:
		return c.path.problem("the proxy has no HTTP/3 datagrams, without which it cannot carry UDP well", "ask its owner for RFC 9297, or use another proxy")
	}
	return nil
}

// alive reports whether new flows can be opened.
func (c *connection) alive() bool { return c.quic.Context().Err() == nil && !c.goneAway.Load() }

// check fails once the connection is dead, or its packets would no longer leave by the base path.
func (c *connection) check() error {
	if c.quic.Context().Err() != nil {
		return c.path.problem("the connection to the proxy ended: "+describeEnd(context.Cause(c.quic.Context())), "")
	}
	if err := path.Check(c.wire.flow); err != nil {
		return c.path.problem("the path that it rides changed: "+err.Error(), "")
	}
	return nil
}

func (c *connection) close() {
	c.closing.Do(func() { c.quic.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "") })
}

var tooLarge = make([]byte, 1<<16)

// room returns the maximum payload of a QUIC datagram now. quic-go reports it only in the error for too large a datagram.
func (c *connection) room() int {
	var e *quic.DatagramTooLargeError
	if !errors.As(c.quic.SendDatagram(tooLarge), &e) {
		return 0
	}
	return int(e.MaxDatagramPayloadSize)
}

// both returns the maximum payload of a QUIC datagram that passes in both directions now. The proxy searches for its own
// packet size, and drops what does not fit: its packets show how far it is. It carries QUIC's smallest datagrams in any case.
func (c *connection) both() int {
	back := max(min(int(c.wire.largest.Load()), packetLargest)-sealing, smallest+framing)
	return min(c.room(), back)
}

// mtu returns the size of the largest IPv4 packet inside the tunnel.
func (c *connection) mtu() int { return max(c.both()-framing, 0) + headers4 }

// tlsConfig verifies the proxy by the system's roots or by the pins.
func (p *tunnel) tlsConfig() *tls.Config {
	if p.known != nil {
		return p.known.TLS
	}
	config := &tls.Config{ServerName: p.template.Host, MinVersion: tls.VersionTLS13, NextProtos: []string{http3.NextProtoH3}}
	if len(p.pins) > 0 {
		config.InsecureSkipVerify = true // VerifyConnection checks the pins instead
		config.VerifyConnection = p.verifyPin
	}
	return config
}
