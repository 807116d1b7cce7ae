package docsite

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/net/html"
)

// ours is the site of this tree's documentation.
func ours(t *testing.T) *Site {
	t.Helper()
	s, err := New(os.DirFS("../../docs"), 1)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ask returns an answer of the site to a browser.
func ask(t *testing.T, s *Site, method, target string) (*http.Response, []byte) {
	t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	r := w.Result()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, body
}

// document is what a page refers to.
type document struct {
	references []string
	anchors    map[string]bool
}

func read(t *testing.T, body []byte) (d document) {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	d.anchors = map[string]bool{}
	for n := range root.Descendants() {
		for _, a := range n.Attr {
			switch a.Key {
			case "href", "src", "data-src", "action":
				d.references = append(d.references, a.Val)
			case "id":
				d.anchors[a.Val] = true
			}
		}
	}
	return d
}

// Each page is reached from the first one, and each reference leads to what there is: a page, a place in it, or an object. Only links lead
// elsewhere.
func TestEachReferenceResolves(t *testing.T) {
	s := ours(t)
	visit := func(target string) document {
		r, body := ask(t, s, "GET", target)
		if r.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", target, r.Status)
		}
		return read(t, body)
	}
	pages := map[string]document{}
	for todo := []string{"/"}; len(todo) > 0; todo = todo[1:] {
		at := todo[0]
		if _, done := pages[at]; done {
			continue
		}
		pages[at] = visit(at)
		for _, reference := range pages[at].references {
			if u, err := url.Parse(reference); err == nil && slices.Contains(s.Paths(), u.Path) {
				todo = append(todo, u.Path)
			}
		}
	}
	if len(pages) != len(s.Paths()) || len(pages) < 10 {
		t.Errorf("%d pages of %d are reached", len(pages), len(s.Paths()))
	}
	for at, d := range pages {
		for _, reference := range d.references {
			u, err := url.Parse(reference)
			switch {
			case err != nil:
				t.Errorf("%s: %v", at, err)
			case u.Scheme == "https" || u.Scheme == "data":
			case u.Scheme != "" || u.Host != "" || !strings.HasPrefix(u.Path, "/") && u.Path != "":
				t.Errorf("%s refers to %s", at, reference)
			case u.Path == "":
				if !d.anchors[u.Fragment] {
					t.Errorf("%s refers to its place %q, which is not there", at, u.Fragment)
				}
			default:
				to, page := pages[u.Path]
				r, _ := ask(t, s, "GET", u.Path)
				if r.StatusCode != http.StatusOK || u.Fragment != "" && (!page || !to.anchors[u.Fragment]) {
					t.Errorf("%s refers to %s, which is not there", at, reference)
				}
			}
		}
	}
}

// What may differ at each visit does, and nothing else.
func TestVisitsDiffer(t *testing.T) {
	s := ours(t)
	for _, c := range []struct {
		method, target, kind, keep string
		status                     int
		differs                    bool
	}{
		{"GET", "/", "text/html; charset=utf-8", "private, no-cache", 200, true},
		{"GET", "/disguise", "text/html; charset=utf-8", "private, no-cache", 200, true},
		{"GET", "/pictures/report.png", "image/png", "private, no-cache", 200, true},
		{"GET", "/api/session?request=x", "application/json", "no-store", 200, true},
		{"GET", "/api/recent", "application/json", "no-store", 200, true},
		{"GET", "/api/search", "application/json", "no-store", 200, true},
		{"POST", "/api/open", "application/json", "no-store", 200, true},
		{"POST", "/api/event", "application/json", "no-store", 200, true},
		{"GET", "/pictures/report-icon.png?request=x", "image/png", "private, no-cache", 200, true},
		{"GET", "/style.css", "text/css; charset=utf-8", "public, max-age=3600", 200, false},
		{"GET", "/app.js", "text/javascript; charset=utf-8", "public, max-age=3600", 200, false},
		{"GET", "/pictures/heddle.svg", "image/svg+xml", "public, max-age=3600", 200, false},
		{"GET", "/nothing", "text/html; charset=utf-8", "public, max-age=3600", 404, false},
		{"GET", "/api/event", "text/html; charset=utf-8", "public, max-age=3600", 404, false},
	} {
		r, first := ask(t, s, c.method, c.target)
		_, second := ask(t, s, c.method, c.target)
		if r.StatusCode != c.status || r.Header.Get("Content-Type") != c.kind || r.Header.Get("Cache-Control") != c.keep || bytes.Equal(first, second) == c.differs {
			t.Errorf("%s %s: %s, %v, differs %v", c.method, c.target, r.Status, r.Header, !bytes.Equal(first, second))
		}
		if etag := r.Header.Get("ETag"); (etag != "") != (!c.differs && c.status == 200) {
			t.Errorf("%s has the ETag %q", c.target, etag)
		}
	}
}

// The same seed gives the same site, so that a recording can be made again.
func TestSeed(t *testing.T) {
	said := func(seed uint64) string {
		s, err := New(fstest.MapFS{"a.md": {Data: []byte("# A\n")}}, seed)
		if err != nil {
			t.Fatal(err)
		}
		_, first := ask(t, s, "GET", "/a")
		_, second := ask(t, s, "GET", "/api/search")
		return string(first) + string(second)
	}
	if one, again := said(1), said(1); one != again || one == said(2) {
		t.Error("the site does not follow its seed")
	}
}

// What is prepared are the answers that would have come otherwise, whatever else is asked for.
func TestPrepare(t *testing.T) {
	const target = "/pictures/a.png"
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 8, 8))); err != nil {
		t.Fatal(err)
	}
	made := func() *Site {
		s, err := New(fstest.MapFS{"a.md": {Data: []byte("# A\n")}, "a.png": {Data: picture.Bytes()}, "b.png": {Data: picture.Bytes()}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	asked, prepared := made(), made()
	prepared.Prepare(2)
	if n := len(prepared.shots[target].ready); n != 2 {
		t.Fatalf("%d answers are prepared", n)
	}
	ask(t, prepared, "GET", "/pictures/b.png")
	for i := range 3 {
		_, one := ask(t, asked, "GET", target)
		if _, other := ask(t, prepared, "GET", target); !bytes.Equal(one, other) {
			t.Errorf("answer %d is another one", i)
		}
	}
	if one, other := asked.shots[target].answer(), asked.shots["/pictures/b.png"].answer(); bytes.Equal(one, other) {
		t.Error("two pictures have the same mark")
	}
}

func TestRender(t *testing.T) {
	names := []string{"a.md", "b.md"}
	for text, want := range map[string]string{
		"# A\n\n[b](b.md)":                       `<a href="/b">b</a>`,
		"# A\n\n[b](b.md#a-place)":               `<a href="/b#a-place">b</a>`,
		"# A\n\n[here](#place)":                  `<a href="#place">here</a>`,
		"# A\n\n[away](https://a.example/x.md)":  `<a href="https://a.example/x.md">away</a>`,
		"# A\n\nSee [`this` file](../dist/x.md)": `<p>See <code>this</code> file</p>`,
		"# A\n\n![two](two.png)":                 `<img data-src="/pictures/two.png" alt="two" />`,
		"# A\n\n![two](two.svg)":                 `<img src="/pictures/two.svg" alt="two" />`,
		"# A\n\n## It's `x`: 2 of 3\n":           `<h2 id="its-x-2-of-3">`,
		"# A\n\n|a|b|\n|---|---|\n|1|`<`|\n":     `<td><code>&lt;</code></td>`,
		"# A\n\n```sh\na <b>\n```\n":             `<code class="language-sh">a &lt;b&gt;`,
	} {
		p, err := render("a.md", []byte(text), names)
		if err != nil || !strings.Contains(string(p.content), want) || p.title != "A" {
			t.Errorf("%q becomes %+v, %v", text, p, err)
		}
	}
	if p, err := render("a.md", []byte("text"), names); err == nil {
		t.Errorf("a page without a title: %+v", p)
	}
}

// What is shown of a picture is the same at each visit. Around it is room that nobody sees.
func TestShot(t *testing.T) {
	const margin = 40
	original := image.NewNRGBA(image.Rect(0, 0, 60, 40))
	for i := range 60 * 40 {
		original.Set(i%60, i/60, color.NRGBA{uint8(i / 60 * 4), 100, 200, 255})
	}
	s := newShot(original, format{"", 2, margin}, source(1, ""))
	var shown [2]image.Image
	for i := range shown {
		var err error
		if shown[i], err = png.Decode(bytes.NewReader(s.png(bytes.Repeat([]byte{byte(i + 1)}, markBytes)))); err != nil {
			t.Fatal(err)
		}
	}
	size, clear, marked := shown[0].Bounds().Size(), 0, 0
	for y := range size.Y {
		for x := range size.X {
			a, b := shown[0].At(x, y).(color.NRGBA), shown[1].At(x, y).(color.NRGBA)
			if a.A == 0 {
				clear++
			}
			if a != b {
				marked++
			}
			if a != b && (a.A != 0 || b.A != 0) {
				t.Fatalf("pixel %d,%d differs: %v, %v", x, y, a, b)
			}
		}
	}
	if size != image.Pt(30+2*margin, 20+2*margin) || clear < size.X*size.Y/4 || marked != markBytes/3 {
		t.Errorf("%v, %d transparent pixels, %d marked", size, clear, marked)
	}
	if got, want := fmt.Sprint(shown[0].At(margin, margin+1)), fmt.Sprint(color.NRGBA{10, 100, 200, 255}); got != want {
		t.Errorf("the mean of four pixels is %s, want %s", got, want)
	}
	if edge := shown[0].At(margin-1, margin).(color.NRGBA); edge.A == 0 || edge.A > dark {
		t.Errorf("the shadow is %v", edge)
	}
	if small := newShot(original, format{"", 10, 0}, nil).image.Rect.Size(); small != image.Pt(6, 4) {
		t.Errorf("the smaller one has %v", small)
	}
	if _, err := New(fstest.MapFS{"a.png": {Data: []byte("GIF")}}, 1); err == nil {
		t.Error("no PNG became a picture")
	}
}
