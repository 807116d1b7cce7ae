package web

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"heddle/disguise/carrier"
	"heddle/disguise/cover"
	"heddle/disguise/cover/web/browser"
	"heddle/path"
)

// tab is the client's end of one connection. It implements [cover.Cover].
type tab struct {
	*factory
	heads *heads
	view  *view

	feed   cover.Gauge
	ready  []byte // blocks that the next requests hide
	urgent int    // bytes of them that are not only padding
	known  bool   // the bridge answered with a payload
	waits  chan error
	broken error // of what arrived; the connection ends when what is urgent went out
	useful bool  // the last request that was drawn hides more than padding

	sent, got atomic.Int64 // bytes

	// Inside TLS.
	marks  marks
	shown  string // a cookie of all further requests, if another web server is in front of the bridge
	units  uint32 // requests with a unit so far
	taking sync.Mutex
	parts  order
}

const (
	readSize   = 128 << 10 // bytes that a connection takes at once
	leastBlock = 64        // bytes: an ack fits
	mostBlock  = 16 << 10
	mostSlack  = 64 << 10 // bytes by which an answer may be larger than what was recorded and what it hides
	mostFlight = 64       // requests at a time on a connection of HTTP/2
)

// Carry implements [cover.Cover].
func (t *tab) Carry(ctx context.Context, c net.Conn, f cover.Feed) error {
	gauge, ok := f.(cover.Gauge)
	if !ok {
		return errNoGauge
	}
	http2 := false
	if t.sealed {
		client, err := t.handshake(ctx, c)
		if err != nil {
			return err
		}
		c, http2 = client, client.HTTP2
	}
	answers, arriving := io.Pipe()
	t.feed = gauge
	take := func(b []byte) error {
		if _, err := arriving.Write(b); !errors.Is(err, io.ErrClosedPipe) { // what comes when all is over is dropped
			return err
		}
		return nil
	}
	t.view = t.visit.enter(gauge.Path())
	defer t.visit.leave(t.view)
	// The connection ends between two exchanges, so only its silence is bounded from outside.
	return cover.Carry(ctx, c, cover.Life{Idle: t.life.Idle}, readSize, take, func(ctx context.Context, w *cover.Wire) error {
		defer answers.Close()
		defer context.AfterFunc(ctx, func() { arriving.CloseWithError(io.ErrUnexpectedEOF) })()
		in, out := &counting{answers, &t.got}, &writing{w, &t.sent}
		if !http2 {
			return t.run(ctx, &lines{out, bufio.NewReader(in)}, 1)
		}
		h, err := browser.NewConn(struct {
			io.Reader
			io.Writer
		}{in, out})
		if err != nil {
			return err
		}
		var reading sync.WaitGroup
		reading.Go(func() { _ = h.Serve() }) // requests fail when it ends
		defer reading.Wait()
		defer answers.Close()
		return t.run(ctx, streams{h}, mostFlight)
	})
}

// run fetches what a browser would, at most so many things at a time, until the life of the connection is over.
func (t *tab) run(ctx context.Context, s speaker, most int) error {
	began := time.Now()
	flights, ctx := errgroup.WithContext(ctx)
	slots := make(chan struct{}, most)
	fetch := func() error {
		for {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if t.over(began) {
				return nil
			}
			f, hidden, pause, err := t.visit.next(t.view, t, time.Now())
			if pause != nil {
				<-slots
				if err := t.wait(ctx, pause); err != nil {
					return err
				}
				continue
			}
			f.useful = t.useful
			one := func() error {
				defer func() { <-slots }()
				if err == nil {
					err = t.exchange(s, f, hidden)
				}
				t.visit.done(t.view, f, err != nil)
				return err
			}
			if t.known && most > 1 {
				flights.Go(one)
			} else if err := one(); err != nil { // no other request overtakes the hello
				return err
			}
		}
	}
	flights.Go(fetch)
	err := flights.Wait()
	if errors.Is(err, browser.ErrGoAway) {
		return nil
	}
	return err
}

// over reports whether a connection that began then fetches nothing more.
func (t *tab) over(began time.Time) bool {
	return t.life.Age > 0 && time.Since(began) > t.life.Age ||
		t.life.Bytes > 0 && max(t.sent.Load(), t.got.Load()) > t.life.Bytes-mostExchange(t.life.Bytes)
}

// mostExchange is how close to its limit of bytes a connection ends. One exchange may go beyond the limit: it is whole, or there is none.
func mostExchange(limit int64) int64 { return limit / 4 }

// waiting implements [sender].
func (t *tab) waiting() int {
	n := t.feed.Waiting()
	if n > 0 {
		return n + len(t.ready)
	}
	return t.urgent
}

// met implements [sender].
func (t *tab) met() (begun, known bool) { return t.sent.Load() > 0, t.known }

// wait waits until there may be something to fetch.
func (t *tab) wait(ctx context.Context, p *pause) error {
	if t.waits == nil && !p.deaf {
		waits := make(chan error, 1)
		go func() {
			_, err := t.feed.Wait(ctx)
			waits <- err
		}()
		t.waits = waits
	}
	var due <-chan time.Time
	if !p.untimed {
		timer := time.NewTimer(time.Until(p.until))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case err := <-t.waits:
		t.waits = nil
		return err
	case <-p.change:
	case <-due:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// flight is a request and its answer.
type flight struct {
	*item
	from    *page // that asks for it
	opens   bool  // it is the document of that page
	load    bool  // of the page, as it was recorded
	useful  bool  // the request hides more than padding
	said    *head // what the bridge says of the link; may be nil
	arrived int   // bytes of blocks
	padded  int   // bytes of them since the last ones of the stream
	left    time.Time
}

// exchange fetches one item.
func (t *tab) exchange(s speaker, it *flight, hidden []byte) (err error) {
	target, body, cookie := []byte(it.URL), it.Posted, ""
	if !t.sealed {
		t.binding.apply(it.number, hidden)
	}
	switch {
	case t.sealed:
		body, cookie = it.enclose(hidden)
	case it.url > 0:
		target, err = carrier.Target.Embed(target, hidden[:it.url])
		hidden = hidden[it.url:]
		fallthrough
	default:
		if err == nil && it.body > 0 {
			body, err = it.posted.Embed(body, hidden)
		}
	}
	if err != nil {
		return err
	}
	began := time.Now()
	r, err := s.fetch(t.request(it, string(target), body, cookie))
	if err != nil {
		return err
	}
	t.visit.begins(time.Since(began))
	defer r.Body.Close()
	return t.answer(it, r)
}

// draw implements [sender]: it takes the next bytes of the stream of blocks.
func (t *tab) draw(it *item) ([]byte, error) {
	if t.sealed {
		return t.drawUnit(it)
	}
	n := it.up()
	if t.useful = t.urgent > 0; t.broken != nil && !t.useful {
		return nil, t.broken
	}
	for len(t.ready) < n {
		size := max(n-len(t.ready), leastBlock) // what it does not hide waits for this connection
		if n < leastBlock {
			size = max(size, min(t.feed.Waiting(), mostBlock)) // or blocks would be all overhead
		}
		b := make([]byte, size)
		useful, err := 0, t.broken
		if err == nil {
			useful, err = t.feed.Fill(b)
		}
		switch {
		case err != nil && t.urgent == 0:
			return nil, err
		case err != nil: // the rest of the last block, which tells the end, goes out yet
			_, _ = rand.Read(b) // it never fails
		}
		t.ready = append(t.ready, b...)
		if useful > 0 {
			t.urgent, t.useful = len(t.ready), true
		}
	}
	drawn := t.ready[:n]
	t.ready, t.urgent = t.ready[n:], max(0, t.urgent-n)
	if len(t.ready) == 0 {
		t.ready = nil
	}
	return drawn, nil
}

// answer reads the answer to a request, and takes what it hides.
func (t *tab) answer(it *flight, r *http.Response) error {
	t.visit.keep(r.Cookies())
	if t.sealed {
		if ours, err := t.takeParts(it, r); ours || err != nil {
			return err
		}
	}
	if r.StatusCode == http.StatusNotModified && it.Get("etag") != "" {
		return nil
	}
	if r.StatusCode != it.Status {
		return t.errOtherAnswer(it.item, r.StatusCode)
	}
	body, err := bodyOf(it.item, r)
	if err != nil {
		return err
	}
	if it.down > 0 {
		body = carrier.Reader(it.answer, it.Body, body)
	}
	switch err := t.takeBody(it, body); {
	case errors.Is(err, carrier.ErrForeign):
		return t.errOtherAnswer(it.item, r.StatusCode)
	case err != nil:
		return err
	}
	if n, err := io.CopyN(io.Discard, r.Body, 1); n > 0 || !errors.Is(err, io.EOF) {
		return t.errOtherAnswer(it.item, r.StatusCode)
	}
	if it.said == nil {
		return t.unknown(it.item)
	}
	return nil
}

// takeBody takes what a body hides while it arrives, or looks at a body that hides nothing. It fails with [carrier.ErrForeign] if the body is
// another one than the bridge has.
func (t *tab) takeBody(it *flight, body io.Reader) error {
	if it.down == 0 {
		b, err := io.ReadAll(body)
		if err == nil && it.Fresh() == "" && !bytes.Equal(b, it.Body) {
			err = carrier.ErrForeign
		}
		return err
	}
	if !t.sealed && it.carries() > 0 {
		first := make([]byte, headSize)
		if _, err := io.ReadFull(body, first); err != nil {
			return err
		}
		if said, ok := t.heads.open(it.number, first); ok {
			t.known, it.said = true, &said
			t.visit.heard(said)
			return t.takeBlocks(it, body)
		}
	}
	_, err := io.Copy(io.Discard, body)
	return err
}

// takeBlocks passes blocks on.
func (t *tab) takeBlocks(it *flight, in io.Reader) error {
	b, bytes, before := make([]byte, partSize), 0, t.feed.Taken()
	for {
		n, err := in.Read(b)
		if n > 0 {
			if t.broken == nil {
				t.broken = t.feed.Take(b[:n])
			}
			if bytes += n; bytes >= hiddenPart {
				now := t.feed.Taken()
				t.visit.took(it, bytes, int(now-before))
				bytes, before = 0, now
			}
			if t.broken != nil && t.urgent == 0 { // or else the bridge is yet to be told of the link's end
				return t.broken
			}
		}
		switch {
		case err == io.EOF: //nolint:errorlint // as readers return it
			return nil
		case err != nil:
			return err
		}
	}
}

// unknown fails if an answer without blocks shows that the bridge does not know the client any more.
func (t *tab) unknown(it *item) error {
	if t.known && it.carries() > 0 {
		return errStranger
	}
	return nil
}

// bodyOf reads the body of an answer, but not more than it can have.
func bodyOf(it *item, r *http.Response) (io.Reader, error) {
	most := int64(len(it.Body) + 2*it.down + mostSlack)
	in := io.LimitReader(r.Body, most)
	if r.Header.Get("Content-Encoding") != "gzip" {
		return in, nil
	}
	unpacked, err := gzip.NewReader(in)
	if err != nil {
		return nil, err
	}
	return io.LimitReader(unpacked, most), nil
}

// errStranger ends a connection whose bridge does not know the link any more, or got other bytes than the client sent.
var errStranger = errors.New("the bridge takes the connection for a stranger's")

func (t *tab) errOtherAnswer(it *item, status int) error {
	e := &path.Error{What: "cover " + Name, Why: fmt.Sprintf("the answer to %s %.60s is another one than the site has", it.Method, it.URL),
		Hint: "both ends need the same site file, and nothing on the way may change answers"}
	if t.sealed {
		e.What = "cover " + NameTLS
	}
	if status >= http.StatusInternalServerError {
		e.Why = fmt.Sprintf("the answer to %s %.60s is %d %s", it.Method, it.URL, status, http.StatusText(status))
		e.Hint = "a web server is there, and the bridge behind it is not"
	}
	return e
}

// counting counts what is read, and writing what is written.
type (
	counting struct {
		io.Reader
		n *atomic.Int64
	}
	writing struct {
		io.Writer
		n *atomic.Int64
	}
)

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n.Add(int64(n))
	return n, err
}

func (c *writing) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.n.Add(int64(n))
	return n, err
}
