package web

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"heddle/disguise/carrier"
	"heddle/disguise/cover"
	"heddle/disguise/cover/covertest"
	"heddle/disguise/cover/web/webtest"
	"heddle/disguise/handshake"
)

// censor keeps what it saw of all connections, and asks for it again.
type censor struct {
	t      *testing.T
	bridge *factory

	mu   sync.Mutex
	saw  []seen
	from int // connections with a request that hides something
}

// seen is a request with its answer.
type seen struct {
	request []byte
	it      *item
	tokens  bool // the request hides something
	answer  *webtest.Answer
}

// watch lets a connection pass. On it the censor asks for all that is the same for everybody, once: a client gets the same as others.
func (c *censor) watch() func([]byte, func([]byte) *webtest.Answer) *webtest.Answer {
	asked, counted := false, false
	return func(request []byte, ask func([]byte) *webtest.Answer) *webtest.Answer {
		one := seen{request: request, answer: ask(request)}
		if one.answer == nil { // the client left
			return nil
		}
		var hidden []byte
		one.it, hidden = c.bridge.match(asks(c.t, request))
		one.tokens = len(hidden) > 0
		c.mu.Lock()
		c.saw = append(c.saw, one)
		if one.tokens && !counted {
			counted = true
			c.from++
		}
		c.mu.Unlock()
		if one.tokens && one.it.Method == http.MethodPost && !asked {
			asked = true
			c.everybodys("on a client's connection", ask)
		}
		return one.answer
	}
}

// asks parses a request.
func asks(t testing.TB, request []byte) (method, target string, body []byte) {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(request)))
	if err != nil {
		t.Fatal(err)
	}
	if body, err = io.ReadAll(r.Body); err != nil {
		t.Fatal(err)
	}
	return r.Method, r.RequestURI, body
}

// ask asks by a connection of its own.
func (c *censor) ask(request []byte) *webtest.Answer {
	c.t.Helper()
	near, far := covertest.Pipe()
	defer near.Close()
	go c.bridge.Host(context.Background(), far, func([]byte) (cover.Gauge, cover.Cover, error) { return nil, nil, handshake.ErrStranger })
	if _, err := near.Write(request); err != nil {
		c.t.Fatal(err)
	}
	a := webtest.ReadAnswer(bufio.NewReader(near))
	if a == nil {
		c.t.Fatalf("%.60q is not answered", request)
	}
	return a
}

// everybodys expects that what never changes is as it was recorded.
func (c *censor) everybodys(when string, ask func([]byte) *webtest.Answer) {
	c.t.Helper()
	for _, it := range c.bridge.items {
		if it.Method != http.MethodGet || it.Fresh() != "" || it.url > 0 || c.bridge.exact["GET "+it.URL] != it {
			continue
		}
		a := ask(fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: www.example\r\n\r\n", it.URL))
		want := http.Header{}
		it.describe(want)
		want.Set("Content-Length", fmt.Sprint(len(it.Body)))
		if it.Status == http.StatusOK {
			want.Set("Accept-Ranges", "bytes")
		}
		if it.compressed() {
			want.Set("Vary", "Accept-Encoding")
		}
		if a == nil || a.StatusCode != it.Status || !bytes.Equal(a.Content, it.Body) || fields(a) != fmt.Sprint(want) {
			c.t.Errorf("%s %s is answered with %+v", when, it.URL, a)
		}
	}
}

// fields are the headers of an answer without what the time changes, and without the value of a cookie.
func fields(a *webtest.Answer) string { return headersOf(a.Header.Clone()) }

func headersOf(h http.Header) string {
	h.Del("Date")
	for i, value := range h["Set-Cookie"] {
		h["Set-Cookie"][i], _, _ = strings.Cut(value, "=")
	}
	return fmt.Sprint(h)
}

// anew is what a visitor sends for the same object who was not there before.
func (c *censor) anew(s seen) []byte {
	c.t.Helper()
	target, body := []byte(s.it.URL), s.it.Posted
	var err error
	if s.it.url > 0 {
		target, err = carrier.Target.Embed(target, noise(s.it.url))
	}
	if err == nil && s.it.body > 0 {
		body, err = s.it.posted.Embed(body, noise(s.it.body))
	}
	if err != nil {
		c.t.Fatal(err)
	}
	line, rest, _ := bytes.Cut(s.request, []byte("\r\n"))
	head, _, _ := bytes.Cut(rest, []byte("\r\n\r\n"))
	line = bytes.Replace(line, bytes.Fields(line)[1], target, 1)
	return bytes.Join([][]byte{line, []byte("\r\n"), head, []byte("\r\n\r\n"), body}, nil)
}

// same compares two answers to requests for one object as a censor sees them. Bytes that differ at each visit need only have the length of each
// other, if nothing compresses them.
func (c *censor) same(what string, s seen, a, b *webtest.Answer, identical bool) {
	c.t.Helper()
	same, fields := bytes.Equal(a.Content, b.Content), fields
	if !identical && s.it.down > 0 {
		varies := s.it.Type == "image/png" || a.Header.Get("Content-Encoding") != ""
		same = !same && (varies || len(a.Content) == len(b.Content))
		if varies {
			fields = func(a *webtest.Answer) string {
				h := a.Header.Clone()
				h.Del("Content-Length")
				return headersOf(h)
			}
		}
		for _, one := range []*webtest.Answer{a, b} {
			if _, err := s.it.answer.Extract(s.it.Body, c.content(s.it, one)); err != nil {
				c.t.Errorf("%s: %s %s is none of the site's answers: %v", what, s.it.Method, s.it.URL, err)
			}
		}
	}
	if !same || a.StatusCode != b.StatusCode || fields(a) != fields(b) {
		c.t.Errorf("%s: %s %.60s, with tokens %v: %s, %d bytes, %s\nand %s, %d bytes, %s", what, s.it.Method, s.it.URL, s.tokens,
			a.Status, len(a.Content), fields(a), b.Status, len(b.Content), fields(b))
	}
}

// unique expects that what a client hid is where each visit has other bytes anyway: behind a URL or a body with tokens that nobody sent before, or in an
// answer that the recording lets differ. All else that the censor saw is as recorded.
func (c *censor) unique() {
	c.t.Helper()
	tokens := map[requestKey]bool{}
	for _, s := range c.saw {
		method, target, body := asks(c.t, s.request)
		if s.tokens {
			if key := keyOf(method, target, body); tokens[key] {
				c.t.Errorf("two visits send the same tokens: %s %.80s", method, target)
			} else {
				tokens[key] = true
			}
		} else if target != s.it.URL || !bytes.Equal(body, s.it.Posted) {
			c.t.Errorf("%s %s is asked for as %.80s", s.it.Method, s.it.URL, target)
		}
		if s.it.Fresh() == "" && s.answer.StatusCode == http.StatusOK && !bytes.Equal(c.content(s.it, s.answer), s.it.Body) {
			c.t.Errorf("%s %s is the same for everybody, and a client gets other bytes", s.it.Method, s.it.URL)
		}
	}
}

// content is the body of an answer as a browser shows it.
func (c *censor) content(it *item, a *webtest.Answer) []byte {
	c.t.Helper()
	body, err := bodyOf(it, &http.Response{Header: a.Header, Body: io.NopCloser(bytes.NewReader(a.Content))})
	if err != nil {
		c.t.Fatal(err)
	}
	whole, err := io.ReadAll(body)
	if err != nil {
		c.t.Fatal(err)
	}
	return whole
}

// A censor who saw all of a link asks for the same again: at once, and when it is not valid any more. Nothing tells a client's requests from others.
func TestCensorAsksAgain(t *testing.T) {
	args := map[string]string{"site": shippedSite}
	synctest.Test(t, func(t *testing.T) {
		clients := factoryOf(t, cover.Options{Args: args})
		c := &censor{t: t, bridge: factoryOf(t, cover.Options{Args: args})}
		var sessions []*session
		for n := range byte(3) {
			s := startThrough(t, clients, c.bridge, n, c.watch())
			s.client.Send(noise(10_000))
			s.server.Send(noise(200_000))
			sessions = append(sessions, s)
		}
		for _, s := range sessions {
			if !s.client.Await(s.ctx, 200_000) || !s.server.Await(s.ctx, 10_000) {
				t.Error("not all arrived")
			}
		}
		for _, s := range sessions {
			s.stop(t)
		}
		synctest.Wait()
		c.unique()
		c.everybodys("at once", c.ask)
		counts := map[string]int{}
		for _, s := range c.saw {
			again := c.ask(s.request)
			c.same("at once", s, s.answer, again, s.tokens)
			if s.tokens {
				counts["tokens"]++
			}
			counts[s.it.Method]++
			counts[s.it.Type]++
		}
		time.Sleep(validity + time.Minute)
		c.everybodys("later", c.ask)
		for _, s := range c.saw {
			again, other := c.ask(s.request), c.ask(c.anew(s))
			c.same("later, beside what was seen", s, s.answer, again, false)
			c.same("later, beside another visitor", s, other, again, false)
			if s.tokens {
				c.same("and once more", s, again, c.ask(s.request), true)
			}
		}
		if c.from < 3 || counts["tokens"] < 20 || counts["POST"] < 10 || counts["GET"] < 10 || counts["image/png"] < 2 {
			t.Errorf("a session of %d connections has %v", c.from, counts)
		}
	})
}
