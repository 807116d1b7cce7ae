package site

import (
	"slices"
	"testing"
)

// An import makes one object of targets that differ in tokens of a script. It leaves targets apart whose tokens the site gave: they are other files.
func TestMerge(t *testing.T) {
	const (
		one     = "?request=9fK3xQ0pLm2_ZtY8wVbN-cR5sGhJ1aDe"
		another = "?request=Qw7eRt_1yUiOp-2aSdFgHjKlZx3cVbNm"
		odd     = "?request=AAAAAAAAAAAAAAAAAAA-AAAAAAAAAAAA"
		named   = "/a-picture-with-a-long-name.png"
		hashed  = "/static/0f1e2d3c4b5a69788796a5b4c3d2e1f0.js"
		other   = "/static/f0e1d2c3b4a5968778695a4b3c2d1e0f.js"
	)
	object := func(url, kind, body string) Object {
		return Object{Method: "GET", URL: url, Status: 200, Type: kind, Body: []byte(body)}
	}
	s := &Site{Objects: []Object{
		object("/", "text/html", `<img data-src="`+named+`"><script src="`+hashed+`"></script><script src="`+other+`"></script>`),
		object(named+odd, "image/png", "no token by itself"), object(named+one, "image/png", "first"), object(named+another, "image/png", "second"),
		object(hashed, "text/javascript", "1"), object(other, "text/javascript", "2"),
		object("/same"+one, "application/json", "{}"), object("/same"+another, "application/json", "{}"),
	}, Pages: []Page{{Document: 0, Loads: []Load{{2, 5}, {4, 6}, {6, 7}}}, {Document: 0, Loads: []Load{{3, 5}, {5, 6}, {7, 7}, {1, 8}}}}}
	s.merge()
	var urls []string
	for _, o := range s.Objects {
		urls = append(urls, o.URL)
		if o.Varies != (o.URL == named+one) {
			t.Errorf("%s varies: %v", o.URL, o.Varies)
		}
	}
	if want := []string{"/", named + one, hashed, other, "/same" + one}; !slices.Equal(urls, want) {
		t.Errorf("the objects are %q, want %q", urls, want)
	}
	if a, b := s.Pages[0].Loads, s.Pages[1].Loads; !slices.Equal(a, []Load{{1, 5}, {2, 6}, {4, 7}}) || !slices.Equal(b, []Load{{1, 5}, {3, 6}, {4, 7}, {1, 8}}) {
		t.Errorf("the pages load %v and %v", a, b)
	}
	if given := s.Given(); !given.In(hashed) || given.In(named+one) {
		t.Errorf("given are %v", given)
	}
}
