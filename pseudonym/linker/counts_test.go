package linker

import (
	"net/http"
	"testing"
)

func TestCounts(t *testing.T) {
	s := newStreet(t)
	alice := s.person(news, shop)
	s.follow(alice.link(news, "https://shop.example/"), alice.browser, nil)
	s.follow(alice.link(news, "https://bank.example/"), alice.browser, nil)
	s.follow(alice.link(news, "https://elsewhere.example/"), alice.browser, nil)
	s.follow(alice.link(news, "https://shop.example/"), alice.browser, func(r *http.Request) { r.Header.Set("Sec-Fetch-Dest", "image") })
	wrong := alice.link(news, "https://shop.example/")
	wrong.MAC = ""
	s.follow(wrong, nil, nil)
	if got := s.Counts(); got != (Counts{Led: 1, Plain: 1, Asked: 1, None: 2}) {
		t.Errorf("%+v", got)
	}
	s.db.Close()
	s.follow(alice.link(news, "https://shop.example/"), alice.browser, nil)
	if got := s.Counts(); got.Failed != 1 {
		t.Errorf("%+v", got)
	}
}
