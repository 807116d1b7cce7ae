package bridge

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"time"

	"heddle/disguise/cover"
	"heddle/disguise/handshake"
	"heddle/disguise/link"
	"heddle/internal/connlimit"
	"heddle/internal/errhint"
	"heddle/internal/netutil"
	"heddle/path"
)

// leadsOf returns the lengths of what may precede a hello, without repetition.
func leadsOf(covers map[byte]cover.Factory) (leads []int) {
	for _, f := range covers {
		leads = append(leads, f.Leads()...)
	}
	slices.Sort(leads)
	return slices.Compact(leads)
}

// door is where clients come to over TCP, with some of the covers.
type door struct {
	covers map[byte]cover.Factory
	leads  []int      // how many bytes may precede a hello
	host   cover.Host // serves all that begins there; nil without such a cover
}

func newDoor(covers map[byte]cover.Factory) (*door, error) {
	host, err := cover.HostOf(slices.Collect(maps.Values(covers))...)
	return &door{covers, leadsOf(covers), host}, err
}

// apart is a listener with covers of its own.
type apart struct {
	net.Listener
	door *door
}

// Apart makes a listener for [Bridge.Serve] with covers of its own, in place of those of [Options]. Their connections share links with those of all other
// listeners. Call it before Serve.
func (b *Bridge) Apart(l net.Listener, covers map[byte]cover.Factory) (net.Listener, error) {
	if b.o.Behind {
		return nil, &path.Error{What: "bridge", Why: "another web server has its connections, and a cover is at a port of its own", Hint: "leave out the port of the cover, or behind"}
	}
	at, err := newDoor(covers)
	if err != nil {
		return nil, err
	}
	b.hosts = b.hosts || at.host != nil
	return &apart{l, at}, nil
}

// enter serves one connection. carrying ends when the bridge has ended all links.
func (b *Bridge) enter(carrying context.Context, at *door, c net.Conn) {
	if caller, ok := c.(*caller); ok {
		b.welcome(carrying, caller)
		return
	}
	place := b.places.Enter(c)
	defer place.Close()
	defer context.AfterFunc(carrying, func() { c.Close() })()
	if at.host != nil {
		b.receive(carrying, at, place)
		return
	}
	withoutKeepAlive(c)
	until := time.Now().Add(b.o.silence)
	_ = c.SetReadDeadline(until)
	a, rest, err := b.hello(at, place)
	if err != nil {
		b.refused(c.RemoteAddr(), err)
		drop(c, until)
		return
	}
	e, shape, on, err := b.admit(a, at.covers, c.RemoteAddr(), false)
	if err != nil {
		b.refused(c.RemoteAddr(), err)
		drop(c, until)
		return
	}
	place.Proved()
	path.KeepAlive(c)
	_ = c.SetReadDeadline(time.Time{})
	if e != nil && !a.Reconnect {
		b.work.Go(func() { b.serve(carrying, e) })
	}
	b.carry(carrying, e, shape, on, c, rest)
}

// welcome serves one client over UDP, whose hello has been read.
func (b *Bridge) welcome(carrying context.Context, c *caller) {
	defer c.Close()
	defer context.AfterFunc(carrying, func() { c.Close() })()
	e, shape, on, err := b.admit(c.accepted, b.o.DatagramCovers, c.RemoteAddr(), true)
	if err != nil {
		b.refused(c.RemoteAddr(), err)
		return
	}
	b.callers.Add(1)
	defer b.callers.Add(-1)
	if c.reached = on.Reached; e != nil {
		c.reached = func() bool { return e.reaches(c.from.Addr(), on.Reached) }
	}
	if e != nil && !c.accepted.Reconnect {
		b.work.Go(func() { b.serve(carrying, e) })
	}
	b.carry(carrying, e, shape, on, c, nil)
}

// withoutKeepAlive turns TCP keep-alives off. Go turns them on for all connections, and strangers would see them.
func withoutKeepAlive(c net.Conn) {
	if tcp, ok := c.(interface{ SetKeepAlive(bool) error }); ok {
		_ = tcp.SetKeepAlive(false)
	}
}

// hello reads the hello of a client, and returns what followed it. It fails with [handshake.ErrStranger] if there is none.
func (b *Bridge) hello(at *door, c net.Conn) (a *handshake.Accepted, rest []byte, err error) {
	type place struct{ lead, need int }
	var open []place // where a hello may still be
	for _, lead := range at.leads {
		open = append(open, place{lead, lead})
	}
	refusal := error(&handshake.Refusal{Reason: handshake.NoHello})
	buffer := make([]byte, 0, 2048)
	for len(open) > 0 {
		need := open[0].need
		for _, p := range open[1:] {
			need = min(need, p.need)
		}
		if buffer, err = readTo(c, buffer, need); err != nil {
			return nil, nil, err
		}
		var next []place
		for _, p := range open {
			if len(buffer) < p.need {
				next = append(next, p)
				continue
			}
			n, a, err := b.o.Server.Read(buffer[p.lead:], b.o.clock())
			switch {
			case err == nil:
				return a, buffer[p.lead+n:], nil
			case errors.Is(err, handshake.ErrShort):
				next = append(next, place{p.lead, p.lead + n})
			default:
				refusal = worse(refusal, err)
			}
		}
		open = next
	}
	return nil, nil, refusal
}

// readTo reads until the buffer has so many bytes or more.
func readTo(c net.Conn, buffer []byte, need int) ([]byte, error) {
	buffer = slices.Grow(buffer, max(need-len(buffer), 1))
	for first := true; first || len(buffer) < need; first = false {
		n, err := c.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		if err != nil && len(buffer) < need {
			return buffer, err
		}
	}
	return buffer, nil
}

// worse returns the refusal that says more.
func worse(a, b error) error {
	if r, ok := errors.AsType[*handshake.Refusal](a); ok && r.Reason != handshake.NoHello {
		return a
	}
	return b
}

// admit finds the link and the cover of a connection, which is one of those that are there.
func (b *Bridge) admit(a *handshake.Accepted, covers map[byte]cover.Factory, client net.Addr, datagrams bool) (*entry, cover.Cover, *link.Conn, error) {
	stranger := func(reason handshake.Reason) error { return &handshake.Refusal{Reason: reason} }
	if len(a.Cover) == 0 || covers[a.Cover[0]] == nil {
		return nil, nil, nil, stranger(noCover)
	}
	shape, err := covers[a.Cover[0]].Server(a.Cover)
	if err != nil {
		return nil, nil, nil, stranger(noCover)
	}
	if !a.Reconnect {
		e, on, err := b.open(a, client, datagrams)
		return e, shape, on, err
	}
	e := b.find(a.Link)
	if e == nil {
		return nil, nil, nil, stranger(handshake.NoLink)
	}
	on, err := e.link.Adopt(a, datagrams)
	if err != nil {
		return nil, nil, nil, stranger(handshake.NoLink)
	}
	return e, shape, on, nil
}

// noCover is why a client is refused whose cover the bridge does not have.
const noCover handshake.Reason = "unknown cover"

// carry moves the blocks of one connection until it ends. e is nil for a link that was refused.
func (b *Bridge) carry(ctx context.Context, e *entry, shape cover.Cover, on *link.Conn, c net.Conn, rest []byte) {
	if e != nil {
		e.carriers.Add(1)
		defer e.carriers.Add(-1)
	}
	on.Via(pathOf(c.RemoteAddr()))
	var err error
	if len(rest) > 0 {
		err = on.Take(rest)
	}
	if err == nil {
		err = shape.Carry(ctx, c, on)
	}
	on.Leave(err)
	if _, packets := c.(*caller); !packets && err != nil && ctx.Err() == nil {
		// An attacker who changes the bytes of a client gets the same silence as a stranger.
		_ = c.SetDeadline(time.Time{})
		drop(c, time.Now().Add(b.o.silence))
	}
}

// pathOf names the path of a client's connection by the address that it comes from. A program on this machine, such as a proxy in
// front of the bridge, says nothing about the path.
func pathOf(client net.Addr) string {
	from := connlimit.SourceOf(client)
	if !from.IsValid() || from.IsLoopback() {
		return ""
	}
	return from.String()
}

// linger is how long the bridge goes on to read after it ended its direction: bytes that arrive at a closed socket are answered
// with a reset.
const linger = 30 * time.Second

// drop reads and drops what arrives until the peer ends the connection, or the time comes. It never sends anything but a FIN.
func drop(c net.Conn, until time.Time) {
	_ = c.SetReadDeadline(until)
	if _, err := io.Copy(io.Discard, onlyReader{c}); err == nil {
		return // the peer ended it
	}
	if half, ok := c.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_ = c.SetReadDeadline(time.Now().Add(linger))
		_, _ = io.Copy(io.Discard, onlyReader{c})
	}
}

// onlyReader keeps [io.Copy] from using splice, which cannot end at a place.
type onlyReader struct{ io.Reader }

// refused counts a connection that is no client's, and logs why.
func (b *Bridge) refused(from net.Addr, err error) {
	reason := handshake.NoHello
	if r, ok := errors.AsType[*handshake.Refusal](err); ok {
		reason = r.Reason
	}
	b.counts.refuse(reason)
	if reason == handshake.NoHello || !b.counts.lines.Take(time.Now()) {
		return
	}
	if cause := errors.Unwrap(err); cause != nil { // such as a full disk, which keeps all clients out
		b.o.Log.Error("refused a client", "why", reason, "error", cause, "hint", errhint.Of(cause))
		return
	}
	b.o.Log.Info("refused a connection", "why", reason, "network", connlimit.Network(netutil.AddrPort(from).Addr()))
}
