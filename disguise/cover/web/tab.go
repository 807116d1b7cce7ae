package web

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"heddle/disguise/carrier"
	"heddle/disguise/cover"
	"heddle/path"
)

// tab is the client's end of one connection. It implements [cover.Cover].
type tab struct {
	*factory
	heads *heads

	feed   cover.Gauge
	in     *bufio.Reader
	ready  []byte // blocks that the next requests hide
	urgent bool   // they are not only padding
	known  bool   // the bridge answered with a payload
	waits  chan error
	got    int64 // bytes of answers
	useful bool  // the last request hid more than padding
}

const (
	readSize   = 128 << 10 // bytes that a connection takes at once
	leastBlock = 64        // bytes: an ack fits
	mostBlock  = 16 << 10
	mostSlack  = 64 << 10 // bytes by which an answer may be larger than what was recorded and what it hides
)

// Carry implements [cover.Cover].
func (t *tab) Carry(ctx context.Context, c net.Conn, f cover.Feed) error {
	gauge, ok := f.(cover.Gauge)
	if !ok {
		return fmt.Errorf("the cover %s needs a feed that tells how much waits", Name)
	}
	answers, arriving := io.Pipe()
	t.feed, t.in = gauge, bufio.NewReader(answers)
	take := func(b []byte) error {
		_, err := arriving.Write(b)
		return err
	}
	t.visit.enter()
	defer t.visit.leave()
	// The connection ends between two exchanges, so only its silence is bounded from outside.
	return cover.Carry(ctx, c, cover.Life{Idle: t.life.Idle}, readSize, take, func(ctx context.Context, w *cover.Wire) error {
		defer answers.Close()
		defer context.AfterFunc(ctx, func() { arriving.CloseWithError(io.ErrUnexpectedEOF) })()
		return t.run(ctx, w)
	})
}

// run fetches one thing after the other, until the life of the connection is over.
func (t *tab) run(ctx context.Context, w io.Writer) error {
	began := time.Now()
	var sent int64
	for ctx.Err() == nil {
		if t.life.Age > 0 && time.Since(began) > t.life.Age || t.life.Bytes > 0 && max(sent, t.got) > t.life.Bytes-mostExchange(t.life.Bytes) {
			return nil
		}
		it, hidden, pause, err := t.visit.next(t, time.Now())
		if pause != nil {
			if err := t.wait(ctx, pause); err != nil {
				return err
			}
			continue
		}
		var said *head
		if err == nil {
			var n int
			n, said, err = t.exchange(w, it, hidden)
			sent += int64(n)
		}
		t.visit.done(it, said, t.useful)
		if err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// mostExchange is how close to its limit of bytes a connection ends. One exchange may go beyond the limit: it is whole, or there is none.
func mostExchange(limit int64) int64 { return limit / 4 }

// waiting implements [sender].
func (t *tab) waiting() int {
	n := t.feed.Waiting()
	if n > 0 || t.urgent {
		n += len(t.ready)
	}
	return n
}

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

// exchange fetches one item. It returns the bytes of the request, and what the bridge says of the link.
func (t *tab) exchange(w io.Writer, it *item, hidden []byte) (sent int, said *head, err error) {
	target, body := []byte(it.URL), it.Posted
	if it.url > 0 {
		target, err = carrier.Target.Embed(target, hidden[:it.url])
	}
	if err == nil && it.body > 0 {
		body, err = it.posted.Embed(body, hidden[it.url:])
	}
	if err != nil {
		return 0, nil, err
	}
	request := t.request(it, string(target), body)
	if _, err := w.Write(request); err != nil {
		return 0, nil, err
	}
	said, err = t.answer(it)
	return len(request), said, err
}

// draw implements [sender]: it takes the next bytes of the stream of blocks.
func (t *tab) draw(n int) ([]byte, error) {
	t.useful = t.urgent
	for len(t.ready) < n {
		b := make([]byte, max(n-len(t.ready), leastBlock, min(t.feed.Waiting(), mostBlock)))
		useful, err := t.feed.Fill(b)
		if err != nil {
			return nil, err
		}
		t.urgent = t.urgent || useful > 0
		t.useful = t.useful || useful > 0
		t.ready = append(t.ready, b...)
	}
	drawn := t.ready[:n]
	if t.ready = t.ready[n:]; len(t.ready) == 0 {
		t.ready, t.urgent = nil, false
	}
	return drawn, nil
}

// answer reads the answer to a request, and takes what it hides.
func (t *tab) answer(it *item) (*head, error) {
	r, err := http.ReadResponse(t.in, &http.Request{Method: it.Method})
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	most := len(it.Body) + 2*it.down + mostSlack
	in := io.Reader(&io.LimitedReader{R: &counting{r.Body, &t.got}, N: int64(most)})
	if r.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		in = io.LimitReader(unpacked, int64(most))
	}
	body, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	if n, err := io.CopyN(io.Discard, r.Body, 1); n > 0 || !errors.Is(err, io.EOF) {
		return nil, errOtherAnswer(it) // larger than it can be
	}
	t.visit.keep(r.Cookies())
	if r.StatusCode == http.StatusNotModified && it.Get("etag") != "" {
		return nil, nil
	}
	if r.StatusCode != it.Status {
		return nil, errOtherAnswer(it)
	}
	if it.carries() == 0 {
		return nil, nil
	}
	payload, err := it.answer.Extract(it.Body, body)
	if err != nil {
		return nil, errOtherAnswer(it)
	}
	said, ok := t.heads.open(payload)
	if !ok && t.known {
		return nil, errStranger
	}
	if !ok {
		return nil, nil
	}
	t.known = true
	return &said, t.feed.Take(payload[headSize:])
}

// errStranger ends a connection whose bridge does not know the link any more, or got other bytes than the client sent.
var errStranger = errors.New("the bridge takes the connection for a stranger's")

func errOtherAnswer(it *item) error {
	return &path.Error{What: "cover " + Name, Why: fmt.Sprintf("the answer to %s %.60s is another one than the site has", it.Method, it.URL),
		Hint: "both ends need the same site file, and nothing on the way may change answers"}
}

// counting counts what is read.
type counting struct {
	io.Reader
	n *int64
}

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	*c.n += int64(n)
	return n, err
}
