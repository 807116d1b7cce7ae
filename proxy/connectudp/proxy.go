package connectudp

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"heddle/internal/connlimit"
	"heddle/internal/dial"
	"heddle/internal/netutil"
	"heddle/path"
	"heddle/path/masque"
	"heddle/proxy/targets"
	"heddle/proxy/users"
)

// Defaults of a proxy. A NAT keeps a UDP mapping for at least two minutes (RFC 4787, REQ-5).
const (
	DefaultMaxFlows = 64
	DefaultIdle     = 2 * time.Minute
	DefaultDrain    = 5 * time.Second
)

// Limits of what strangers can make the proxy keep.
const (
	maxConnections  = 1024
	maxPerSource    = 64
	maxUnproven     = 64 // handshakes that may run before their clients prove their address (RFC 9000, section 8.1)
	maxUnprovenEach = 4  // of one source
	maxAllFlows     = 8192
	maxHeaderBytes  = 8 << 10
	maxSession      = 64               // bytes of a session's name
	patienceAuth    = 10 * time.Second // from a connection's first packet to the first valid credentials
	patienceResolve = 5 * time.Second
)

// Options configure a [Proxy].
type Options struct {
	// Certificate is called at each handshake.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Users       *users.Users
	Targets     *targets.Rules
	// Gate replaces Users and Targets, and TLS replaces Certificate, if they are set.
	Gate       Gate
	TLS        *tls.Config
	MaxFlows   int           `flag:"max-flows" help:"how many flows one user may have at a time"`
	Idle       time.Duration `flag:"idle" help:"end a flow that carried nothing for so long"`
	Drain      time.Duration `flag:"drain" help:"how long flows may go on after an interrupt"`
	LogTargets bool          `flag:"log-targets" help:"write down who talks to whom"`
	Log        *slog.Logger

	after  func(time.Duration, func()) *time.Timer // time.AfterFunc
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

// Proxy is a listening CONNECT-UDP proxy.
type Proxy struct {
	o         Options
	log       *slog.Logger
	socket    net.PacketConn
	first     *firstSizes // nil if the socket is not UDP
	transport *quic.Transport
	listener  *quic.Listener
	server    *http3.Server
	sources   *connlimit.Limiter[netip.Addr] // of connections whose client proved its address
	unproven  *connlimit.Limiter[netip.Addr] // of the others, whose source may be forged
	users     *connlimit.Limiter[string]
	stuck     *unfinished // handshakes of clients that proved their address: they get small packets next
	doubted   *unfinished // handshakes of the others: they have to prove their address next
	exits     exits
	since     time.Time
	counts    counts
}

// New makes a proxy at a socket, which it takes over even if it fails. [Proxy.Run] serves.
func New(socket net.PacketConn, o Options) (*Proxy, error) {
	p, err := newProxy(socket, o)
	if err != nil {
		socket.Close()
	}
	return p, err
}

func newProxy(socket net.PacketConn, o Options) (*Proxy, error) {
	if o.Gate == nil && (o.Users == nil || o.Targets == nil) || o.TLS == nil && o.Certificate == nil {
		return nil, &path.Error{What: "proxy", Why: "it has no users, no targets or no certificate"}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.after == nil {
		o.after = time.AfterFunc
	}
	if o.lookup == nil {
		o.lookup = dial.Lookup
	}
	if o.Gate == nil {
		o.Gate = userGate{o}
	}
	p := &Proxy{o: o, log: o.Log, socket: socket, sources: connlimit.NewLimiter[netip.Addr](maxPerSource, maxConnections),
		unproven: connlimit.NewLimiter[netip.Addr](maxUnprovenEach, maxUnproven),
		users:    connlimit.NewLimiter[string](o.MaxFlows, maxAllFlows), stuck: newUnfinished(), doubted: newUnfinished(), exits: exits{open: map[exitKey]*exit{}}, since: time.Now()}
	p.warnBuffers()
	var reset quic.StatelessResetKey
	rand.Read(reset[:])
	conn := p.socket
	if udp, ok := socket.(*net.UDPConn); ok {
		p.first = noteFirst(udp)
		conn = p.first
	}
	p.transport = &quic.Transport{Conn: conn, StatelessResetKey: &reset, VerifySourceAddress: p.crowded, ConnContext: p.admit}
	settings := o.TLS
	if settings == nil {
		settings = &tls.Config{GetCertificate: o.Certificate, MinVersion: tls.VersionTLS13}
	}
	config := http3.ConfigureTLSConfig(settings)
	var err error
	if p.listener, err = p.transport.Listen(config, p.quicConfig(masque.PacketRoomy)); err != nil {
		return nil, &path.Error{What: "listen on " + socket.LocalAddr().String(), Why: "QUIC cannot listen there", Err: err}
	}
	p.server = &http3.Server{Handler: http.HandlerFunc(p.serve), EnableDatagrams: true, MaxHeaderBytes: maxHeaderBytes,
		IdleTimeout: 2 * time.Minute, ConnContext: p.watch, Logger: slog.New(slog.DiscardHandler)}
	return p, nil
}

func (p *Proxy) quicConfig(size uint16) *quic.Config {
	config := &quic.Config{EnableDatagrams: true, InitialPacketSize: size, MaxIdleTimeout: 30 * time.Second,
		MaxIncomingStreams: int64(p.o.MaxFlows) + 8, MaxIncomingUniStreams: 8,
		InitialStreamReceiveWindow: 16 << 10, MaxStreamReceiveWindow: 64 << 10,
		InitialConnectionReceiveWindow: 64 << 10, MaxConnectionReceiveWindow: 256 << 10}
	if size == masque.PacketRoomy {
		config.GetConfigForClient = func(info *quic.ClientInfo) (*quic.Config, error) {
			return p.quicConfig(p.packetSize(netutil.AddrPort(info.RemoteAddr))), nil
		}
	}
	return config
}

// packetSize returns the initial packet size for a client, in bytes. Handshakes that somebody may have forged do not count.
func (p *Proxy) packetSize(from netip.AddrPort) uint16 {
	switch {
	case p.stuck.overdue(from.Addr()):
		return masque.PacketNarrow
	case p.first != nil:
		return p.first.of(from)
	}
	return masque.PacketRoomy
}

// Addr returns the listening address, invalid if the socket is not UDP.
func (p *Proxy) Addr() netip.AddrPort { return netutil.AddrPort(p.socket.LocalAddr()) }

// Run serves until ctx ends, and then drains flows.
func (p *Proxy) Run(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- p.server.ServeListener(p.listener) }()
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
		p.log.Info("stopping", "flows", p.users.Count())
		drain, cancel := context.WithTimeout(context.Background(), p.o.Drain)
		if shutErr := p.server.Shutdown(drain); shutErr != nil && !errors.Is(shutErr, context.DeadlineExceeded) {
			err = shutErr
		}
		cancel()
		<-served
	}
	p.listener.Close()
	p.transport.Close()
	p.socket.Close()
	return err
}

// crowded reports whether a client must prove its address by a Retry, which costs the proxy no memory: so many handshakes are
// unfinished that were begun from there, perhaps by somebody who forged the address. A single one that is overdue is enough,
// since it may mean that the client needs small packets.
func (p *Proxy) crowded(from net.Addr) bool {
	if p.doubted.overdue(netutil.AddrPort(from).Addr()) {
		return true
	}
	leave, room := take(context.Background(), p.unproven, from)
	if room {
		leave()
	}
	return !room
}

// take gives a connection a place among others until its context ends, or until it leaves.
func take(ctx context.Context, places *connlimit.Limiter[netip.Addr], from net.Addr) (leave func(), ok bool) {
	source := connlimit.Source(netutil.AddrPort(from).Addr())
	if !places.Acquire(source) {
		return nil, false
	}
	stop := context.AfterFunc(ctx, func() { places.Release(source) })
	return func() {
		if stop() {
			places.Release(source)
		}
	}, true
}

// leaveKey finds, in the context of a connection whose client has not proved its address, what gives its place back.
type leaveKey struct{}

// admit bounds the connections. Those that may be forged take no places from those that are not.
func (p *Proxy) admit(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	places, begun := p.unproven, p.doubted
	if info.AddrVerified {
		places, begun = p.sources, p.stuck
	}
	leave, ok := take(ctx, places, info.RemoteAddr)
	if !ok {
		p.counts.refusedLimit.Add(1)
		return nil, errors.New("too many connections")
	}
	begun.begun(netutil.AddrPort(info.RemoteAddr).Addr())
	if info.AddrVerified {
		return ctx, nil
	}
	return context.WithValue(ctx, leaveKey{}, leave), nil
}

// proved moves a connection to those whose client proved its address, as the end of a handshake does. It reports whether
// there was a place.
func (p *Proxy) proved(ctx context.Context, c *quic.Conn) bool {
	leave, unproven := ctx.Value(leaveKey{}).(func())
	if !unproven {
		return true
	}
	leave()
	_, ok := take(ctx, p.sources, c.RemoteAddr())
	return ok
}

// introduction tracks whether a connection's client has authenticated.
type introduction struct {
	known  atomic.Bool
	checks atomic.Int32 // requests whose credentials are being checked, which can take seconds on a busy machine
}

// introductionKey is the context key of the introduction.
type introductionKey struct{}

// watch closes a connection whose client does not authenticate in time.
func (p *Proxy) watch(ctx context.Context, c *quic.Conn) context.Context {
	for _, u := range []*unfinished{p.stuck, p.doubted} {
		u.finished(netutil.AddrPort(c.RemoteAddr()).Addr())
	}
	of := &introduction{}
	if !p.proved(ctx, c) {
		p.counts.refusedLimit.Add(1)
		c.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeExcessiveLoad), "too many connections")
	}
	var end func()
	end = func() {
		switch {
		case of.known.Load() || ctx.Err() != nil:
		case of.checks.Load() > 0:
			p.o.after(time.Second, end)
		default:
			c.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeExcessiveLoad), "")
		}
	}
	timer := p.o.after(patienceAuth, end)
	context.AfterFunc(ctx, func() { timer.Stop() })
	return context.WithValue(ctx, introductionKey{}, of)
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect || r.Proto != masque.Protocol {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	let, ok := p.letIn(w, r)
	if !ok {
		return
	}
	if let.Done != nil {
		defer let.Done()
	}
	if !p.users.Acquire(let.User) {
		p.counts.refusedLimit.Add(1)
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusTooManyRequests, "http_request_denied")
		return
	}
	defer p.users.Release(let.User)
	key := exitKey{user: let.User, session: r.Header.Get(masque.SessionHeader)}
	if len(key.session) > maxSession {
		refuse(w, http.StatusBadRequest, "http_request_error")
		return
	}
	x, ok := p.reach(w, r, &key, let)
	if !ok {
		return
	}
	defer p.exits.leave(key, x)
	w.Header().Set(http3.CapsuleProtocolHeader, masque.CapsuleProtocol)
	order := key.session != "" && r.Header.Get(masque.OrderHeader) == masque.OrderOffer
	if order {
		w.Header().Set(masque.OrderHeader, masque.ExitName(x.name))
	}
	w.WriteHeader(http.StatusOK)
	stream, err := w.(http3.HTTPStreamer).HTTPStream()
	if err != nil {
		return
	}
	p.counts.flows.Add(1)
	p.note("flow begins", let.User, r, key.to)
	why := newRelay(p, stream, x, order, let).run(r.Context())
	p.log.Debug("flow ended", "user", let.User, "why", why)
}

func (p *Proxy) note(what, name string, r *http.Request, to netip.AddrPort) {
	attributes := []any{"user", name}
	if p.o.LogTargets {
		attributes = append(attributes, "from", r.RemoteAddr, "to", to)
	}
	p.log.Info(what, attributes...)
}

// reach opens the exit to the first address that the client may reach and adds the address to key, or answers why not.
func (p *Proxy) reach(w http.ResponseWriter, r *http.Request, key *exitKey, let Admission) (*exit, bool) {
	ctx, cancel := context.WithTimeout(r.Context(), patienceResolve)
	defer cancel()
	addrs, err := let.Resolve(ctx)
	if err != nil {
		refuseFor(w, err, http.StatusBadGateway, "dns_error")
		return nil, false
	}
	for _, to := range addrs {
		key.to = to
		if x, err := p.exits.enter(*key, &p.counts); err == nil {
			return x, true
		}
	}
	if len(addrs) == 0 {
		p.counts.refusedTarget.Add(1)
		refuse(w, http.StatusForbidden, "destination_ip_prohibited")
		return nil, false
	}
	refuse(w, http.StatusBadGateway, "destination_ip_unroutable")
	return nil, false
}

// refuse answers with a status and a reason of RFC 9209.
func refuse(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Proxy-Status", "heddle; error="+why)
	w.WriteHeader(status)
}
