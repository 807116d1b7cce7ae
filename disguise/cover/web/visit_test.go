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
		documents, cookie, answered, cut := map[string]bool{}, "", 0, false
		for {
			r, err := http.ReadRequest(up)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if cut { // the client stopped while the last answer came
				t.Fatalf("%s is asked for before the last answer was there", r.RequestURI)
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
			if err == nil {
				_, err = io.Copy(io.Discard, a.Body)
			}
			if cut = err != nil; cut {
				continue
			}
			answered++
			if set := a.Cookies(); len(set) > 0 {
				if cookie != "" || len(set) != 1 || len(set[0].Value) != 32 {
					t.Errorf("%q is set again: %v", cookie, set)
				}
				cookie = set[0].Name + "=" + set[0].Value
			}
		}
		if answered < 12 || len(documents) != 2 || cookie == "" {
			t.Errorf("%d requests were answered, documents %v, cookie %q", answered, documents, cookie)
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

// Only the key of the connection opens a head, and only at its place, in an answer with its object.
func TestHeads(t *testing.T) {
	ours, theirs, other := newHeads(noise(headKey)), newHeads(noise(headKey)), newHeads(make([]byte, headKey))
	for _, said := range []head{{0, false}, {1 << 31, true}, {12345, true}} {
		var b [headSize]byte
		ours.seal(7, b[:], said)
		if _, ok := other.open(7, b[:]); ok {
			t.Error("another key opens it")
		}
		if _, ok := theirs.open(8, b[:]); ok {
			t.Error("it opens for another object")
		}
		theirs.next--
		if got, ok := theirs.open(7, b[:]); !ok || got != said {
			t.Errorf("%+v, %v", got, ok)
		}
		if _, ok := theirs.open(7, b[:]); ok {
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
		var next, first flight
		if newVisit(c).open(&view{page: &c.pages[0]}, &next, want); next.URL != page {
			t.Errorf("for %d bytes it opens %s, want %s", want, next.URL, page)
		}
		if newVisit(c).open(&view{}, &first, want); first.URL != "/" {
			t.Errorf("a link begins with %s", first.URL)
		}
	}
}

// A link begins with a whole page, in the order of the recording, however little waits: filters look at the first packets.
func TestBeginsWithAPage(t *testing.T) {
	args := map[string]string{"site": shippedSite}
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

// Connections inside TLS show different pages, if several cost about as much. None is loaded whole for a few bytes, with all its pictures.
func TestShowsDifferentPages(t *testing.T) {
	sealed, _ := sealedPairOf(t, cover.Life{}, shippedSite)
	shown := map[*page]bool{}
	for range 4 {
		p, out := sealed.visit.enter(""), &flight{}
		sealed.visit.open(p, out, 500)
		sealed.visit.done(p, out, false)
		shown[p.page] = true
	}
	if len(shown) != 4 {
		t.Errorf("four connections show %d pages", len(shown))
	}
	var first flight
	plain := shippedFactory(t)
	plain.visit.open(plain.visit.enter(""), &first, 500)
	for p := range shown {
		if whole := sealed.visit.items[p.document].URL; whole == "/pictures" || first.URL == "/pictures" {
			t.Errorf("a few bytes are fetched by %s, and by %s over plain HTTP", whole, first.URL)
		}
	}
}

// Inside TLS, while a connection opens a page for what waits, others open one only for what it will not fetch.
func TestOnePageForWhatWaits(t *testing.T) {
	for held, both := range map[int]bool{75_000: false, 6_000_000: true} {
		sealed, _ := sealedPairOf(t, cover.Life{}, shippedSite)
		v := sealed.visit
		a, b := v.enter(""), v.enter("")
		a.page, b.page = &v.pages[0], &v.pages[0]
		v.held = held
		for _, p := range []*view{a, b} {
			if _, _, _, err := v.next(p, nothing{}, time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
		}
		if a.coming == nil || (b.coming != nil) != both {
			t.Errorf("for %d bytes the first one opens %+v, and the second one %+v", held, a.coming, b.coming)
		}
	}
}

// One connection of an idle link asks the bridge whether something waits. Inside TLS it is the one that shows a page.
func TestIdleConnectionsOpenNoPages(t *testing.T) {
	sealed, _ := sealedPairOf(t, cover.Life{}, siteFile(t))
	for _, v := range []*visit{factoryOf(t, cover.Options{}).visit, sealed.visit} {
		a, b := v.enter(""), v.enter("")
		later := time.Now().Add(time.Hour)
		first, _, _, err := v.next(a, nothing{}, later)
		if err != nil || first == nil || !first.opens {
			t.Fatalf("sealed %v: it begins with %+v, %v", v.sealed, first, err)
		}
		if f, _, pause, err := v.next(b, nothing{}, later); err != nil || f != nil || !pause.untimed {
			t.Errorf("sealed %v: beside the first document it asks for %+v, %+v, %v", v.sealed, f, pause, err)
		}
		v.done(a, first, false)
		v.leave(a)
		if f, _, _, err := v.next(b, nothing{}, later); f == nil || f.opens != v.sealed || err != nil {
			t.Errorf("sealed %v: the last connection asks for %+v, %v", v.sealed, f, err)
		}
	}
}

// Without its document there is no page, and the next connection begins anew.
func TestDocumentThatFails(t *testing.T) {
	v := shippedFactory(t).visit
	p := v.enter("")
	for n := range 2 {
		f, _, _, err := v.next(p, stranger{}, time.Now())
		if err != nil || f == nil || !f.opens || !p.first {
			t.Fatalf("time %d: it begins with %+v, %v", n, f, err)
		}
		if v.done(p, f, true); p.page != nil || p.coming != nil || len(p.rest) > 0 {
			t.Fatalf("without a document it shows %+v", p)
		}
	}
}

// A connection beside others begins with something small that the page loads, and then tells by a POST whose it is.
func TestJoinsAPage(t *testing.T) {
	f := shippedFactory(t)
	p := gallery(t, f)
	f.visit.held, f.visit.poll = 1<<20, time.Now().Add(time.Hour)
	if one, _, _, err := f.visit.next(p, idle{}, time.Now()); one != nil || err != nil {
		t.Errorf("a connection that the bridge does not know fetches %+v, %v", one, err)
	}
	for i, want := range []string{"GET", "POST", "POST"} {
		one, _, _, err := f.visit.next(p, stranger{asked: i}, time.Now())
		if err != nil || one == nil || one.Method != want || one.opens || one.carries() > 5000 || one.from != p.page || f.visit.asked() != 0 {
			t.Errorf("request %d is %+v, %v, for %d bytes", i, one, err, f.visit.asked())
		}
	}
}

// Connections fetch the pictures of one page beside each other, and open the next page before there are too few.
func TestSharesAPage(t *testing.T) {
	f := shippedFactory(t)
	p := gallery(t, f)
	v := f.visit
	for range 3 {
		if v.enter("") != p {
			t.Fatal("a connection has a view of its own")
		}
	}
	other := v.enter("lte")
	if other == p {
		t.Fatal("a connection by another path shows the same page")
	}
	v.leave(other)
	v.held = 100 << 20
	fetched, opened := map[int]bool{}, (*flight)(nil)
	for len(fetched) < len(p.page.bulk) {
		one, _, pause, err := v.next(p, nothing{}, time.Now())
		if err != nil || one == nil {
			t.Fatalf("after %d pictures: %+v, %v", len(fetched), pause, err)
		}
		if one.opens {
			if opened != nil || len(p.page.bulk)-len(fetched) >= len(v.views) {
				t.Errorf("it opens %s after %d pictures, and opened %+v", one.URL, len(fetched), opened)
			}
			opened = one
			continue
		}
		if fetched[one.number] || one.from != p.page {
			t.Errorf("%s is fetched again, or for another page", one.URL)
		}
		fetched[one.number] = true
	}
	if one, _, _, err := v.next(p, nothing{}, time.Now()); one != nil || err != nil {
		t.Errorf("without the document it fetches %+v, %v", one, err)
	}
	up, _, _, err := v.next(p, stranger{asked: 1}, time.Now())
	if err != nil || up == nil || up.from != p.page || opened == nil {
		t.Fatalf("what goes up waits for the document: %+v, %v", up, err)
	}
	if v.done(p, opened, false); len(p.rest) != len(opened.from.loads) {
		t.Errorf("there are %d loads of %d", len(p.rest), len(opened.from.loads))
	}
	if one, _, _, err := v.next(p, nothing{}, time.Now()); err != nil || one == nil || one.from != opened.from {
		t.Errorf("with the document it fetches %+v, %v", one, err)
	}
	for range 3 {
		p.show(opened.from)
	}
	if bulk := len(opened.from.bulk); len(p.rest) != len(opened.from.loads)+bulk {
		t.Errorf("after four pages there are %d loads, want those of one, and %d of the page before it", len(p.rest), bulk)
	}
}

// nothing is a connection where nothing waits to be sent.
type nothing struct{}

func (nothing) waiting() int                  { return 0 }
func (nothing) draw(it *item) ([]byte, error) { return make([]byte, it.up()), nil }
func (nothing) met() (begun, known bool)      { return true, true }

// stranger is a connection that has a hello to send, after so many requests.
type stranger struct {
	nothing
	asked int
}

// idle is one with nothing to send.
type idle struct{ nothing }

func (idle) met() (begun, known bool) { return true, false }

func (stranger) waiting() int               { return 500 }
func (s stranger) met() (begun, known bool) { return s.asked > 0, false }
