package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"

	"heddle/disguise/cover"
)

// A client's answers have the sizes of a stranger's, and differ as much from visit to visit.
func TestSizesAreThoseOfStrangers(t *testing.T) {
	t.Run("text and media", func(t *testing.T) { // a bubble spares the pauses of answers
		synctest.Test(t, func(t *testing.T) { sizesAreThoseOfStrangers(t, siteFile(t), "", 30) })
	})
	t.Run("pictures", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { sizesAreThoseOfStrangers(t, shippedSite, "image/png", 5) })
	})
}

// sizesAreThoseOfStrangers compares the answers of one type, or of all, with those of so many strangers.
func sizesAreThoseOfStrangers(t *testing.T, site, kind string, strangers int) {
	client, bridge := sealedPairOf(t, cover.Life{}, site)
	for _, it := range bridge.items {
		it.WaitMS = 0
	}
	compared := 0
	_, parameters, err := client.Client()
	if err != nil {
		t.Fatal(err)
	}
	shape, err := bridge.Server(parameters)
	if err != nil {
		t.Fatal(err)
	}
	feed := newVeiled(2, 1)
	feed.Send(noise(1 << 20))
	for _, it := range client.items {
		if it.Method != "GET" || it.carries() == 0 || kind != "" && it.Type != kind {
			continue
		}
		compared++
		answer := func(v *visitor) (header http.Header, size int) {
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", it.URL, nil)
			r.Header.Set("Accept-Encoding", "gzip")
			v.begin()
			v.ServeHTTP(w, r)
			return w.Header(), w.Body.Len()
		}
		ours := &visitor{factory: bridge}
		ours.welcome(feed, shape.(*guest))
		a, mine := answer(ours)
		b, theirs := answer(&visitor{factory: bridge, stranger: true})
		least, most := theirs, theirs
		for range strangers {
			_, n := answer(&visitor{factory: bridge, stranger: true})
			least, most = min(least, n), max(most, n)
		}
		spread := most - least
		if it.Encoding == "" && it.Type != "image/png" && spread > 0 {
			t.Errorf("%s has %d to %d bytes without compression", it.URL, least, most)
		}
		slack := spread
		if it.Encoding == "" && spread > 0 {
			slack += most / 1000 // a few pictures do not show how much they differ
		}
		if mine < least-slack || mine > most+slack {
			t.Errorf("%s has %d bytes for a client, and %d to %d for strangers", it.URL, mine, least, most)
		}
		if it.Encoding != "" && it.Fresh() != "" && (spread == 0 || len(slices.Compact(it.sizes())) == 1) {
			t.Errorf("%s always has %d bytes", it.URL, mine)
		}
		for _, h := range []http.Header{a, b} {
			h.Del("Content-Length")
			h.Del("Set-Cookie")
		}
		if fmt.Sprint(a) != fmt.Sprint(b) {
			t.Errorf("%s has the header %v for a client, and %v for a stranger", it.URL, a, b)
		}
	}
	if compared < 5 {
		t.Errorf("%d objects were compared", compared)
	}
}
