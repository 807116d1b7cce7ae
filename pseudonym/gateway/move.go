package gateway

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"heddle/internal/dial"
	"heddle/internal/errhint"
	"heddle/internal/netutil"
	"heddle/internal/tcprepair"
	"heddle/pseudonym/ca"
)

// A gateway moves a connection to a tenant on another machine by the tenant's agent there, which it reaches by TLS. Both know each other by
// their keys. The gateway sends the state of the connection, after its length (32 bits). The agent makes a socket of it, which stays silent, and
// answers with one byte. The gateway lets the switch lead the client's packets there, and sends one byte. Only then does the agent's socket
// speak, so that at no time both sides do: if anything fails before, the connection goes on at the gateway. The agent says so by a last byte. Without
// that the gateway, which knows the connection until then, resets it.
const (
	moveReady   = 1
	moveRefused = 0
	moveBegin   = 1
	moveBegun   = 2
	// answerFor is how long one agent may be silent if there is another way. That is tried then, which with the time to reach it stays below two seconds.
	answerFor = 1500 * time.Millisecond
	// moveMost is the most that the state of a connection may take: a gateway sends next to nothing before it moves one.
	moveMost = passMost + 64<<10
)

// Mover moves connections to agents.
type Mover struct {
	identity tls.Certificate
	open     func() (Holder, error)
	dialer   dial.Failover
	idle     ways[agentKind]
}

// agentKind are the agents that can take over a connection: those of a tenant, at addresses of one family.
type agentKind struct {
	key    ca.KeyID
	v6     bool
	direct bool // they answer past the gateway's machine
}

var (
	errStays  = errors.New("the connection is one that does not move")
	errAgain  = errors.New("the client encrypts names and sends no key share of X25519 or X25519MLKEM768, so the site may need the gateway's key again")
	errFamily = errors.New("no agent of the site has an address of the client's family")
	errLost   = errors.New("the connection was lost while it moved")
	errAgent  = errors.New("the agent refuses the connection")
	errSilent = errors.New("the agent does not answer")
)

// NewMover returns a mover. Agents know the gateways by the identity. It calls open for the first connection that moves, since a
// gateway that moves none does not change its machine.
func NewMover(identity tls.Certificate, open func() (Holder, error)) *Mover {
	return &Mover{identity: identity, open: sync.OnceValues(open)}
}

// Begin opens what holds connections. It fails if this process may not, or cannot, move them.
func (m *Mover) Begin() error {
	_, err := m.open()
	return err
}

// handOver moves a connection to an agent of a tenant. If it does not, it returns the addresses of the tenant's sidecars, and why, if the client is why.
func (g *Gateway) handOver(ctx context.Context, c net.Conn, to Place, first greeting) (sidecars []string, done bool, why error) {
	by := to.split(g.o.Mode)
	agents, sidecars := slices.Concat(by.direct, by.agents), by.sidecars
	moved, err := g.o.Mover.move(ctx, c, by.direct, agentKind{key: to.Key, direct: true}, first, len(by.agents)+len(sidecars) > 0)
	if !moved && len(by.agents) > 0 && !errors.Is(err, errLost) {
		g.sayNotDirect(by.direct, err)
		moved, err = g.o.Mover.move(ctx, c, by.agents, agentKind{key: to.Key}, first, len(sidecars) > 0)
	}
	if moved {
		g.note(func(n *Counts) { n.done(first).Moved++ })
		return nil, true, nil
	}
	switch {
	case errors.Is(err, errAgain):
		g.again.Do(func() { g.stay(err, "the mode auto relays them to a sidecar: tenant add --address ADDRESS") })
		return sidecars, false, err
	case errors.Is(err, errFamily):
		g.family.Do(func() { g.stay(err, "name an agent of that family too: tenant add --address handoff:ADDRESS") })
		return sidecars, false, err
	case err != nil && !errors.Is(err, errStays):
		g.o.Log.Warn("a connection does not move", "agents", agents, "error", err, "hint", errhint.Of(err))
	}
	if errors.Is(err, errLost) {
		g.note(func(n *Counts) { n.Failed++ })
		return nil, true, nil
	}
	return sidecars, false, nil
}

// sayNotDirect says why a connection is handed over so that the answers pass the gateway's machine.
func (g *Gateway) sayNotDirect(agents []string, err error) {
	if len(agents) > 0 && !errors.Is(err, errStays) && !errors.Is(err, errAgain) && !errors.Is(err, errFamily) {
		g.o.Log.Warn("a connection does not move to a site that answers directly", "agents", agents, "error", err, "hint", errhint.Of(err))
	}
}

// stay says why some connections do not move. It names no site: it is said once, whatever site comes first.
func (g *Gateway) stay(why error, hint string) {
	then := "they are relayed if the site has another address, or dropped"
	if g.o.Mode == Handoff {
		then = "they are dropped in mode handoff"
	}
	g.o.Log.Warn("some connections do not move to agents", "error", why, "then", then, "hint", hint)
}

// move moves a client's connection to one of a tenant's agents, which are of a kind but for the family. Unless it fails with errLost, a connection that did not move goes on here, where it
// may be relayed.
func (m *Mover) move(ctx context.Context, c net.Conn, agents []string, of agentKind, first greeting, relays bool) (moved bool, err error) {
	conn, whole := under(c).(*net.TCPConn)
	of.v6 = netutil.AddrPort(c.RemoteAddr()).Addr().Is6()
	if m == nil || len(agents) == 0 || !whole {
		return false, errStays
	}
	if agents = of.filter(agents); len(agents) == 0 {
		return false, errFamily
	}
	if first.opened != nil && mayAskAgain(first.opened.Hello) { // a hello that follows another one is encrypted for the gateway too
		return false, errAgain
	}
	holder, err := m.open()
	if err != nil {
		return false, errStays // whoever opens it says why, once
	}
	ctx, cancel := context.WithTimeout(ctx, dialFor)
	defer cancel()
	for {
		way, used, err := m.take(ctx, agents, of, relays)
		if err != nil {
			return false, err
		}
		held, err := moveBy(holder, conn, way, of.direct, first, patience(agents, relays))
		if err == nil || errors.Is(err, errAgent) || errors.Is(err, errFamily) {
			m.idle.keep(of, way)
			if held != nil {
				_ = held.Close()
			}
			return err == nil, err
		}
		way.Close()
		silent := errors.Is(err, os.ErrDeadlineExceeded)
		if errors.Is(err, errLost) || !errors.Is(err, errSilent) || !used && !silent { // an agent may have ended since the last time
			return false, err
		}
		if silent {
			m.idle.drop(of, way.RemoteAddr())
			if agents = others(agents, way.RemoteAddr()); len(agents) == 0 {
				return false, err
			}
		}
	}
}

// others returns the agents at other addresses than that of one that is silent, and none if it is not clear which one that is.
func others(agents []string, silent net.Addr) []string {
	rest := slices.DeleteFunc(slices.Clone(agents), func(a string) bool { return a == silent.String() })
	if len(rest) == len(agents) {
		return nil
	}
	return rest
}

// patience is how long one of the agents may be silent.
func patience(agents []string, relays bool) time.Duration {
	if len(agents) > 1 || relays {
		return answerFor
	}
	return dialFor
}

// moveBy moves a connection to the agent at the other end of way, which may be silent for so long. It returns the old side, which the caller closes.
func moveBy(holder Holder, c *net.TCPConn, way net.Conn, direct bool, first greeting, within time.Duration) (Hold, error) {
	if netutil.AddrPort(c.RemoteAddr()).Addr().Is4() != netutil.AddrPort(way.RemoteAddr()).Addr().Is4() {
		return nil, errFamily
	}
	held, err := holder.Hold(c)
	if err != nil {
		return nil, err
	}
	tenant, err := offer(c, way, direct, first.send, within)
	switch {
	case err != nil:
	case direct:
		err = held.LeadDirect(tenant)
	default:
		err = held.Lead(tenant)
	}
	if err != nil {
		if lost := held.Resume(); lost != nil {
			err = errors.Join(errLost, err, lost)
		}
		return nil, err
	}
	if err = ask(way, []byte{moveBegin}, within, moveBegun); err != nil { // the client ignores the reset if the tenant has spoken to it
		return nil, errors.Join(errLost, err, held.Reset())
	}
	return held, nil
}

// offer sends the state of a connection that is held to an agent, with what the gateway read of it, until the agent is ready. It returns the agent's
// address for the connection, which the connection itself gets unless the agent answers directly.
func offer(c *net.TCPConn, way net.Conn, direct bool, hello []byte, within time.Duration) (tenant netip.AddrPort, err error) {
	s, err := tcprepair.StateOf(c)
	if err != nil {
		return tenant, err
	}
	// An encrypted hello gives way to the one in it, which is shorter or longer. What the client sends next has the same number anyway.
	s.Receive, s.Received = slices.Concat(hello, s.Receive), s.Received-uint32(len(hello))
	tenant = netip.AddrPortFrom(netutil.AddrPort(way.RemoteAddr()).Addr(), s.Local.Port())
	if !direct {
		s.Local = tenant
	}
	state, err := s.MarshalBinary()
	if err == nil && len(state) > moveMost {
		err = tcprepair.ErrTooLarge
	}
	if err != nil {
		return tenant, err
	}
	return tenant, ask(way, append(binary.BigEndian.AppendUint32(nil, uint32(len(state))), state...), within, moveReady)
}

// ask sends a message to an agent, which gives the answer within some time.
func ask(way net.Conn, message []byte, within time.Duration, want byte) error {
	_ = way.SetDeadline(time.Now().Add(within))
	answer := make([]byte, 1)
	_, err := way.Write(message)
	if err == nil {
		_, err = io.ReadFull(way, answer)
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errSilent, err)
	case answer[0] != want:
		return errAgent
	}
	return nil
}

// filter leaves out addresses of the other family.
func (k agentKind) filter(agents []string) (some []string) {
	for _, a := range agents {
		if at, err := netip.ParseAddrPort(a); err != nil || at.Addr().Is6() == k.v6 {
			some = append(some, a)
		}
	}
	return some
}

// take returns a connection to an agent, and whether it was used before.
func (m *Mover) take(ctx context.Context, agents []string, of agentKind, relays bool) (way net.Conn, used bool, err error) {
	if way := m.idle.take(of); way != nil {
		return way, true, nil
	}
	for {
		c, err := m.dialer.Dial(ctx, agents)
		if err != nil {
			return nil, false, err
		}
		way, err = m.greet(ctx, c, of.key, patience(agents, relays))
		if err == nil {
			return way, false, nil
		}
		c.Close()
		if agents = others(agents, c.RemoteAddr()); len(agents) == 0 {
			return nil, false, fmt.Errorf("agent %v: %w", c.RemoteAddr(), err)
		}
	}
}

// greet makes TLS of a connection to an agent with a key, which may be silent for so long.
func (m *Mover) greet(ctx context.Context, c net.Conn, key ca.KeyID, within time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	t := tls.Client(c, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{m.identity}, InsecureSkipVerify: true, VerifyConnection: only(key)})
	return t, t.HandshakeContext(ctx)
}

// only lets the peer with a key pass, whatever its certificate says.
func only(key ca.KeyID) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 || ca.KeyOf(s.PeerCertificates[0]) != key {
			return errors.New("it has another key")
		}
		return nil
	}
}
