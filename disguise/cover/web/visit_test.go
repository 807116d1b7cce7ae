package web

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"heddle/disguise/cover"
	"heddle/disguise/cover/web/webtest"
	"heddle/disguise/site"
)

// An idle link asks seldom, and at no fixed period.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, factoryOf(t, cover.Options{}), factoryOf(t, cover.Options{}))
		time.Sleep(10 * time.Minute)
		s.stop(t)
		if n := len(s.clientConn.Sent()) + len(s.serverConn.Sent()); n > 60_000 || n == 0 {
			t.Errorf("%d bytes in ten minutes: more than 100 a second", n)
		}
		var last time.Duration
		writes := s.clientConn.Writes()
		for i := len(writes) - 4; i < len(writes); i++ {
			if gap := writes[i].At.Sub(writes[i-1].At); gap == last || gap < pollLongest/2 {
				t.Errorf("it asks after %v, and again after %v", last, gap)
			} else {
				last = gap
			}
		}
	})
}

// A connection that has to end does so between two exchanges: nothing is lost.
func TestEndsWhole(t *testing.T) {
	for name, life := range map[string]cover.Life{"bytes": {Bytes: 1_500_000}, "age": {Age: time.Second}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := cover.Options{Life: life, Args: map[string]string{"site": siteFile(t)}}
				s := start(t, factoryOf(t, o), factoryOf(t, cover.Options{}))
				if name == "age" {
					s.serverConn.Stall(50 * time.Millisecond) // else all would be there before
				}
				down := noise(9_000_000)
				s.server.Send(down)
				<-s.ctx.Done()
				s.stop(t)
				got := s.client.Received()
				if len(got) == 0 || len(got)+s.server.Unsent() != len(down) || !bytes.Equal(got, down[:len(got)]) {
					t.Errorf("%d bytes of %d arrived, and %d were not sent", len(got), len(down), s.server.Unsent())
				}
				if life.Bytes > 0 && len(s.serverConn.Sent()) > int(life.Bytes)+2*webtest.Segment {
					t.Errorf("%d bytes of %d", len(s.serverConn.Sent()), life.Bytes)
				}
			})
		})
	}
}

// The client sends what a browser sends: a document before what it loads, no request before the last answer, and cookies as they were set.
func TestABrowser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, factoryOf(t, cover.Options{Args: map[string]string{"site": siteFile(t), "agent": "Another/1.0"}}), factoryOf(t, cover.Options{}))
		s.server.Send(noise(2_000_000))
		s.client.Send(noise(20_000))
		if !s.client.Await(s.ctx, 2_000_000) || !s.server.Await(s.ctx, 20_000) {
			t.Error("not all arrived")
		}
		s.stop(t)
		up, down := bufio.NewReader(bytes.NewReader(s.clientConn.Sent())), bufio.NewReader(bytes.NewReader(s.serverConn.Sent()))
		documents, cookie := map[string]bool{}, ""
		for n := 0; ; n++ {
			r, err := http.ReadRequest(up)
			if errors.Is(err, io.EOF) {
				if n < 12 || len(documents) != 2 {
					t.Errorf("%d requests, documents %v", n, documents)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, r.Body)
			if got := r.Header.Get("Cookie"); got != cookie {
				t.Errorf("the cookies are %q, and %q was set", got, cookie)
			}
			from := strings.TrimPrefix(r.Referer(), "http://www.example")
			if document := r.Header.Get("Upgrade-Insecure-Requests") != ""; document {
				documents[r.RequestURI] = true
			} else if !documents[from] {
				t.Errorf("%s is fetched for %q, before that", r.RequestURI, from)
			}
			if r.UserAgent() != "Another/1.0" || r.Host != "www.example" {
				t.Errorf("it is %q, for %q", r.UserAgent(), r.Host)
			}
			a, err := http.ReadResponse(down, r)
			if err != nil {
				return // the client stopped
			}
			if _, err := io.Copy(io.Discard, a.Body); err != nil {
				return
			}
			if set := a.Cookies(); len(set) > 0 {
				if cookie != "" || len(set) != 1 || len(set[0].Value) != 32 {
					t.Errorf("%q is set again: %v", cookie, set)
				}
				cookie = set[0].Name + "=" + set[0].Value
			}
		}
	})
}

func TestAnotherSite(t *testing.T) {
	other := webtest.Site()
	other.Objects[0].Body = []byte("<!doctype html><title>Another home</title>")
	if err := other.Write(t.TempDir() + "/site.db"); err != nil {
		t.Fatal(err)
	}
	f, err := newFactory(other, cover.Options{}, Number)
	if err != nil {
		t.Fatal(err)
	}
	bridge := factoryOf(t, cover.Options{})
	_, parameters, err := f.Client()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bridge.Server(parameters); !errors.Is(err, ErrOtherSite) {
		t.Error(err)
	}
	for n := range parameters {
		if _, err := bridge.Server(parameters[:n]); err == nil {
			t.Errorf("%d bytes are taken for parameters", n)
		}
	}
	c, _, err := f.Client()
	if err != nil {
		t.Fatal(err)
	}
	tab := c.(*tab) // it gets the bridge's website, and says that it is another one
	tab.feed = newVeiled(1, 2)
	r, err := http.ReadResponse(bufio.NewReader(strings.NewReader("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := tab.answer(&flight{item: f.hiding[lengthKey("POST", "/api/event")][0]}, r); err == nil || !strings.Contains(err.Error(), "another one than the site has") {
		t.Error(err)
	}
}

func TestSitesWithoutRoom(t *testing.T) {
	for what, edit := range map[string]func(*site.Site){
		"no scripts": func(s *site.Site) { s.Pages = []site.Page{{Document: 0, Loads: []site.Load{}, Links: []int{}}} },
		"tokens that the site gave": func(s *site.Site) {
			for i := range s.Objects {
				s.Objects[i].Posted = nil
				s.Objects[0].Body = append(s.Objects[0].Body, `<a href="`+s.Objects[i].URL+`">`...)
			}
		},
		"nothing differs": func(s *site.Site) {
			for i := range s.Objects {
				s.Objects[i].Header = nil
				if s.Objects[i].Method == "POST" {
					s.Objects[i].Body = nil
				}
			}
		},
	} {
		s := webtest.Site()
		edit(s)
		if _, err := newFactory(s, cover.Options{}, Number); err == nil || !strings.Contains(err.Error(), "hides nothing") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := cover.New(Name, cover.Options{}); err == nil || !strings.Contains(err.Error(), "no site") {
		t.Error(err)
	}
}

// An answer is forgotten by its age and by what all of them weigh, and not by whose it was.
func TestAnswers(t *testing.T) {
	a, now := newAnswers(), time.Unix(0, 0)
	a.now = func() time.Time { return now }
	key := func(n byte) requestKey { return keyOf("GET", string(n), nil) }
	seed := [32]byte{1}
	a.keep(key(1), 100, &seed, nil)
	a.keep(key(2), 100, nil, noise(100))
	a.keep(key(2), 100, nil, make([]byte, 100)) // the first counts
	for n, want := range [][]byte{nil, expand(seed, 100), noise(100)} {
		if got, found := a.find(key(byte(n)), 100); found != (n > 0) || !bytes.Equal(got, want) {
			t.Errorf("answer %d: %v, %x", n, found, got)
		}
	}
	if a.weight != 2*(entryCost+100) {
		t.Errorf("a weight of %d", a.weight)
	}
	now = now.Add(validity + 1)
	if _, found := a.find(key(2), 100); found || a.weight != 0 || len(a.of) != 0 {
		t.Errorf("after %v: %v, %d bytes, %d answers", validity, found, a.weight, len(a.of))
	}
	for n := range byte(70) {
		if n%2 == 0 {
			a.keep(key(n), 1<<20, &seed, nil)
		} else {
			a.keep(key(n), 1<<20, nil, make([]byte, 1<<20))
		}
	}
	if a.weight > mostWeight || len(a.of) != 63 || a.of[key(6)] != nil || a.of[key(7)] == nil {
		t.Errorf("%d answers weigh %d", len(a.of), a.weight)
	}
}

// Only the key of the connection opens a head, and only at its place.
func TestHeads(t *testing.T) {
	ours, theirs, other := newHeads(noise(headKey)), newHeads(noise(headKey)), newHeads(make([]byte, headKey))
	for _, said := range []head{{0, false}, {1 << 31, true}, {12345, true}} {
		var b [headSize]byte
		ours.seal(b[:], said)
		if _, ok := other.open(b[:]); ok {
			t.Error("another key opens it")
		}
		if got, ok := theirs.open(b[:]); !ok || got != said {
			t.Errorf("%+v, %v", got, ok)
		}
		if _, ok := theirs.open(b[:]); ok {
			t.Error("it opens at the next place")
		}
		theirs.next--
	}
}

// A page with media is worth its cost for the first object already, and one with JSON is enough for little.
func TestOpensThePageThatCostsLeast(t *testing.T) {
	c, err := newCatalogue(webtest.Site(), false)
	if err != nil {
		t.Fatal(err)
	}
	for want, page := range map[int]string{500: "/", 10_000: "/", 200_000: "/watch", 10_000_000: "/watch"} {
		if got := newVisit(c).open(&view{page: &c.pages[0]}, want); got.URL != page {
			t.Errorf("for %d bytes it opens %s, want %s", want, got.URL, page)
		}
		if got := newVisit(c).open(&view{}, want); got.URL != "/" {
			t.Errorf("a connection begins with %s", got.URL)
		}
	}
}

// A connection begins with a whole page, in the order of the recording, however little waits: filters look at the first packets.
func TestBeginsWithAPage(t *testing.T) {
	args := map[string]string{"site": "../../../dist/site-docs.db"}
	synctest.Test(t, func(t *testing.T) {
		client := factoryOf(t, cover.Options{Args: args})
		s := start(t, client, factoryOf(t, cover.Options{Args: args}))
		s.client.Send(noise(5000))
		time.Sleep(20 * time.Second)
		client.visit.mu.Lock()
		shown := client.visit.views[0].page
		client.visit.mu.Unlock()
		s.stop(t)
		sent := bufio.NewReader(bytes.NewReader(s.clientConn.Sent()))
		for i, number := range append([]int{shown.document}, numbersOf(shown.loads)...) {
			r, err := http.ReadRequest(sent)
			if err != nil {
				t.Fatal(err)
			}
			it := client.items[number]
			if _, err := io.Copy(io.Discard, r.Body); err != nil || r.Method != it.Method || len(r.RequestURI) != len(it.URL) || it.url == 0 && r.RequestURI != it.URL {
				t.Errorf("request %d is %s %s, want %s %s; %v", i, r.Method, r.RequestURI, it.Method, it.URL, err)
			}
		}
	})
}

func numbersOf(loads []load) (all []int) {
	for _, l := range loads {
		all = append(all, l.number)
	}
	return all
}

// Connections show different pages, if several cost about as much.
func TestShowsDifferentPages(t *testing.T) {
	v := factoryOf(t, cover.Options{Args: map[string]string{"site": "../../../dist/site-docs.db"}}).visit
	shown := map[*page]bool{}
	for range 4 {
		p := &view{}
		v.enter(p)
		if it := v.open(p, 500); it.URL == "/pictures" {
			t.Error("a page is loaded whole for a few bytes, with all of its pictures")
		}
		shown[p.page] = true
	}
	if len(shown) != 4 {
		t.Errorf("four connections show %d pages", len(shown))
	}
}

// While a connection opens a page for what waits, others open one only for what it will not fetch.
func TestOnePageForWhatWaits(t *testing.T) {
	for held, both := range map[int]bool{75_000: false, 600_000: true} {
		v := shippedFactory(t).visit
		a, b := &view{page: &v.pages[0]}, &view{page: &v.pages[0]}
		v.enter(a)
		v.enter(b)
		v.held = held
		for _, p := range []*view{a, b} {
			if _, _, _, err := v.next(p, nothing{}, time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
		}
		if !a.opening || b.opening != both {
			t.Errorf("for %d bytes the first one opens %s: %v, and the second one %s: %v", held, v.items[a.page.document].URL, a.opening, v.items[b.page.document].URL, b.opening)
		}
	}
}

// Of an idle link one connection shows a page, and only it asks the bridge whether something waits.
func TestIdleConnectionsOpenNoPages(t *testing.T) {
	v := factoryOf(t, cover.Options{}).visit
	a, b := &view{}, &view{}
	v.enter(a)
	v.enter(b)
	later := time.Now().Add(time.Hour)
	for _, test := range []struct {
		p    *view
		asks bool
	}{{a, true}, {b, false}} {
		f, _, pause, err := v.next(test.p, nothing{}, later)
		if err != nil || (f != nil) != test.asks || pause != nil && !pause.untimed {
			t.Errorf("%+v: %+v, %+v, %v", test, f, pause, err)
		}
		if f != nil {
			v.done(test.p, f)
		}
	}
	v.leave(a)
	if f, _, _, err := v.next(b, nothing{}, later); f == nil || err != nil {
		t.Errorf("the last connection asks for %+v, %v", f, err)
	}
}

// nothing waits to be sent.
type nothing struct{}

func (nothing) waiting() int                  { return 0 }
func (nothing) draw(it *item) ([]byte, error) { return make([]byte, it.up()), nil }
