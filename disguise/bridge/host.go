package bridge

import (
	"context"
	"errors"

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
	place    *connlimit.Place
	hidden   []byte // until the hello is whole
	need     int    // bytes of it
	e        *entry
	on       *link.Conn // nil for a stranger
}

// receive gives a connection to the host.
func (b *Bridge) receive(carrying context.Context, place *connlimit.Place) {
	h := &hosted{Bridge: b, carrying: carrying, place: place}
	b.host.Host(carrying, place, h.enter)
	if h.on != nil {
		h.on.Leave(nil)
	}
	if h.e != nil {
		h.e.carriers.Add(-1)
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
		e, shape, on, err = h.admit(a, h.place.RemoteAddr(), false)
	}
	if err != nil {
		h.refused(h.place.RemoteAddr(), err)
		return nil, nil, err
	}
	h.on = on
	h.place.Proved()
	if h.e = e; e != nil {
		e.carriers.Add(1)
		if !a.Reconnect {
			h.work.Go(func() { h.serve(h.carrying, e) })
		}
	}
	on.Via(pathOf(h.place.RemoteAddr()))
	feed := &hostedFeed{on}
	return feed, shape, feed.Take(rest)
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
