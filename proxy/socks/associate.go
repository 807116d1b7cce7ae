package socks

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"heddle/internal/connlimit"
	"heddle/internal/netutil"
	"heddle/internal/socks5"
)

const (
	maxDatagram  = 65535
	maxNames     = 256              // names that one association caches
	nameLifetime = 60 * time.Second // of a cached name
	headerRoom   = 3 + 1 + 16 + 2   // largest header to the client
)

// association carries the UDP datagrams of one client (RFC 1928, section 7) while its TCP connection is open.
type association struct {
	server *Server
	local  *net.UDPConn // towards the client
	from   netip.Addr   // the only client address that is served

	mu     sync.Mutex
	client netip.AddrPort          // the only one served: as the client declared, or the source of its first request
	out    map[bool]net.PacketConn // into the tunnel; the key is true for IPv6
	names  map[string]resolvedName // answers of the tunnel's DNS
	asking map[string]bool         // names being resolved
	wait   sync.WaitGroup
}

type resolvedName struct {
	addr netip.Addr
	at   time.Time
}

// associate serves a UDP socket on the address where the client reached us, until the client closes its connection.
func (s *Server) associate(ctx context.Context, client *connlimit.Place, to socks5.Target) {
	leave, err := s.seat(client)
	if err != nil {
		_ = socks5.WriteReply(client, socks5.Failure, netip.AddrPort{})
		return
	}
	defer leave()
	select {
	case s.associations <- struct{}{}:
	default:
		s.once("too many associations", "no room for another UDP association", "limit", maxAssociations)
		_ = socks5.WriteReply(client, socks5.Failure, netip.AddrPort{})
		return
	}
	defer func() { <-s.associations }()
	remote, here := netutil.AddrPort(client.RemoteAddr()), netutil.AddrPort(client.LocalAddr())
	if !here.Addr().IsValid() { // a client of a unix socket has no UDP address
		_ = socks5.WriteReply(client, socks5.CommandUnknown, netip.AddrPort{})
		return
	}
	local, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(here.Addr(), 0)))
	if err != nil {
		_ = socks5.WriteReply(client, socks5.Failure, netip.AddrPort{})
		return
	}
	defer local.Close()
	a := &association{server: s, local: local, from: remote.Addr(), out: map[bool]net.PacketConn{},
		names: map[string]resolvedName{}, asking: map[string]bool{}}
	// A client that knows its port declares it, with or without its address (RFC 1928, section 6).
	if to.Port != 0 && (to.Addr == remote.Addr() || to.Addr.IsUnspecified()) {
		a.client = netip.AddrPortFrom(remote.Addr(), to.Port)
	}
	if err := socks5.WriteReply(client, socks5.Succeeded, netutil.AddrPort(local.LocalAddr())); err != nil {
		return
	}
	_ = client.SetDeadline(time.Time{})
	ctx, cancel := context.WithCancel(ctx)
	a.wait.Go(func() { a.outward(ctx) })
	_, _ = io.Copy(io.Discard, client) // the association ends with the connection
	cancel()
	a.close()
}

func (a *association) close() {
	a.local.Close()
	a.mu.Lock()
	for _, c := range a.out {
		c.Close()
	}
	a.out = nil
	a.mu.Unlock()
	a.wait.Wait()
}

func (a *association) outward(ctx context.Context) {
	buffer := make([]byte, maxDatagram)
	for {
		n, from, err := a.local.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		// Parse before the check: an invalid datagram must not decide which port is the client's.
		to, payload, err := socks5.ParseDatagram(buffer[:n])
		if err != nil || !a.serves(netip.AddrPortFrom(from.Addr().Unmap(), from.Port())) {
			continue
		}
		if to.Name == "" {
			a.send(netip.AddrPortFrom(to.Addr, to.Port), payload)
			continue
		}
		if addr, known := a.known(to.Name); known {
			a.send(netip.AddrPortFrom(addr, to.Port), payload)
			continue
		}
		a.sendLater(ctx, to, bytes.Clone(payload))
	}
}

// serves reports whether a request is from our client. If the client declared no port, its first request decides.
func (a *association) serves(from netip.AddrPort) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if from.Addr() != a.from {
		return false
	}
	if !a.client.IsValid() {
		a.client = from
	}
	return a.client == from
}

func (a *association) known(name string) (netip.Addr, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, ok := a.names[name]
	if !ok || time.Since(r.at) > nameLifetime {
		return netip.Addr{}, false
	}
	return r.addr, true
}

// sendLater resolves a name inside the tunnel and then sends. Meanwhile it drops further datagrams to the name.
func (a *association) sendLater(ctx context.Context, to socks5.Target, payload []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asking[to.Name] || len(a.asking) >= maxNames {
		return
	}
	a.asking[to.Name] = true
	a.wait.Go(func() {
		addrs, err := a.server.lookup(ctx, to.Name)
		a.mu.Lock()
		delete(a.asking, to.Name)
		if err == nil {
			if len(a.names) >= maxNames {
				clear(a.names)
			}
			a.names[to.Name] = resolvedName{addr: addrs[0], at: time.Now()}
		}
		a.mu.Unlock()
		if err != nil {
			a.server.explain(to, err)
			return
		}
		a.send(netip.AddrPortFrom(addrs[0], to.Port), payload)
	})
}

func (a *association) send(to netip.AddrPort, payload []byte) {
	out := a.socket(to.Addr().Is6())
	if out == nil || to.Port() == 0 {
		return
	}
	if _, err := out.WriteTo(payload, net.UDPAddrFromAddrPort(to)); err != nil {
		a.server.log.Debug("proxy: datagram not sent", "to", to.String(), "error", err)
	}
}

// socket returns the socket into the tunnel for an address family, or nil if the tunnel has none.
func (a *association) socket(v6 bool) net.PacketConn {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.out == nil {
		return nil
	}
	if c, ok := a.out[v6]; ok {
		return c
	}
	c, err := a.server.network.ListenUDP(v6)
	if err != nil {
		a.server.log.Debug("proxy: no UDP socket in the tunnel", "error", err)
		return nil
	}
	a.out[v6] = c
	a.wait.Go(func() { a.inward(c) })
	return c
}

func (a *association) inward(c net.PacketConn) {
	buffer := make([]byte, headerRoom+maxDatagram)
	for {
		n, from, err := c.ReadFrom(buffer[headerRoom:])
		if err != nil {
			return
		}
		sender := netutil.AddrPort(from)
		header := socks5.AppendDatagramHeader(make([]byte, 0, headerRoom), sender)
		start := headerRoom - len(header)
		copy(buffer[start:], header)
		a.mu.Lock()
		client := a.client
		a.mu.Unlock()
		_, _ = a.local.WriteToUDPAddrPort(buffer[start:headerRoom+n], client)
	}
}
