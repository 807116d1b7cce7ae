package bridge

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"heddle/disguise/carrier"
	"heddle/disguise/client"
	"heddle/disguise/cover/web"
	"heddle/disguise/cover/web/webtest"
	"heddle/disguise/handshake"
	"heddle/disguise/link"
	"heddle/disguise/site"
	"heddle/internal/polltest"
	"heddle/internal/tcptest"
)

// ask asks the bridge by the client's connection.
type ask = func([]byte) *webtest.Answer

// attacks are what somebody on the way can do with one POST of a client, beside letting it pass.
var attacks = map[string]struct {
	do           func(t *testing.T, request []byte, ask ask) *webtest.Answer
	grows, stays bool // the stream at the bridge, and its connection in the link
}{
	"nothing": {func(_ *testing.T, request []byte, ask ask) *webtest.Answer { return ask(request) }, true, true},
	"moves the token to another target": {func(t *testing.T, request []byte, ask ask) *webtest.Answer {
		return isSites(t, "/api/other", ask(bytes.Replace(request, []byte("/api/event"), []byte("/api/other"), 1)))
	}, false, false},
	"and gives the answer to the client as that of its target": {func(t *testing.T, request []byte, ask ask) *webtest.Answer {
		a := isSites(t, "/api/other", ask(bytes.Replace(request, []byte("/api/event"), []byte("/api/other"), 1)))
		a.Content = bytes.Replace(a.Content, []byte(`"other":`), []byte(`"next":`), 1)
		return isSites(t, "/api/event", a)
	}, false, false},
	"changes the target": {func(t *testing.T, request []byte, ask ask) *webtest.Answer {
		a := ask(bytes.Replace(request, []byte("POST /api/event"), []byte("GET /no/such/a"), 1))
		if a.StatusCode != 404 || !bytes.Contains(a.Content, []byte("Not here")) {
			t.Errorf("the wrong target is answered with %s %q", a.Status, a.Content)
		}
		return a
	}, false, true},
	"changes a byte of the request": {func(t *testing.T, request []byte, ask ask) *webtest.Answer {
		return isSites(t, "/api/event", ask(changed(request, `"data":"`)))
	}, false, false},
	"changes a byte of the answer": {func(t *testing.T, request []byte, ask ask) *webtest.Answer {
		a := ask(request)
		a.Content = changed(a.Content, `"next":"`)
		return isSites(t, "/api/event", a)
	}, true, true},
	"sends the request twice": {func(t *testing.T, request []byte, ask ask) *webtest.Answer {
		first, second := ask(request), ask(request)
		if !bytes.Equal(first.Content, second.Content) || !sameHeaders(first, second) {
			t.Errorf("a request is answered with %v %q, and again with %v %q", first.Header, first.Content, second.Header, second.Content)
		}
		return second
	}, true, false},
}

// withTwoPosts is the site of the tests with another target that takes what /api/event does.
func withTwoPosts() *site.Site {
	s := webtest.Site()
	i := slices.IndexFunc(s.Objects, func(o site.Object) bool { return o.URL == "/api/event" })
	other := s.Objects[i]
	other.URL, other.Body = "/api/other", bytes.Replace(other.Body, []byte(`"next":`), []byte(`"other":`), 1)
	other.Size = int64(len(other.Body))
	s.Objects = append(s.Objects, other)
	return s
}

// changed replaces a character of the token behind a mark by another one of its alphabet.
func changed(b []byte, mark string) []byte {
	b = bytes.Clone(b)
	at := bytes.Index(b, []byte(mark)) + len(mark) + 100
	b[at] = map[bool]byte{true: 'B', false: 'A'}[b[at] == 'A']
	return b
}

// isSites expects the answer that any visitor gets to a POST.
func isSites(t *testing.T, url string, a *webtest.Answer) *webtest.Answer {
	t.Helper()
	objects := withTwoPosts().Objects
	o := objects[slices.IndexFunc(objects, func(o site.Object) bool { return o.URL == url })]
	if a == nil {
		t.Fatal(url, "is not answered")
	}
	if hidden, err := carrier.For(o.Type).Extract(o.Body, a.Content); err != nil || len(hidden) == 0 || a.StatusCode != 200 {
		t.Errorf("%s is answered with %s %q: %v", url, a.Status, a.Content, err)
	}
	return a
}

// sameHeaders compares headers without the time.
func sameHeaders(a, b *webtest.Answer) bool {
	text := func(h http.Header) string {
		h = h.Clone()
		h.Del("Date")
		return fmt.Sprint(h)
	}
	return text(a.Header) == text(b.Header)
}

// startAttacked writes the site, and starts a bridge with it.
func startAttacked(t *testing.T) (*setup, client.Options) {
	file := filepath.Join(t.TempDir(), "site.db")
	if err := withTwoPosts().Write(file); err != nil {
		t.Fatal(err)
	}
	s, o := startSite(t, web.Name, file, func(o *Options) { o.Target = to(tcptest.Serve(t, tcptest.Echo)) })
	o.Connections = 1
	return s, o
}

// between lets what comes from a client pass attack on its way to the bridge. It returns the address for the client.
func (s *setup) between(attack func(request []byte, ask ask) *webtest.Answer) netip.AddrPort {
	return tcptest.Serve(s.t, func(c *net.TCPConn) {
		far, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(s.at))
		if err != nil {
			return
		}
		defer far.Close()
		webtest.Middle(c, far, attack)
	})
}

// only returns what the one link of the bridge carried.
func (s *setup) only() (out link.Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.links {
		out = e.link.Stats()
	}
	return out
}

// Whatever somebody on the way does with a request or an answer, nothing that was moved or changed is accepted, what comes back is what a visitor of
// the site gets, and the link goes on by another connection, with nothing lost.
func TestAttacksOnTheWay(t *testing.T) {
	t.Parallel()
	for what, c := range attacks {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, o := startAttacked(t)
			var attacked atomic.Bool
			o.Line.Address = s.between(func(request []byte, ask ask) *webtest.Answer {
				before := s.only()
				if !bytes.HasPrefix(request, []byte("POST /api/event ")) || before.Received == 0 || attacked.Swap(true) {
					return ask(request)
				}
				got := c.do(t, request, ask)
				after := s.only()
				if (after.Received > before.Received) != c.grows || (len(after.Conns) == 1) != c.stays {
					t.Errorf("%d bytes had arrived, and then %d, and the link has %d connections", before.Received, after.Received, len(after.Conns))
				}
				if page := ask([]byte("GET /about HTTP/1.1\r\nHost: www.example\r\n\r\n")); page == nil || !bytes.Contains(page.Content, []byte("never changes")) {
					t.Errorf("a visitor gets %+v after it", page)
				}
				return got
			})
			l := opened(t, o)
			exchange(t, l, 50_000)
			<-l.Done()
			if !attacked.Load() {
				t.Error("nothing was attacked")
			}
		})
	}
}

// A hello that begins at another target is none.
func TestMovedHello(t *testing.T) {
	t.Parallel()
	for _, moves := range []bool{true, false} {
		s, o := startAttacked(t)
		ctx, cancel := context.WithTimeout(t.Context(), polltest.Patience)
		var posted atomic.Bool
		o.Line.Address = s.between(func(request []byte, ask ask) *webtest.Answer {
			switch first := []byte("GET /api/state?request="); {
			case moves && bytes.HasPrefix(request, first):
				if a := ask(bytes.Replace(request, first, []byte("GET /api/feed?request="), 1)); a == nil || a.StatusCode != 200 {
					t.Errorf("the moved request is answered with %+v", a)
				}
				return ask([]byte("GET /api/state HTTP/1.1\r\nHost: www.example\r\n\r\n"))
			case bytes.HasPrefix(request, []byte("POST ")):
				isSites(t, "/api/event", ask(request))
				if st := s.Status(); (st.Refused[handshake.NoHello] > 0) != moves || st.LinksEver > 0 && moves {
					t.Errorf("moved %v: %+v", moves, st)
				}
				posted.Store(true)
				cancel()
				return nil
			}
			return ask(request)
		})
		if c, err := client.Dial(ctx, o); err == nil {
			c.Close()
		}
		if !posted.Load() {
			t.Error("the client said no hello")
		}
	}
}
