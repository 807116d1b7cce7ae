package web

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"heddle/disguise/carrier"
	"heddle/disguise/cover"
)

// shippedSite is the site that comes with Heddle.
const shippedSite = "../../../dist/site-docs.db"

func shippedFactory(t *testing.T) *factory {
	t.Helper()
	return factoryOf(t, cover.Options{Args: map[string]string{"site": shippedSite}})
}

// gallery is a view of the page with all pictures, of which nothing but the document was loaded.
func gallery(t *testing.T, f *factory) *view {
	t.Helper()
	for i := range f.pages {
		if p := &f.pages[i]; f.items[p.document].URL == "/pictures" {
			v := f.visit.enter("")
			v.show(p)
			return v
		}
	}
	t.Fatal("there is no page with pictures")
	return nil
}

// A connection takes the picture that brings what waits at the least cost, and nothing that is not worth a round trip.
func TestTakesWhatFits(t *testing.T) {
	f := shippedFactory(t)
	p := gallery(t, f)
	for _, want := range []int{1, 60_000, 100_000, 10_000_000} {
		i, _ := f.visit.fitting(p, want)
		if i < 0 {
			t.Fatalf("nothing for %d bytes", want)
		}
		price := func(it *item) float64 {
			return float64(pictureSize(t, it)) / float64(min(it.carries(), max(want, leastBulk)))
		}
		got := f.items[p.rest[i].number]
		for _, l := range p.rest {
			if other := f.items[l.number]; slices.Contains(l.of.bulk, l.load) && price(got) > 1.05*price(other) {
				t.Errorf("for %d bytes it takes %.30s, of %.2f bytes for each, and %.30s has %.2f", want, got.URL, price(got), other.URL, price(other))
			}
		}
	}
	var left []part
	for _, l := range p.rest {
		if f.items[l.number].Type != "image/png" {
			left = append(left, l)
		}
	}
	p.rest = left
	if i, _ := f.visit.fitting(p, 100_000); len(left) == 0 || i >= 0 {
		t.Errorf("JSON is taken for much: %d loads", len(left))
	}
}

// Over a long link small pictures cost a connection more than another page does.
func TestLeavesSmallPictures(t *testing.T) {
	for _, c := range []struct {
		lag  time.Duration
		rate int
		worn bool
	}{{85 * time.Millisecond, 400_000, false}, {450 * time.Millisecond, 1_000_000, true}} {
		v, _, _ := arriving(t, c.rate, c.lag)
		for range 5 {
			v.views = append(v.views, v.views[0])
		}
		p := v.views[0]
		if _, worn := v.fitting(p, 1<<20); worn {
			t.Errorf("a page with all pictures is worn at %v", c.lag)
		}
		p.rest = slices.DeleteFunc(p.rest, func(l part) bool { return v.items[l.number].carries() > 60_000 })
		if i, worn := v.fitting(p, 1<<20); i < 0 || worn != c.worn {
			t.Errorf("a page with small pictures at %v: load %d, worn %v", c.lag, i, worn)
		}
	}
}

// pictureSize is the size of a picture with all that it hides.
func pictureSize(t *testing.T, it *item) int {
	t.Helper()
	hidden, err := it.answer.Embed(it.Body, noise(it.down))
	if err != nil {
		t.Fatal(err)
	}
	return len(hidden)
}

// The client chooses the script's request that fits what goes up and what comes down.
func TestLiveFits(t *testing.T) {
	f := shippedFactory(t)
	p := gallery(t, f)
	for _, c := range []struct {
		up, want int
		method   string
	}{{57, 0, "GET"}, {600, 0, "POST"}, {57, 500, "POST"}, {0, 500, "GET"}} {
		it := f.visit.live(p.page, c.up, c.want)
		if it.Method != c.method || it.up() < c.up || it.carries() < c.want {
			t.Errorf("for %d bytes up and %d down it is %s %.20s with %d and %d", c.up, c.want, it.Method, it.URL, it.up(), it.carries())
		}
	}
}

// A client asks again before an answer is there, since that one may have left too early, but not a third time. An answer to it carries a cell of Tor.
func TestAsksTwice(t *testing.T) {
	v := shippedFactory(t).visit
	p := gallery(t, &factory{catalogue: v.catalogue, visit: v})
	later := time.Now()
	for n := range mostPolled + 1 {
		later = later.Add(time.Hour)
		f, _, pause, err := v.next(p, nothing{}, later)
		if err != nil || (f != nil) != (n < mostPolled) || f != nil && f.carries() < pollRoom || f == nil && !pause.untimed {
			t.Errorf("time %d: %+v, %+v, %v", n, f, pause, err)
		}
	}
}

// filled returns an answer with a picture for a client, and the client's end.
func filled(t *testing.T, f *factory, server *veiled) (*item, *hiding, *tab) {
	t.Helper()
	it := f.items[gallery(t, f).page.bulk[0].number]
	hidden, tab := answered(t, f, server, it)
	return it, hidden, tab
}

// answered is what a client's answer hides, and the end of the connection at the client.
func answered(t *testing.T, f *factory, server *veiled, it *item) (*hiding, *tab) {
	t.Helper()
	client, parameters, err := f.Client()
	if err != nil {
		t.Fatal(err)
	}
	end, err := f.Server(parameters)
	if err != nil {
		t.Fatal(err)
	}
	v := &visitor{factory: f}
	v.begin()
	v.welcome(server, end.(*guest))
	tab := client.(*tab)
	tab.feed = newVeiled(1, 2)
	return v.hide(it, requestKey{}, true).(*hiding), tab
}

// The client takes what a picture hides while the picture arrives, and knows from its head what the bridge holds.
func TestTakesPicturesEarly(t *testing.T) {
	f, server := shippedFactory(t), newVeiled(2, 1)
	server.Send(noise(2_000_000))
	it, hidden, tab := filled(t, f, server)
	var body bytes.Buffer
	if err := carrier.Write(&body, it.answer, it.Body, hidden); err != nil {
		t.Fatal(err)
	}
	half := carrier.Reader(it.answer, it.Body, io.MultiReader(io.LimitReader(&body, int64(body.Len()/2)), iotest.ErrReader(io.ErrUnexpectedEOF)))
	one := &flight{item: it}
	f.visit.leaves(one, true, time.Now())
	if err := tab.takeBody(one, half); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half of a picture: %v", err)
	}
	got := tab.feed.(*veiled).Received()
	if len(got) < it.carries()/3 || !bytes.HasPrefix(noise(2_000_000), got) {
		t.Errorf("half of a picture brings %d bytes of %d", len(got), it.carries())
	}
	if held := f.visit.held; held < 2_000_000-2*mostPart || held > 2_001_000 {
		t.Errorf("the bridge holds %d bytes", held)
	}
	if asked := f.visit.asked(); asked < it.carries()-len(got)-2*hiddenPart || asked > it.carries()-len(got) || f.visit.rate(time.Now()) == 0 {
		t.Errorf("%d bytes of %d arrived, %d are yet to come, at a rate of %f", len(got), it.carries(), asked, f.visit.rate(time.Now()))
	}
}

// An answer that is on its way carries what comes to the bridge meanwhile.
func TestHidesLate(t *testing.T) {
	f, server := shippedFactory(t), newVeiled(2, 1)
	it, hidden, tab := filled(t, f, server)
	begin := make([]byte, hiddenPart)
	if _, err := io.ReadFull(hidden, begin); err != nil {
		t.Fatal(err)
	}
	server.Send(noise(10_000))
	rest, err := io.ReadAll(hidden)
	if err != nil || len(begin)+len(rest) != it.down {
		t.Fatalf("%d bytes, %v", len(rest), err)
	}
	if err := tab.feed.Take(append(begin, rest...)[headSize:]); err != nil {
		t.Fatal(err)
	}
	if got := tab.feed.(*veiled).Received(); !bytes.Equal(got, noise(10_000)) {
		t.Errorf("%d bytes arrived", len(got))
	}
}

// An answer waits for more to carry. An answer to a stranger waits too, wherever its place is.
func TestWaitsForMore(t *testing.T) {
	for name, after := range map[string]time.Duration{"something comes": 100 * time.Millisecond, "nothing comes": time.Hour, "a stranger": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, server := shippedFactory(t), newVeiled(2, 1)
				it, hidden, tab := filled(t, f, server)
				if after < 0 {
					hidden = (&visitor{factory: f}).hide(it, requestKey{}, true).(*hiding)
					hidden.pauseAt = 0 // the last place there is
				} else {
					time.AfterFunc(after, func() { server.Send(noise(it.carries() - 2*hiddenPart)) })
				}
				began := time.Now()
				all, err := io.ReadAll(hidden)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < min(after, mostPauses/2) || after < 0 && took < mostPauses/2 || took > mostPauses+lookEvery {
					t.Errorf("it waits %v", took)
				}
				if after < 0 {
					return
				}
				if err := tab.feed.Take(all[headSize:]); err != nil {
					t.Fatal(err)
				}
				if got := len(tab.feed.(*veiled).Received()); (got > it.carries()/2) != (after < mostPauses) {
					t.Errorf("%d bytes of %d are carried", got, it.carries())
				}
			})
		})
	}
}

// A small answer to a script waits until something comes. A stranger's waits for a time that a client's may take.
func TestRepliesWait(t *testing.T) {
	f := shippedFactory(t)
	for _, c := range []struct {
		url  string
		most time.Duration
	}{{"/api/recent", mostPauses}, {"/api/open", mostReply}} {
		it := f.items[slices.IndexFunc(f.items, func(it *item) bool { return it.URL == c.url })]
		for name, after := range map[string]time.Duration{"something comes": 40 * time.Millisecond, "nothing comes": time.Hour} {
			t.Run(c.url+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := newVeiled(2, 1)
					hidden, _ := answered(t, f, server, it)
					time.AfterFunc(after, func() { server.Send([]byte("!")) })
					took := reading(t, hidden)
					if comes := after < c.most; comes && (took < after || took > after+lookEvery) || !comes && (took < c.most/2 || took > c.most+lookEvery) {
						t.Errorf("it waits %v", took)
					}
				})
			})
		}
		synctest.Test(t, func(t *testing.T) {
			least, most := time.Hour, time.Duration(0)
			for range 50 {
				took := reading(t, (&visitor{factory: f}).hide(it, requestKey{}, false))
				least, most = min(least, took), max(most, took)
			}
			if least > c.most/4 || most < c.most/2 || most > c.most {
				t.Errorf("%s: strangers wait from %v to %v", c.url, least, most)
			}
		})
	}
	for _, it := range f.items {
		if it.carries() == 0 && it.pauses() > 0 {
			t.Errorf("the answer to %s %s waits, and carries nothing", it.Method, it.URL)
		}
	}
}

// reading returns how long it takes to read all.
func reading(t *testing.T, r io.Reader) time.Duration {
	t.Helper()
	began := time.Now()
	if _, err := io.ReadAll(r); err != nil {
		t.Error(err)
	}
	return time.Since(began)
}

// taken is a turn in which another answer takes what waits.
type taken struct {
	server *veiled
	again  bool
}

func (t *taken) Wait(int) {
	if !t.again {
		_, _ = t.server.Fill(make([]byte, 2*leastPart)) // there is room
	}
	t.again = true
}

func (t *taken) End() {}

// An answer that another one left nothing to carry waits for more.
func TestWaitsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, server := shippedFactory(t), newVeiled(2, 1)
		it, hidden, tab := filled(t, f, server)
		server.Send(noise(leastPart))
		hidden.turn = &taken{server: server}
		time.AfterFunc(100*time.Millisecond, func() { server.Send(noise(it.carries())) })
		part := make([]byte, hiddenPart)
		if _, err := io.ReadFull(hidden, part); err != nil {
			t.Fatal(err)
		}
		if said, ok := tab.heads.open(it.number, part[:headSize]); !ok || !said.useful {
			t.Errorf("the first part says %+v, %t", said, ok)
		}
	})
}

// The last part of an answer may be small, and is sent when as much waits.
func TestSmallLastPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, hidden, _ := filled(t, shippedFactory(t), newVeiled(2, 1))
		server := hidden.v.feed.(*veiled)
		server.Send(noise(leastPart / 4))
		began := time.Now()
		hidden.left = leastPart / 4
		if all, err := io.ReadAll(hidden); err != nil || len(all) != leastPart/4 || time.Since(began) > 0 {
			t.Errorf("%d bytes after %v, %v", len(all), time.Since(began), err)
		}
	})
}

// A request takes no more from the link than it hides: the rest leaves by other connections.
func TestTakesWhatARequestHides(t *testing.T) {
	it, _, tab := filled(t, shippedFactory(t), newVeiled(2, 1))
	feed := tab.feed.(*veiled)
	feed.Send(noise(3000))
	if _, err := tab.draw(it); err != nil {
		t.Fatal(err)
	}
	if left := feed.Unsent(); left < 3000-it.up() || len(tab.ready) > 0 {
		t.Errorf("a request that hides %d bytes leaves %d, and keeps %d", it.up(), left, len(tab.ready))
	}
}

// The bridge gives the same answer again to a repeated request. It does so too if the first answer was broken off.
func TestAnswerThatBroke(t *testing.T) {
	for name, client := range map[string]bool{"a client": true, "a stranger": false} {
		f := shippedFactory(t)
		it, hidden, _ := filled(t, f, newVeiled(2, 1))
		if !client {
			hidden = (&visitor{factory: f}).hide(it, requestKey{}, true).(*hiding)
		}
		begin := make([]byte, 3*hiddenPart+100)
		if _, err := io.ReadFull(hidden, begin); err != nil {
			t.Fatal(err)
		}
		hidden.Close()
		again, err := io.ReadAll((&visitor{factory: f}).hide(it, requestKey{}, true))
		if err != nil || len(again) != it.down || !bytes.HasPrefix(again, begin) {
			t.Errorf("%s: %d bytes of %d, the same as before: %v, %v", name, len(again), it.down, bytes.HasPrefix(again, begin), err)
		}
	}
}

// A client that cannot read an answer sends what is urgent, such as the end of the link, and nothing more.
func TestSendsWhatIsUrgent(t *testing.T) {
	it, _, tab := filled(t, shippedFactory(t), newVeiled(2, 1))
	one := &flight{item: it}
	if err := tab.takeBlocks(one, bytes.NewReader(make([]byte, 100))); err == nil {
		t.Error("zeros are taken for blocks")
	}
	tab.ready, tab.urgent = []byte("urgent"), len("urgent")
	if err := tab.takeBlocks(one, bytes.NewReader(make([]byte, 100))); err != nil {
		t.Errorf("it ends at once: %v", err)
	}
	if sent, err := tab.draw(it); err != nil || len(sent) != it.up() || !bytes.HasPrefix(sent, []byte("urgent")) {
		t.Errorf("it sends %q, %v", sent, err)
	}
	for tab.urgent > 0 {
		if _, err := tab.draw(it); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tab.draw(it); err == nil {
		t.Error("it sends more")
	}
}

// Nothing is urgent once all useful bytes of a block went out and only its padding is left. Otherwise an idle client would go on to ask for the sake of
// padding, since requests seldom end where blocks do.
func TestPaddingIsNotUrgent(t *testing.T) {
	f := factoryOf(t, cover.Options{})
	at := slices.IndexFunc(f.items, func(it *item) bool { return it.up() > 6 && leastBlock%it.up() != 0 && it.up() < leastBlock })
	client, _, err := f.Client()
	if err != nil || at < 0 {
		t.Fatal(at, err)
	}
	tab := client.(*tab)
	tab.feed, tab.ready, tab.urgent = newVeiled(1, 2), []byte("urgent"), len("urgent")
	if n := tab.waiting(); n != len("urgent") {
		t.Errorf("%d bytes wait before a request", n)
	}
	if _, err := tab.draw(f.items[at]); err != nil || len(tab.ready) == 0 {
		t.Fatal(len(tab.ready), err)
	}
	if n := tab.waiting(); n != 0 {
		t.Errorf("%d bytes of padding wait", n)
	}
}
