// Package socks offers a userspace tunnel, or a path, to local programs: SOCKS5 (RFC 1928, TCP and UDP) and HTTP CONNECT (RFC 9110,
// section 9.3.6) on one port. It resolves names inside the tunnel, or at its far end. Without users, everybody who can connect can
// use it.
package socks

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"heddle/internal/connlimit"
	"heddle/internal/dial"
	"heddle/internal/netutil"
	"heddle/internal/socks5"
	"heddle/proxy/users"
)

// Limits of what local strangers can make a server hold.
const (
	maxClients      = 1024             // TCP connections of clients that have made their request
	maxAssociations = 64               // concurrent UDP associations
	greeting        = 10 * time.Second // until a client has sent its request
	dialPatience    = 30 * time.Second // for all addresses of a name together
)

// Server serves clients of one listener.
type Server struct {
	network Network                                                // nil if there are only streams
	stream  func(context.Context, socks5.Target) (net.Conn, error) // to a name or an address
	users   *users.Users                                           // nil asks for no password
	log     *slog.Logger

	greeting     *connlimit.Places // clients that have not made their request
	clients      chan struct{}
	associations chan struct{}

	mu   sync.Mutex
	warn map[string]bool
	work sync.WaitGroup
}

// New makes a server for a network. It requires a password of u, or none if u is nil. A nil log means [slog.Default].
func New(n Network, u *users.Users, log *slog.Logger) *Server {
	if log == nil {
		log = slog.Default()
	}
	s := &Server{network: n, users: u, log: log, greeting: connlimit.NewLocalPlaces(), clients: make(chan struct{}, maxClients), associations: make(chan struct{}, maxAssociations),
		warn: map[string]bool{}}
	s.stream = s.inside
	return s
}

// NewStreams is [New] for a network that carries streams alone, and whose far end resolves names. An error of dial that is a
// [socks5.Reply] is what clients are told.
func NewStreams(dial func(context.Context, socks5.Target) (net.Conn, error), u *users.Users, log *slog.Logger) *Server {
	s := New(nil, u, log)
	s.stream = dial
	return s
}

// Serve serves clients until ctx ends; then it closes the listener and all connections and returns nil.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.work.Wait()
	defer cancel()
	return netutil.Serve(ctx, listener, func(client net.Conn) { s.take(ctx, client) })
}

// take serves one client. It always gets a place to make its request, so that idle connections keep nobody out.
func (s *Server) take(ctx context.Context, c net.Conn) {
	client := s.greeting.Enter(c)
	s.work.Go(func() {
		defer closing(ctx, client)()
		s.serve(ctx, client)
	})
}

var errFull = errors.New("the proxy is full")

// seat gives a client that has made its request a place for its traffic. It never takes one from another client: without
// passwords all that make requests are users alike.
func (s *Server) seat(client *connlimit.Place) (leave func(), err error) {
	client.Leave()
	select {
	case s.clients <- struct{}{}:
		return func() { <-s.clients }, nil
	default:
		s.once("too many clients", "the proxy is full; new requests are refused", "limit", maxClients)
		return nil, errFull
	}
}

// serve distinguishes the protocols by their first byte.
func (s *Server) serve(ctx context.Context, client *connlimit.Place) {
	_ = client.SetDeadline(time.Now().Add(greeting))
	in := bufio.NewReaderSize(client, 4096)
	first, err := in.Peek(1)
	if err != nil {
		return
	}
	switch first[0] {
	case socks5.Version:
		s.serveSOCKS(ctx, client, in)
	case 4:
		s.once("socks4", "a client speaks SOCKS4, which cannot carry names; set it to SOCKS5 (socks5h)")
		_, _ = client.Write([]byte{0, 0x5b, 0, 0, 0, 0, 0, 0}) // SOCKS4: request rejected
	default:
		s.serveHTTP(ctx, client, in)
	}
}

func (s *Server) serveSOCKS(ctx context.Context, client *connlimit.Place, in *bufio.Reader) {
	if ok, err := socks5.Negotiate(in, client, socks5.Auth{Password: s.users.Password(netutil.AddrPort(client.RemoteAddr()).Addr())}); !ok || err != nil {
		return
	}
	if s.users != nil {
		client.Proved()
	}
	command, to, err := socks5.ReadRequest(in)
	switch {
	case errors.Is(err, socks5.ErrAddressType):
		_ = socks5.WriteReply(client, socks5.AddressUnknown, netip.AddrPort{})
	case err != nil:
	case command == socks5.Connect:
		s.connect(ctx, client, in, to, func(err error) error { return socks5.WriteReply(client, replyFor(err), netip.AddrPort{}) })
	case command == socks5.UDPAssociate && s.network != nil:
		s.associate(ctx, client, to)
	default:
		_ = socks5.WriteReply(client, socks5.CommandUnknown, netip.AddrPort{})
	}
}

// connect dials, lets answer tell the client the result, and copies bytes until both directions are done.
func (s *Server) connect(ctx context.Context, client *connlimit.Place, in *bufio.Reader, to socks5.Target, answer func(error) error) {
	leave, err := s.seat(client)
	if err != nil {
		_ = answer(err)
		return
	}
	defer leave()
	_ = client.SetDeadline(time.Now().Add(dialPatience + greeting))
	attempt, cancel := context.WithTimeout(ctx, dialPatience)
	server, err := s.stream(attempt, to)
	cancel()
	if err != nil {
		s.explain(to, err)
		_ = answer(err)
		return
	}
	defer closing(ctx, server)()
	if err := answer(nil); err != nil {
		return
	}
	_ = client.SetDeadline(time.Time{})
	_, _, _ = netutil.Pipe(ctx, netutil.Side{Reader: in, Writer: client.NetConn()}, netutil.Side{Reader: server, Writer: server}, func(error) {
		client.Close()
		server.Close()
	})
}

// inside connects to a target in the tunnel.
func (s *Server) inside(ctx context.Context, to socks5.Target) (net.Conn, error) {
	const most = 6 // addresses of one name that are tried
	return dial.Dialer[net.Conn]{Single: s.network.DialTCP, Lookup: s.lookup, Most: most}.Dial(ctx, to.Host(), to.Port)
}

// lookup resolves a name inside the tunnel only.
func (s *Server) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	addrs, err := s.network.Lookup(ctx, name)
	if err != nil {
		return nil, &lookupError{err}
	}
	return addrs, nil
}

type lookupError struct{ error }

func (e *lookupError) Unwrap() error { return e.error }

// explain logs what a SOCKS reply cannot express, once per reason.
func (s *Server) explain(to socks5.Target, err error) {
	if errors.Is(err, ErrNoResolver) {
		s.once("resolver", "names are refused: the WireGuard file names no DNS server, and none is asked outside the tunnel",
			"hint", "add a DNS line to the file's [Interface], or connect to addresses")
		return
	}
	s.log.Debug("proxy: not connected", "to", to.String(), "error", err)
}

func (s *Server) once(key, text string, args ...any) {
	s.mu.Lock()
	known := s.warn[key]
	s.warn[key] = true
	s.mu.Unlock()
	if !known {
		s.log.Warn("proxy: "+text, args...)
	}
}

// closing closes c when ctx ends or the returned function is called.
func closing(ctx context.Context, c io.Closer) func() {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	return func() {
		stop()
		c.Close()
	}
}
