package node

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"heddle/identity"
	"heddle/internal/dial"
	"heddle/internal/netutil"
	"heddle/overlay/client"
	"heddle/proxy/targets"
)

func (n *Node) offers(mode string) bool { return slices.Contains(n.o.Modes, mode) }

// places are the destinations of a grant at one node.
type places struct {
	grant  client.Grant
	to     []client.Destination
	deny   []client.Destination
	public *targets.Rules // public addresses, and other addresses that the grant names
}

func (n *Node) places(g client.Grant) (*places, error) {
	p := &places{grant: g, to: g.Destinations(), deny: n.o.Deny}
	var named []string
	for i, d := range p.to {
		if d.Name == "" {
			named = append(named, g.To[i])
		}
	}
	var err error
	p.public, err = targets.New(named, nil)
	return p, err
}

// allowed reports whether the grant and the node's owner permit a host at one of its addresses.
func (p *places) allowed(host string, to netip.AddrPort) bool {
	holds := func(d client.Destination) bool { return d.Holds(host, to) }
	if slices.ContainsFunc(p.deny, holds) || len(p.to) > 0 && !slices.ContainsFunc(p.to, holds) {
		return false
	}
	for _, a := range netutil.Inside(to.Addr()) {
		inner := netip.AddrPortFrom(a, to.Port())
		if slices.ContainsFunc(p.deny, func(d client.Destination) bool { return d.Holds(host, inner) }) {
			return false
		}
	}
	return p.public.Allowed(to)
}

// connect connects to a destination and relays both directions.
func (n *Node) connect(w http.ResponseWriter, r *http.Request, holder identity.Key) *client.Refusal {
	n.streams.Add(1)
	defer n.streams.Done()
	u, why := n.enter(r, holder)
	if why != nil {
		return why
	}
	defer n.leave(u)
	visitorOf(r).place.Leave()
	target, why := n.dial(r.Context(), u.account.grant, r.Host)
	if why != nil {
		return why
	}
	defer target.Close()
	client, in, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return nil
	}
	defer client.Close()
	if _, err := client.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")); err != nil {
		return nil
	}
	n.counts.flows.Add(1)
	n.note("stream begins", u.account, r.RemoteAddr, target.RemoteAddr().String())
	first, _ := in.Reader.Peek(in.Reader.Buffered())
	err = n.relay(u, client, first, target)
	n.log.Debug("stream ended", "grant", u.account.grant.ID, "why", err)
	return nil
}

// enter begins a stream or flow by the grant in a request.
func (n *Node) enter(r *http.Request, holder identity.Key) (*use, *client.Refusal) {
	a, why := n.admit(r, holder, client.ModeForward)
	if why != nil {
		return nil, why
	}
	if !n.flows.Acquire(holder) {
		return nil, &client.Refusal{Reason: client.ReasonBusy}
	}
	u := a.begin(n.ctx, n.o.now())
	if n.revoked.holds(a.grant) { // since the check; a later revocation finds the use
		n.leave(u)
		return nil, &client.Refusal{Reason: client.ReasonRevoked}
	}
	return u, nil
}

// leave ends a use.
func (n *Node) leave(u *use) {
	u.end(context.Canceled)
	n.flows.Release(u.account.grant.Holder)
}

func (n *Node) note(what string, a *account, from, to string) {
	attributes := []any{"grant", a.grant.ID, "holder", a.grant.Holder.Short()}
	if n.o.LogTargets {
		attributes = append(attributes, "from", from, "to", to)
	}
	n.log.Info(what, attributes...)
}

// dial connects to a target's first address that the grant permits and that answers.
func (n *Node) dial(ctx context.Context, g client.Grant, target string) (net.Conn, *client.Refusal) {
	host, port, err := client.SplitAddress(target)
	if err != nil {
		return nil, &client.Refusal{Reason: client.ReasonRequest}
	}
	to, why := n.resolve(ctx, g, host, port)
	if why != nil {
		return nil, why
	}
	ctx, cancel := context.WithTimeout(ctx, patienceDial)
	defer cancel()
	conn, failed := dial.First(ctx, to, dialOne)
	if failed == nil {
		return conn, nil
	}
	if timeout, ok := errors.AsType[net.Error](failed); ok && timeout.Timeout() {
		return nil, &client.Refusal{Reason: client.ReasonSilent}
	}
	return nil, &client.Refusal{Reason: client.ReasonUnreachable, Detail: causeOf(failed)}
}

// causeOf removes the addresses from an error of package net.
func causeOf(err error) string {
	text := err.Error()
	return strings.TrimPrefix(text[strings.LastIndex(text, ": ")+1:], " ")
}

func dialOne(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 4}}
	return d.DialContext(ctx, "tcp", to.String())
}

// resolve returns the addresses of a host that the grant permits, at least one.
func (n *Node) resolve(ctx context.Context, g client.Grant, host string, port uint16) ([]netip.AddrPort, *client.Refusal) {
	where, err := n.places(g)
	if err != nil {
		return nil, &client.Refusal{Reason: client.ReasonMalformed}
	}
	addrs := []netip.Addr{}
	if a, err := netip.ParseAddr(host); err == nil {
		addrs = append(addrs, a)
	} else if !where.named(host, port) {
		return nil, &client.Refusal{Reason: client.ReasonDestination} // do not reveal the name even to DNS
	} else {
		ctx, cancel := context.WithTimeout(ctx, patienceResolve)
		defer cancel()
		if addrs, err = n.o.lookup(ctx, "ip", host); err != nil {
			return nil, &client.Refusal{Reason: client.ReasonName}
		}
	}
	var to []netip.AddrPort
	for _, a := range addrs {
		if one := netip.AddrPortFrom(a.Unmap(), port); where.allowed(host, one) {
			to = append(to, one)
		}
	}
	if len(to) == 0 {
		return nil, &client.Refusal{Reason: client.ReasonDestination}
	}
	return to, nil
}

// named reports whether the grant may permit a host of which only the name is known.
func (p *places) named(host string, port uint16) bool {
	name := func(d client.Destination) bool {
		if d.Port != 0 && d.Port != port {
			return false
		}
		return d.Name == "" || d.Holds(host, netip.AddrPortFrom(netip.Addr{}, port))
	}
	return len(p.to) == 0 || slices.ContainsFunc(p.to, name)
}
