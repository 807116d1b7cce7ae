package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"heddle/disguise/cover"
	"heddle/disguise/cover/covertest"
	"heddle/disguise/cover/web/browser"
	"heddle/disguise/cover/web/webtest"
	"heddle/disguise/handshake"
	"heddle/disguise/site"
	"heddle/lab/peer"
)

// certified are settings of a bridge with the site of the tests and a certificate for a name, without a pin.
func certified(t testing.TB, name string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	args := map[string]string{"site": siteFile(t), "certificate": filepath.Join(dir, "certificate.pem"), "key": filepath.Join(dir, "key.pem")}
	if err := peer.SelfSigned(args["certificate"], args["key"], []string{name}, nil); err != nil {
		t.Fatal(err)
	}
	return args
}

// sealedPair are the factories of a client and a bridge inside TLS.
func sealedPair(t testing.TB, life cover.Life) (client, bridge *factory) {
	t.Helper()
	return sealedPairOf(t, life, siteFile(t))
}

func sealedPairOf(t testing.TB, life cover.Life, site string) (client, bridge *factory) {
	t.Helper()
	args := certified(t, "www.example")
	args["site"] = site
	f, err := cover.New(NameTLS, cover.Options{Args: args, Bridge: true})
	if err != nil {
		t.Fatal(err)
	}
	bridge = f.(*factory)
	leaf, err := bridge.tls.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	if f, err = cover.New(NameTLS, cover.Options{Life: life, Args: map[string]string{"site": site, "pin": textOf(browser.PinOf(leaf.Leaf))}}); err != nil {
		t.Fatal(err)
	}
	return f.(*factory), bridge
}

func TestDeliversInsideTLS(t *testing.T) {
	for _, protocol := range []string{"h2", "http/1.1"} {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, bridge := sealedPair(t, cover.Life{})
				bridge.tls.NextProtos = []string{protocol}
				s := start(t, client, bridge)
				defer s.stop(t)
				up, down := noise(100_000), noise(5_000_000)
				s.client.Send(up)
				s.server.Send(down)
				if !s.server.Await(s.ctx, len(up)) || !s.client.Await(s.ctx, len(down)) {
					t.Errorf("%d bytes of %d arrived, and %d of %d", len(s.server.Received()), len(up), len(s.client.Received()), len(down))
				}
				if !bytes.Equal(s.server.Received(), up) || !bytes.Equal(s.client.Received(), down) {
					t.Error("other bytes arrived")
				}
				t.Logf("%d bytes on the wire up for %d, %d down for %d", len(s.clientConn.Sent()), len(up), len(s.serverConn.Sent()), len(down))
			})
		})
	}
}

// records returns when TLS records with application data were sent, and how long they are.
func records(writes []covertest.Write) (at []time.Time, sizes []int) {
	var rest []byte
	for _, w := range writes {
		for rest = append(rest, w.Data...); len(rest) >= 5; {
			n := 5 + int(binary.BigEndian.Uint16(rest[3:]))
			if len(rest) < n {
				break
			}
			if rest[0] == 23 {
				at, sizes = append(at, w.At), append(sizes, n)
			}
			rest = rest[n:]
		}
	}
	return at, sizes
}

// The network sees a visit as it was recorded: requests at the times of the page, none missing, and answers of the sizes that any visitor
// gets of them, whether they carry something or not.
func TestVisitsFollowTheRecording(t *testing.T) {
	for what, waits := range map[string]int{"nothing waits": 0, "little waits": 300, "much waits": 2_900_000} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, bridge := sealedPair(t, cover.Life{})
				s := start(t, client, bridge)
				begun := time.Now()
				if waits > 0 {
					s.server.Send(noise(waits))
				}
				time.Sleep(15 * time.Second)
				client.visit.mu.Lock()
				page := client.visit.views[0].page
				client.visit.mu.Unlock()
				s.stop(t)
				at, sizes := records(s.clientConn.Writes())
				asked := map[time.Duration]int{}
				for i, when := range at {
					if sizes[i] > 150 || i > 0 && sizes[i] > 60 { // not of windows and settings
						asked[when.Sub(begun).Round(time.Millisecond)]++
					}
				}
				if what == "much waits" && client.items[page.document].URL != "/watch" {
					t.Errorf("for %d bytes it visits %s", waits, client.items[page.document].URL)
				}
				missing := 0
				for _, l := range page.loads {
					if asked[l.at] == 0 && !client.items[l.number].media() {
						missing++
					}
				}
				if missing > 0 {
					t.Errorf("%d loads of %d are not asked for at their times: %v", missing, len(page.loads), asked)
				}
			})
		})
	}
}

// An idle link is an idle tab.
func TestIdleInsideTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, bridge := sealedPair(t, cover.Life{})
		s := start(t, client, bridge)
		time.Sleep(time.Minute) // a page is loaded
		before := len(s.clientConn.Sent()) + len(s.serverConn.Sent())
		time.Sleep(10 * time.Minute)
		s.stop(t)
		if n := len(s.clientConn.Sent()) + len(s.serverConn.Sent()) - before; n > 60_000 || n == 0 {
			t.Errorf("%d bytes in ten minutes: more than 100 a second", n)
		}
	})
}

func TestEndsWholeInsideTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, bridge := sealedPair(t, cover.Life{Bytes: 1_500_000})
		s := start(t, client, bridge)
		down := noise(9_000_000)
		s.server.Send(down)
		<-s.ctx.Done()
		s.stop(t)
		got := s.client.Received()
		if len(got) == 0 || len(got)+s.server.Unsent() != len(down) || !bytes.Equal(got, down[:len(got)]) {
			t.Errorf("%d bytes of %d arrived, and %d were not sent", len(got), len(down), s.server.Unsent())
		}
	})
}

// Strangers get the site by HTTP/2 and by HTTP/1.1, whatever cookies they have.
func TestAWebsiteInsideTLS(t *testing.T) {
	_, bridge := sealedPair(t, cover.Life{})
	at := website(t, bridge)
	about := string(bridge.exact["GET /about"].Body)
	for _, http2 := range []bool{true, false} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: http2}
		if !http2 {
			transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
		}
		defer transport.CloseIdleConnections()
		for _, cookie := range []string{"", "a=b", hiddenCookie + "=x", hiddenCookie + "=" + strings.Repeat("A", 300)} {
			r, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+at+"/about", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Cookie", cookie)
			answer, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			if err != nil || string(body) != about || (answer.ProtoMajor == 2) != http2 {
				t.Errorf("%s with the cookie %q: %q, %v", answer.Proto, cookie, body, err)
			}
		}
	}
}

func TestCurlInsideTLS(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("typed skip: no curl: apt-get install curl")
	}
	_, bridge := sealedPair(t, cover.Life{})
	host, port, err := net.SplitHostPort(website(t, bridge))
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"--http2", "--http1.1"} {
		out, err := exec.CommandContext(t.Context(), curl, "-sSk", version, "--compressed", "--max-time", "60", "-w", "%{http_version}",
			"--resolve", "www.example:"+port+":"+host, "https://www.example:"+port+"/style.css").Output()
		want := string(bridge.exact["GET /style.css"].Body) + map[string]string{"--http2": "2", "--http1.1": "1.1"}[version]
		if err != nil || string(out) != want {
			t.Errorf("%s: %v: %q", version, err, out)
		}
	}
}

// A client says what is wrong with the bridge that it reaches.
func TestClientsRefuseOthers(t *testing.T) {
	client, bridge := sealedPair(t, cover.Life{})
	_, other := sealedPair(t, cover.Life{})
	unpinned := *client
	unpinned.secure = &secure{hello: client.hello, server: browser.Server{Name: "www.example"}}
	oldTLS := *bridge
	oldTLS.secure = &secure{tls: bridge.tls.Clone()}
	oldTLS.tls.MaxVersion = tls.VersionTLS12
	elsewhere := webtest.Site()
	for i := range elsewhere.Objects {
		elsewhere.Objects[i].Body = bytes.Replace(elsewhere.Objects[i].Body, []byte("Home"), []byte("Elsewhere"), 1)
	}
	another, err := newFactory(elsewhere, cover.Options{}, NumberTLS)
	if err != nil {
		t.Fatal(err)
	}
	another.secure = &secure{tls: bridge.tls}
	for what, c := range map[string]struct {
		client, bridge *factory
		why            string
	}{
		"another key":  {client, other, "another key"},
		"no authority": {&unpinned, bridge, "unknown authority"},
		"old TLS":      {client, &oldTLS, "no TLS 1.3"},
		"another site": {client, another, "another one than the site has"},
	} {
		t.Run(what, func(t *testing.T) {
			conn, err := net.Dial("tcp", website(t, c.bridge))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			tab, _, err := c.client.Client()
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := tab.Carry(ctx, conn, newVeiled(1, 2)); err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%v, want %q", err, c.why)
			}
		})
	}
}

func TestCertificatesOfABridge(t *testing.T) {
	good, elsewhere := certified(t, "www.example"), certified(t, "elsewhere.example")
	with := func(args map[string]string, more ...string) map[string]string {
		out := map[string]string{}
		for k, v := range args {
			out[k] = v
		}
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	for what, c := range map[string]struct {
		args map[string]string
		why  string
	}{
		"none":                  {map[string]string{"site": good["site"]}, "no certificate"},
		"no key":                {map[string]string{"site": good["site"], "certificate": good["certificate"]}, "no certificate"},
		"of another name":       {elsewhere, "elsewhere.example"},
		"with another pin":      {with(good, "pin", strings.Repeat("A", 43)), "another key"},
		"with a pin of no form": {with(good, "pin", "x"), "no pin"},
		"with an odd hello":     {with(good, "hello", "nowhere"), "cannot be read"},
	} {
		if _, err := cover.New(NameTLS, cover.Options{Args: c.args, Bridge: true}); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want %q", what, err, c.why)
		}
	}
	synctest.Test(t, func(t *testing.T) { // whose clock begins in 2000
		args := certified(t, "www.example")
		time.Sleep(25 * time.Hour)
		if _, err := cover.New(NameTLS, cover.Options{Args: args, Bridge: true}); err == nil || !strings.Contains(err.Error(), "expired on 2000-01-0") {
			t.Errorf("expired: %v", err)
		}
	})
}

// All of a page but media is loaded, at its times, whether something waits or not. Media go on when much waits.
func TestSchedule(t *testing.T) {
	c, err := newCatalogue(webtest.Site(), true)
	if err != nil {
		t.Fatal(err)
	}
	v, p := newVisit(c), &view{}
	var opens flight
	if v.open(p, &opens, 10_000_000); opens.URL != "/watch" {
		t.Fatalf("it opens %s", opens.URL)
	}
	v.done(p, &opens, false)
	loaded := func(want int) (objects, media int) {
		for {
			next, at := v.scheduled(p, want)
			if next < 0 {
				return objects, media
			}
			if l := p.rest[next]; at != p.opened.Add(l.at) {
				t.Errorf("%s is due at %v, want %v", c.items[l.number].URL, at.Sub(p.opened), l.at)
			} else if c.items[l.number].media() {
				media++
			} else {
				objects++
			}
			p.rest = slices.Delete(p.rest, next, next+1)
		}
	}
	if objects, media := loaded(100); objects != 5 || media != 0 {
		t.Errorf("%d objects and %d media for little", objects, media)
	}
	if objects, media := loaded(leastBulk); objects != 0 || media != webtest.Segments {
		t.Errorf("%d objects and %d media for much", objects, media)
	}
}

// Any page with an object of some size will do, whether scripts fetch something or not.
func TestSitesInsideTLS(t *testing.T) {
	only := func(objects ...site.Object) *site.Site {
		s := &site.Site{Origin: "https://www.example:8443", Objects: objects, Pages: []site.Page{{Document: 0, Loads: []site.Load{}, Links: []int{}}}}
		for i := range objects {
			objects[i].Status, objects[i].Method, objects[i].Size = 200, cmp.Or(objects[i].Method, "GET"), int64(len(objects[i].Body))
			if i > 0 {
				s.Pages[0].Loads = append(s.Pages[0].Loads, site.Load{Object: i})
			}
		}
		return s
	}
	large := bytes.Repeat([]byte("a"), 2000)
	for what, c := range map[string]struct {
		site *site.Site
		live int
	}{
		"a document":                      {only(site.Object{URL: "/", Type: "text/html", Body: large}), 1},
		"and a picture":                   {only(site.Object{URL: "/", Type: "text/html", Body: large}, site.Object{URL: "/a.png", Type: "image/png", Body: large}), 2},
		"and scripts":                     {only(site.Object{URL: "/", Type: "text/html", Body: large}, site.Object{URL: "/a", Method: "POST", Type: "text/plain", Body: large}), 1},
		"and scripts that get too little": {only(site.Object{URL: "/", Type: "text/html", Body: large}, site.Object{URL: "/a", Method: "POST", Type: "text/plain", Body: []byte("ok")}), 2},
		"little, and media":               {only(site.Object{URL: "/", Type: "text/html", Body: []byte("ok")}, site.Object{URL: "/a", Type: "video/mp4", Body: large}), 0},
		"little":                          {only(site.Object{URL: "/", Type: "text/html", Body: []byte("ok")}), 0},
	} {
		f, err := newFactory(c.site, cover.Options{}, NumberTLS)
		if (err == nil) != (c.live > 0) || err != nil && !strings.Contains(err.Error(), "hides nothing") {
			t.Errorf("%s: %v", what, err)
		} else if err == nil && len(f.pages[0].live) != c.live {
			t.Errorf("%s: %d objects are fetched again, want %d", what, len(f.pages[0].live), c.live)
		}
	}
}

func TestOrder(t *testing.T) {
	o := order{most: mostUnits}
	var got []byte
	take := func(b []byte) error { got = append(got, b...); return nil }
	for _, n := range []byte{2, 0, 3, 1, 4} {
		if err := o.put(uint32(n), []byte{n}, take); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, []byte{0, 1, 2, 3, 4}) || o.held != 0 || len(o.early) != 0 {
		t.Errorf("%v, %+v", got, o)
	}
	if o.put(4, []byte{1}, take) == nil || o.put(6, []byte{1}, take) != nil || o.put(6, []byte{1}, take) == nil {
		t.Error("a part came twice")
	}
	if o.put(7, make([]byte, mostUnits), take) == nil {
		t.Error("too much waits")
	}
	if err := o.put(5, nil, take); err != nil {
		t.Error(err)
	}
	broken := errors.New("broken")
	if err := o.put(o.next, []byte{1}, func([]byte) error { return broken }); err != broken {
		t.Error(err)
	}
}

// watched is a body that notes whether it was read to its end.
type watched struct {
	io.Reader
	ended bool
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Reader.Read(b)
	w.ended = w.ended || err == io.EOF
	return n, err
}

func (w *watched) Close() error { return nil }

// careless takes whatever comes.
type careless struct{ *veiled }

func (careless) Take([]byte) error { return nil }

// A bridge gives up a client that breaks an answer off, and a client does that if it closes the stream too early.
func TestAnswersAreReadToTheirEnd(t *testing.T) {
	client, _ := sealedPair(t, cover.Life{})
	number := slices.IndexFunc(client.items, func(it *item) bool { return it.carries() > 0 })
	for _, test := range []struct {
		behind  int // bytes behind the last part
		missing int
		fails   bool
	}{{}, {behind: 3}, {behind: 3, missing: 1, fails: true}, {behind: 3, missing: -1, fails: true}} {
		n := markSize + partSize + test.behind
		body := &watched{Reader: bytes.NewReader(make([]byte, n-test.missing))}
		on := *client
		on.visit = newVisit(client.catalogue)
		tab := &tab{factory: &on, view: &view{}, feed: careless{newVeiled(1, 2)}, parts: order{most: mostEarly}}
		it := &flight{item: client.items[number]}
		ours, err := tab.takeParts(it, &http.Response{StatusCode: it.Status, ContentLength: int64(n), Body: body})
		if !ours || (err != nil) != test.fails || !test.fails && !body.ended {
			t.Errorf("%+v: %t, %v, ended %t", test, ours, err, body.ended)
		}
	}
}

// FuzzParts gives a client what a hostile bridge makes of a body.
func FuzzParts(f *testing.F) {
	client, _ := sealedPair(f, cover.Life{})
	mark := string(make([]byte, markSize))
	f.Add(mark+string(make([]byte, 200)), 0)
	f.Add(mark+"\x00\x00\x00\x00\x80\x00\x00\x05"+strings.Repeat("x", 3*partSize), 20)
	f.Add("", 1)
	f.Fuzz(func(t *testing.T, body string, number int) {
		if number < 0 || number >= len(client.items) {
			return
		}
		v := newVisit(client.catalogue)
		on := *client
		on.visit = v
		tab := &tab{factory: &on, view: &view{}, feed: newVeiled(1, 2), parts: order{most: mostEarly}}
		it := &flight{item: client.items[number]}
		v.leaves(it, true, time.Now())
		r := &http.Response{StatusCode: 200, Header: http.Header{}, ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body))}
		ours, _ := tab.takeParts(it, r)
		if ours && !strings.HasPrefix(body, mark) {
			t.Error("a body without the mark is taken")
		}
		if v.done(tab.view, it, false); v.asked() != 0 || len(v.going) != 0 || it.arrived > it.carries() {
			t.Errorf("%d bytes are asked for, and %d arrived", v.asked(), it.arrived)
		}
	})
}

// FuzzUnit gives a bridge what a stranger or a hostile client sends as a unit.
func FuzzUnit(f *testing.F) {
	_, bridge := sealedPair(f, cover.Life{})
	f.Add([]byte(strings.Repeat("\x00", 100)), "AAAA", true)
	f.Add([]byte(nil), strings.Repeat("A", 300), false)
	f.Fuzz(func(t *testing.T, hidden []byte, cookie string, client bool) {
		v := &visitor{factory: bridge, enter: func([]byte) (cover.Gauge, cover.Cover, error) { return nil, nil, handshake.ErrStranger }}
		if client {
			v.enter, v.feed = nil, newVeiled(2, 1)
		}
		for range 3 {
			r := &http.Request{Header: http.Header{"Cookie": {hiddenCookie + "=" + cookie}}}
			v.receive(nil, slices.Clone(hidden), r)
		}
		if v.feed != nil != (client && !v.stranger) {
			t.Error("a stranger is a client")
		}
	})
}
