package link

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"time"

	"heddle/disguise/block"
	"heddle/disguise/handshake"
	"heddle/path"
)

const (
	helloEvery = 250 * time.Millisecond // over datagrams, doubling
	maxHellos  = 9
	leastHello = 32 + block.Overhead + 26 // bytes of a hello without token and parameters
	answerSize = 32 + block.Overhead + 8
	joinSize   = 32 + block.Overhead + 26 // without parameters
)

// hello is what a connection must do until the link is open.
type hello struct {
	// A client repeats its hello over datagrams. The bridge may answer any of them.
	hello   handshake.Hello
	pending []*handshake.Pending
	filler  *sending // the keys of the newest
	// A bridge repeats its answer over datagrams. The client may use any of them.
	accepted   *handshake.Accepted
	candidates []candidate
	// A client that joins a link repeats its rc over datagrams until a block arrives. Blocks go out beside it.
	joining bool

	again time.Time // when the next one is due; zero if it is
	tries int
}

type candidate struct {
	secrets handshake.Secrets
	codec   *block.Codec
}

// Initiate opens a link to a bridge. The first connection carries the hello. Its time and attempt are set if they are zero.
func Initiate(o Options, h handshake.Hello, datagrams bool) (*Link, *Conn, error) {
	if h.Time.IsZero() {
		h.Time = time.Now()
	}
	if h.Attempt == [16]byte{} {
		_, _ = rand.Read(h.Attempt[:])
	}
	first, err := handshake.Start(o.Bridge, h, o.Bridge.Padding("hello"))
	if err != nil {
		return nil, nil, err
	}
	l := newLink(o, true)
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.newConn(datagrams)
	c.hello = &hello{hello: h}
	if !datagrams {
		c.hello.started(first)
		c.lead = first.Bytes()
	}
	l.alarm(l.progress.Add(l.o.Patience))
	return l, c, nil
}

// Join adds a connection to a link that is open, at the client.
func (l *Link) Join(parameters []byte, datagrams bool) (*Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.joinable(); err != nil {
		return nil, err
	}
	lead, err := l.keys.secrets.Join(l.o.Bridge, l.id, parameters, time.Now(), l.o.Bridge.Padding("hello"))
	if err != nil {
		return nil, err
	}
	c := l.newConn(datagrams)
	if datagrams {
		c.hello = &hello{joining: true, hello: handshake.Hello{Cover: parameters}}
	} else {
		c.lead, c.probe = lead, true
	}
	l.joined()
	return c, nil
}

// Respond opens a link at the bridge, with the id.
func Respond(o Options, a *handshake.Accepted, id uint32, datagrams bool) (*Link, *Conn, error) {
	l := newLink(o, false)
	l.id = id
	l.mu.Lock()
	defer l.mu.Unlock()
	if datagrams {
		c := l.newConn(datagrams)
		c.hello = &hello{accepted: a}
		l.alarm(l.progress.Add(l.o.Patience))
		return l, c, nil
	}
	answer, secrets, err := a.Answer(id, time.Now(), o.Bridge.Padding("answer"))
	if err != nil {
		l.end(err, silent)
		return nil, nil, err
	}
	l.keys.open(secrets, false)
	c := l.newConn(datagrams)
	c.lead = answer
	c.from = &receiving{codec: block.NewCodec(a.Keys()), filler: true}
	c.from.window.Mark(0)
	return l, c, nil
}

// Adopt adds a connection to a link at the bridge.
func (l *Link) Adopt(a *handshake.Accepted, datagrams bool) (*Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.joinable(); err != nil {
		return nil, err
	}
	if !a.Joins(l.keys.secrets) {
		return nil, &path.Error{What: "a connection", Why: "it does not know the link that it joins"}
	}
	c := l.newConn(datagrams)
	c.adopted, c.greet = true, datagrams
	l.joined()
	return c, nil
}

// joinable fails unless another connection may join. l.mu is held.
func (l *Link) joinable() error {
	switch {
	case l.over:
		return l.ended()
	case l.keys.send == nil:
		return errors.New("the link is not open yet")
	case len(l.conns) >= maxConns:
		return fmt.Errorf("a link has at most %d connections", maxConns)
	}
	return nil
}

// joined lets a new connection take part. l.mu is held.
func (l *Link) joined() {
	select {
	case <-l.starve:
	default:
	}
}

// opened ends the hello. l.mu is held.
func (l *Link) opened(c *Conn, id uint32, s handshake.Secrets) {
	now := time.Now()
	l.id = id
	l.keys.open(s, l.client)
	c.hello, c.from = nil, l.keys.oldest()
	l.progress = now
	if l.client {
		l.rekey.start(l, now)
	}
	l.wrote(now)
	l.kick(now)
}

func (h *hello) started(p *handshake.Pending) {
	h.pending = append(h.pending, p)
	h.filler = &sending{codec: block.NewCodec(p.Keys()), next: 1}
}

// takeAnswer takes bytes of the bridge's answer over a stream, and returns what comes after it.
func (h *hello) takeAnswer(c *Conn, b []byte) (rest []byte, err error) {
	c.part = append(c.part, b...)
	if len(c.part) < c.need {
		return nil, nil
	}
	n, id, secrets, err := h.pending[0].Finish(c.part)
	if errors.Is(err, handshake.ErrShort) {
		c.need = n
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rest = c.part[n:]
	c.part, c.need = nil, 0
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.l.opened(c, id, secrets)
	return rest, nil
}

// waiting returns the size of a datagram that would help.
func (h *hello) waiting(c *Conn) int {
	switch {
	case !c.datagrams || !h.again.IsZero() || h.tries >= maxHellos:
		return 0
	case h.accepted != nil:
		return answerSize
	case h.joining:
		return joinSize + len(h.hello.Cover)
	}
	return leastHello + len(h.hello.Token) + len(h.hello.Cover)
}

// prepare makes the next hello or answer, as large as the datagram, if it is time to. l.mu is held.
func (h *hello) prepare(c *Conn, room int, now time.Time) {
	least := h.waiting(c)
	padding := room - least
	if least == 0 || padding < 0 || padding > handshake.MaxPadding {
		return
	}
	if err := h.make(c, padding, now); err != nil {
		c.l.end(err, silent)
		return
	}
	h.again = now.Add(helloEvery << h.tries)
	h.tries++
	c.l.alarm(h.again)
}

// make makes the next hello or answer. l.mu is held.
func (h *hello) make(c *Conn, padding int, now time.Time) (err error) {
	l := c.l
	switch {
	case h.joining:
		c.lead, err = l.keys.secrets.Join(l.o.Bridge, l.id, h.hello.Cover, now, padding)
	case h.accepted == nil:
		var p *handshake.Pending
		if p, err = handshake.Start(l.o.Bridge, h.hello, padding); err == nil {
			h.started(p)
			c.lead = p.Bytes()
		}
	default:
		var s handshake.Secrets
		if c.lead, s, err = h.accepted.Answer(l.id, now, padding); err == nil {
			h.candidates = append(h.candidates, candidate{s, block.NewCodec(s.In)})
		}
	}
	return err
}

// takeDatagram tries whether a datagram ends the hello, and reports whether it was its answer.
func (h *hello) takeDatagram(c *Conn, b []byte) bool {
	l := c.l
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range h.pending {
		if n, id, secrets, err := p.Finish(b); err == nil && n == len(b) {
			l.opened(c, id, secrets)
			return true
		}
	}
	for _, one := range h.candidates {
		if head, ok := one.codec.Header(b); ok && head.Number < math.MaxUint16 {
			l.opened(c, l.id, one.secrets)
			return false // it is a block of the link
		}
	}
	return false
}
