package site

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recorded is the site of testdata/site.har, which Chromium recorded: see testdata/record.mjs.
func recorded(t testing.TB) *Site {
	t.Helper()
	f, err := os.Open("testdata/site.har")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, skipped, err := ReadHAR(f, "")
	if err != nil || len(skipped) > 0 {
		t.Fatal(err, skipped)
	}
	return s
}

func (s *Site) object(t testing.TB, url string) *Object {
	t.Helper()
	i := slices.IndexFunc(s.Objects, func(o Object) bool { return o.URL == url })
	if i < 0 {
		t.Fatalf("no object %q", url)
	}
	return &s.Objects[i]
}

func TestReadHAR(t *testing.T) {
	s := recorded(t)
	var urls []string
	for _, o := range s.Objects {
		urls = append(urls, o.URL)
	}
	if d := cmp.Diff([]string{"/", "/style.css", "/app.js", "/disc.png?u=1", "/api/feed", "/about"}, urls); d != "" {
		t.Error(d)
	}
	if s.Origin != "http://127.0.0.1:8016" || len(s.Pages) != 3 {
		t.Errorf("origin %s, %d pages", s.Origin, len(s.Pages))
	}
	for i, p := range s.Pages {
		if want := []int{0, 5, 0}[i]; p.Document != want {
			t.Errorf("the document of page %d is %d, want %d", i, p.Document, want)
		}
		if want := [][]int{{5}, {0}, {5}}[i]; !slices.Equal(p.Links, want) {
			t.Errorf("page %d links to %v, want %v", i, p.Links, want)
		}
		var loads []int
		for _, l := range p.Loads {
			loads = append(loads, l.Object)
		}
		if !slices.Equal(loads, []int{1, 2, 3, 4}) {
			t.Errorf("page %d loads %v", i, loads)
		}
	}
	if at := s.Pages[0].Loads[3].At; at != 102 {
		t.Errorf("the last object was asked for after %d ms, want 102", at)
	}
	home := s.object(t, "/")
	if d := cmp.Diff([]Cookie{{"session", 32, "hex"}}, home.Cookies); d != "" {
		t.Error(d)
	}
	if !home.Varies || home.Type != "text/html" || home.Get("content-type") != "text/html; charset=utf-8" || home.WaitMS != 2 || home.Wire != 1643 {
		t.Errorf("%+v", home.Header)
	}
	if png := s.object(t, "/disc.png?u=1"); png.Varies || !bytes.HasPrefix(png.Body, []byte("\x89PNG")) {
		t.Error("the picture was not decoded, or varies")
	}
}

func TestFresh(t *testing.T) {
	s := recorded(t)
	s.Objects = append(s.Objects, Object{Method: "POST", URL: "/post"}, Object{Method: "GET", URL: "/plain", Header: []Field{{"cache-control", "public, max-age=05"}}})
	for url, want := range map[string]string{"/": "differed between two visits", "/about": "Cache-Control: private", "/style.css": "",
		"/api/feed": "differed between two visits", "/disc.png?u=1": "Cache-Control: private", "/post": "the answer to a POST", "/plain": ""} {
		if got := s.object(t, url).Fresh(); got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
}

func TestFileKeepsASite(t *testing.T) {
	s := recorded(t)
	s.About = "a test"
	name := filepath.Join(t.TempDir(), "site.db")
	if err := s.Write(name); err != nil {
		t.Fatal(err)
	}
	got, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(s, got); d != "" || got.Fingerprint == [8]byte{} {
		t.Error("the site changed:", d)
	}
}

// entry is one entry of a HAR. The body is a literal of JSON.
func entry(url, kind, body, more string) string {
	return fmt.Sprintf(`{"pageref":"p","startedDateTime":"2026-01-01T00:00:00Z","request":{"method":"GET","url":%q},
"response":{"status":200,"headers":[],"content":{"mimeType":%q,"text":%s%s}}}`, url, kind, body, more)
}

func har(entries ...string) string {
	return `{"log":{"pages":[{"id":"p","entries":[]}],"entries":[` + strings.Join(entries, ",") + `]}}`
}

func TestHostileHAR(t *testing.T) {
	page := entry("http://a.example/", "text/html", `"<p>"`, "")
	for what, c := range map[string]struct {
		text    string
		fails   string
		skipped Skipped
	}{
		"no JSON":        {text: "<html>", fails: "no HTTP archive"},
		"cut short":      {text: har(page)[:200], fails: "no HTTP archive"},
		"no entries":     {text: `{"log":{}}`, fails: `"entries" is missing`},
		"entries a map":  {text: `{"log":{"entries":{}}}`, fails: "no list"},
		"no page":        {text: har(entry("http://a.example/", "image/png", `""`, "")), fails: "no page"},
		"foreign host":   {text: har(page, entry("http://b.example/x.js", "text/javascript", `""`, "")), skipped: Skipped{"of another origin": 1}},
		"other port":     {text: har(page, entry("http://a.example:81/", "text/html", `""`, "")), skipped: Skipped{"of another origin": 1}},
		"a file":         {text: har(page, entry("file:///etc/passwd", "text/html", `""`, "")), skipped: Skipped{"not of the web": 1}},
		"bad base64":     {text: har(page, entry("http://a.example/i", "image/png", `"!"`, `,"encoding":"base64"`)), skipped: Skipped{"with a body that is no base64": 1}},
		"long URL":       {text: har(page, entry("http://a.example/"+strings.Repeat("a", maxURL), "image/png", `""`, "")), skipped: Skipped{"out of bounds": 1}},
		"large body":     {text: har(page, entry("http://a.example/l", "text/css", `"`+strings.Repeat("a", MaxBody+1)+`"`, "")), skipped: Skipped{"larger than 16 MiB": 1}},
		"deeply nested":  {text: `{"log":{"pages":` + strings.Repeat("[", 1<<20), fails: "no HTTP archive"},
		"foreign origin": {text: strings.Replace(har(page), "a.example", "a.example/%00@b", 1), skipped: Skipped{}},
	} {
		s, skipped, err := ReadHAR(strings.NewReader(c.text), "")
		switch {
		case c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)):
			t.Errorf("%s: %v, want %q", what, err, c.fails)
		case c.fails == "" && (err != nil || !cmp.Equal(skipped, c.skipped) || len(s.Objects) != 1):
			t.Errorf("%s: %v, skipped %v, want %v", what, err, skipped, c.skipped)
		}
	}
}

func TestReadDirectory(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "secret.html")
	files := map[string]string{"index.html": `<a href="sub/">x</a><img src="/a b.png"><img src="../../secret.html"><script src="http://b.example/x.js"></script>`,
		"sub/index.html": `<link rel=stylesheet href="../s.css"><a href="/">`, "s.css": "p{}", "a b.png": "\x89PNG", "bomb.gz": "\x1f\x8b"}
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "secret.html")); err != nil {
		t.Fatal(err)
	}
	s, skipped, err := ReadDirectory(dir, "https://a.example")
	if err != nil || !cmp.Equal(skipped, Skipped{"no regular file": 1}) {
		t.Fatal(err, skipped)
	}
	got := map[string][]string{}
	for _, p := range s.Pages {
		url := s.Objects[p.Document].URL
		for _, l := range p.Loads {
			got[url] = append(got[url], "load "+s.Objects[l.Object].URL)
		}
		for _, l := range p.Links {
			got[url] = append(got[url], "link "+s.Objects[l].URL)
		}
	}
	if d := cmp.Diff(map[string][]string{"/": {"load /a%20b.png", "link /sub/"}, "/sub/": {"load /s.css", "link /"}}, got); d != "" {
		t.Error(d)
	}
	if kind := s.object(t, "/s.css").Type; kind != "text/css" {
		t.Error(kind)
	}
}

// pack makes an archive of an index and bodies that need not fit.
func pack(t testing.TB, text []byte, bodies map[string][]byte) []byte {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	err := add(w, indexName, text)
	for name, body := range bodies {
		if err == nil {
			err = add(w, name, body)
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestHostileFile(t *testing.T) {
	body := []byte("<p>")
	fresh := func() *Site {
		return &Site{Origin: "http://a.example", Pages: []Page{{}}, Objects: []Object{{Method: "GET", URL: "/", Status: 200, Type: htmlType, Size: 3, Sum: sumOf(body)}}}
	}
	for what, c := range map[string]struct {
		change func(*Site)
		body   []byte
		fails  string
	}{
		"good":         {func(*Site) {}, body, ""},
		"bomb":         {func(*Site) {}, make([]byte, 1<<20), "more than 3 bytes"},
		"other body":   {func(*Site) {}, []byte("<q>"), "another one"},
		"short body":   {func(*Site) {}, []byte("<p"), "another one"},
		"wrong object": {func(s *Site) { s.Pages[0].Loads = []Load{{Object: 1}} }, body, "names an object"},
		"wrong link":   {func(s *Site) { s.Pages[0].Links = []int{-1} }, body, "names an object"},
		"no pages":     {func(s *Site) { s.Pages = nil }, body, "0 pages"},
		"huge size":    {func(s *Site) { s.Objects[0].Size = 1 << 60 }, body, "more than"},
		"foreign URL":  {func(s *Site) { s.Objects[0].URL = "//b.example/" }, body, "no path"},
		"two lines":    {func(s *Site) { s.Objects[0].Header = []Field{{"etag", "a\r\nb: c"}} }, body, "header"},
		"other header": {func(s *Site) { s.Objects[0].Header = []Field{{"set-cookie", "a=b"}} }, body, "header"},
		"other origin": {func(s *Site) { s.Origin = "http://a.example/x" }, body, "origin"},
		"status":       {func(s *Site) { s.Objects[0].Status = 99 }, body, "status"},
		"traversal":    {func(s *Site) { s.Objects[0].Sum = "../site.json" }, body, "missing"},
		"other method": {func(s *Site) { s.Objects[0].Method = "PUT" }, body, "method"},
		"all too large": {func(s *Site) {
			s.Objects = slices.Repeat([]Object{{Method: "GET", URL: "/", Status: 200, Size: MaxBody}}, 9)
		}, body, "more than 128 MiB"},
	} {
		s := fresh()
		c.change(s)
		text, err := json.Marshal(index{version, s})
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(pack(t, text, map[string][]byte{bodyDir + sumOf(body): c.body}))
		if c.fails == "" && (err != nil || !bytes.Equal(got.Objects[0].Body, body)) || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
			t.Errorf("%s: %v, want %q", what, err, c.fails)
		}
	}
	for what, raw := range map[string][]byte{"no archive": []byte("PK"), "no index": pack(t, nil, nil), "other version": pack(t, []byte(`{"heddle_site":2,"origin":"http://a"}`), nil)} {
		if s, err := Parse(raw); err == nil {
			t.Errorf("%s: %+v", what, s)
		}
	}
}

func TestAlphabet(t *testing.T) {
	for text, want := range map[string]string{"": "", "09": "digits", "0f": "hex", "0G": "alphanumeric", "a-_": "base64url", "a+/=": "base64", "a b": "other", "é": "other"} {
		if got := Alphabet(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func FuzzReadHAR(f *testing.F) {
	f.Add([]byte(har(entry("http://a.example/", "text/html", `"<a href=/x><p>"`, ""), entry("http://a.example/x", "text/html", `"PHA+"`, `,"encoding":"base64"`))))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, _, err := ReadHAR(bytes.NewReader(text), "")
		if err != nil {
			return
		}
		raw, err := s.pack()
		if err != nil {
			t.Fatal("what was read cannot be written:", err)
		}
		if _, err := Parse(raw); err != nil {
			t.Fatal("what was written cannot be read:", err)
		}
	})
}

func FuzzParse(f *testing.F) {
	s := &Site{Origin: "http://a.example", Pages: []Page{{}}, Objects: []Object{{Method: "GET", URL: "/", Status: 200, Type: htmlType, Body: []byte("<p>")}}}
	raw, err := s.pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		if s, err := Parse(raw); err == nil && s.check() != nil {
			t.Fatal("a bad site was read")
		}
	})
}
