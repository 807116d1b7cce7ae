package bridge

import (
	"context"
	"errors"
	"net"
	"slices"

	"heddle/disguise/cover"
	"heddle/disguise/handshake"
	"heddle/disguise/link"
	"heddle/internal/connlimit"
)

// hostedUnsent is how many bytes wait at the bridge for requests of a website's client, which fetches no more in a round trip:
// more than a megabyte a second over 450 ms.
const hostedUnsent = 1 << 20

// hosted is one connection of a host's.
type hosted struct {
	*Bridge
	carrying context.Context
	covers   map[byte]cover.Factory
	from     net.Addr
	place    *connlimit.Place // nil behind another web server
	hidden   []byte           // until the hello is whole
	need     int              // bytes of it
	e        *entry
	on       *link.Conn // nil for a stranger
}

// receive gives a connection to the host.
func (b *Bridge) receive(carrying context.Context, at *door, place *connlimit.Place) {
	if b.front != nil {
		b.front.Behind(carrying, place, func(visitor net.Addr) (cover.Enter, func()) {
			h := &hosted{Bridge: b, carrying: carrying, covers: at.covers, from: visitor}
			if visitor == nil {
				h.from = &net.UnixAddr{} // which has no address either
			}
			return h.enter, h.leave
		})
		return
	}
	h := &hosted{Bridge: b, carrying: carrying, covers: at.covers, from: place.RemoteAddr(), place: place}
	at.host.Host(carrying, place, h.enter)
	h.leave()
}

// leave ends the part of a client.
func (h *hosted) leave() {
	if h.on != nil {
		h.on.Leave(nil)
	}
	if h.e != nil {
		h.e.carriers.Add(-1)
		h.e.gone(h)
	}
}

// enter implements [cover.Enter].
func (h *hosted) enter(hidden []byte) (cover.Gauge, cover.Cover, error) {
	h.hidden = append(h.hidden, hidden...)
	if len(h.hidden) < h.need {
		return nil, nil, nil
	}
	n, a, err := h.o.Server.Read(h.hidden, h.o.clock())
	if errors.Is(err, handshake.ErrShort) {
		h.need = n
		return nil, nil, nil
	}
	rest := h.hidden[n:]
	h.hidden = nil
	var e *entry
	var shape cover.Cover
	var on *link.Conn
	if err == nil {
		e, shape, on, err = h.admit(a, h.covers, h.from, false)
	}
	if err != nil {
		h.refused(h.from, err)
		return nil, nil, err
	}
	h.on = on
	if h.place != nil {
		h.place.Proved()
	}
	if h.e = e; e != nil {
		e.carriers.Add(1)
		if h.place == nil {
			e.stay(h)
		}
		if !a.Reconnect {
			h.work.Go(func() { h.serve(h.carrying, e) })
		}
	}
	on.Via(pathOf(h.from))
	feed := &hostedFeed{on}
	return feed, shape, feed.Take(rest)
}

// mostStays is how many connections of a link behind another web server are kept. The bridge does not see when one ends.
const mostStays = 32

// stay notes a connection behind another web server. The oldest one goes for it if there are many.
func (e *entry) stay(h *hosted) {
	e.staysLock.Lock()
	defer e.staysLock.Unlock()
	if e.stays = append(e.stays, h); len(e.stays) > mostStays {
		e.stays[0].on.Leave(nil)
		e.stays = slices.Delete(e.stays, 0, 1)
	}
}

// gone forgets such a connection.
func (e *entry) gone(h *hosted) {
	e.staysLock.Lock()
	defer e.staysLock.Unlock()
	e.stays = slices.DeleteFunc(e.stays, func(other *hosted) bool { return other == h })
}

// hostedFeed leaves the link as soon as what arrives is none of its blocks, since the connection goes on with the host.
type hostedFeed struct{ *link.Conn }

// Take implements [cover.Feed].
func (f *hostedFeed) Take(b []byte) error {
	err := f.Conn.Take(b)
	if err != nil {
		f.Leave(err)
	}
	return err
}
