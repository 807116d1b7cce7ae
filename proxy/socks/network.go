package socks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.zx2c4.com/wireguard/tun/netstack"

	"heddle/path"
)

// Network is what the proxy's clients reach. Implementations must not bypass the tunnel.
type Network interface {
	// Lookup resolves a name inside the tunnel. It returns addresses in the order to try.
	Lookup(ctx context.Context, name string) ([]netip.Addr, error)
	DialTCP(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	// ListenUDP opens a socket for one address family.
	ListenUDP(v6 bool) (net.PacketConn, error)
}

// ErrOutside means that the address is not in the tunnel's AllowedIPs.
var ErrOutside = errors.New("the address is outside the tunnel's AllowedIPs")

// ErrNoResolver means that the WireGuard file names no DNS server, so names cannot be resolved inside the tunnel.
var ErrNoResolver error = &path.Error{What: "names", Why: "the WireGuard file names no DNS server, and none is asked outside the tunnel",
	Hint: "add a DNS line to the file's [Interface], or connect to addresses"}

// Tunnel is the [Network] inside a userspace WireGuard tunnel.
type Tunnel struct {
	Stack     *netstack.Net
	Addresses []netip.Prefix // the tunnel's own
	Allowed   []netip.Prefix // the file's AllowedIPs; WireGuard silently drops everything else
	// Resolver reports whether the stack has DNS servers. Search lists the domains for short names.
	Resolver bool
	Search   []string
}

var _ Network = (*Tunnel)(nil)

// Lookup asks the tunnel's DNS servers through the tunnel. It tries a short name in the search domains first.
func (t *Tunnel) Lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	name = strings.TrimSuffix(name, ".")
	if lower := strings.ToLower(name); lower == "localhost" || strings.HasSuffix(lower, ".localhost") {
		return nil, fmt.Errorf("%s is this machine (RFC 6761), not in the tunnel", name)
	}
	if !t.Resolver {
		return nil, ErrNoResolver
	}
	candidates := []string{name}
	if !strings.Contains(name, ".") {
		candidates = nil
		for _, domain := range t.Search {
			candidates = append(candidates, name+"."+domain)
		}
		candidates = append(candidates, name)
	}
	var failed error
	for _, candidate := range candidates {
		found, err := t.Stack.LookupContextHost(ctx, candidate)
		if err != nil {
			failed = err
			continue
		}
		var addrs []netip.Addr
		for _, text := range found {
			if a, err := netip.ParseAddr(text); err == nil {
				addrs = append(addrs, a.Unmap())
			}
		}
		if len(addrs) > 0 {
			return addrs, nil
		}
	}
	if failed == nil {
		failed = fmt.Errorf("%s has no address", name)
	}
	return nil, failed
}

// DialTCP connects through the tunnel.
func (t *Tunnel) DialTCP(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	if !t.allowed(to.Addr()) {
		return nil, fmt.Errorf("%v: %w", to.Addr(), ErrOutside)
	}
	if _, ok := t.own(to.Addr().Is6()); !ok {
		return nil, fmt.Errorf("%v: the tunnel has no address of this family", to.Addr())
	}
	c, err := t.Stack.DialContextTCPAddrPort(ctx, to)
	if err != nil {
		return nil, err // a nil *TCPConn must not become an interface
	}
	return c, nil
}

// ListenUDP opens a socket on the tunnel's own address.
func (t *Tunnel) ListenUDP(v6 bool) (net.PacketConn, error) {
	own, ok := t.own(v6)
	if !ok {
		return nil, errors.New("the tunnel has no address of this family")
	}
	c, err := t.Stack.ListenUDPAddrPort(netip.AddrPortFrom(own, 0))
	if err != nil {
		return nil, err
	}
	return &udpConn{PacketConn: c, allowed: t.allowed}, nil
}

func (t *Tunnel) own(v6 bool) (netip.Addr, bool) {
	for _, p := range t.Addresses {
		if p.Addr().Is6() == v6 {
			return p.Addr(), true
		}
	}
	return netip.Addr{}, false
}

func (t *Tunnel) allowed(a netip.Addr) bool {
	return slices.ContainsFunc(t.Allowed, func(p netip.Prefix) bool { return p.Contains(a) })
}

// udpConn refuses datagrams that WireGuard would drop.
type udpConn struct {
	net.PacketConn
	allowed func(netip.Addr) bool
}

func (c *udpConn) WriteTo(b []byte, to net.Addr) (int, error) {
	if u, ok := to.(*net.UDPAddr); ok && !c.allowed(u.AddrPort().Addr().Unmap()) {
		return 0, fmt.Errorf("%v: %w", to, ErrOutside)
	}
	return c.PacketConn.WriteTo(b, to)
}
