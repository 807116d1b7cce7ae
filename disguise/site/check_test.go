package site

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"image"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	s := recorded(t)
	r, err := Check(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if r.Failed != 0 {
		t.Errorf("%d failed: %+v", r.Failed, r.Notices)
	}
	got := map[string]ObjectRoom{}
	for _, o := range r.Objects {
		got[o.URL] = o
	}
	for url, used := range map[string]bool{"/": true, "/about": true, "/api/feed": true, "/disc.png?u=1": true, "/style.css": false} {
		if o := got[url]; o.Capacity == 0 || (o.Fresh != "") != used || len(o.Judges) == 0 || o.Wire < o.Capacity {
			t.Errorf("%s: %+v", url, o)
		}
	}
	if len(got) != 5 {
		t.Errorf("%d objects have room", len(got))
	}
	for _, p := range r.Pages {
		if want := got[p.URL].Capacity + got["/api/feed"].Capacity + got["/disc.png?u=1"].Capacity; p.Capacity != want {
			t.Errorf("%s hides %d bytes, want %d", p.URL, p.Capacity, want)
		}
	}
	for _, url := range []string{"/style.css", "/disc.png?u=1", "/about"} {
		if !slices.ContainsFunc(r.Notices, func(n Notice) bool { return n.URL == url }) {
			t.Errorf("no notice on %s", url)
		}
	}
}

func TestCheckNotices(t *testing.T) {
	var drawn bytes.Buffer
	if err := png.Encode(&drawn, image.NewNRGBA(image.Rect(0, 0, 9, 9))); err != nil {
		t.Fatal(err)
	}
	private := []Field{{"cache-control", "private"}, {"etag", `"x"`}}
	s := &Site{Origin: "http://a.example", Pages: []Page{{}}, Objects: []Object{
		{Method: "GET", URL: "/", Status: 200, Type: htmlType, Body: []byte(`<link rel=stylesheet href=/p.css integrity=sha256-x>`)},
		{Method: "GET", URL: "/p.css", Status: 200, Type: "text/css", Header: private,
			Body: []byte("a{b:url(data:image/png;base64," + base64.StdEncoding.EncodeToString(drawn.Bytes()) + ")}")},
	}}
	r, err := Check(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"integrity", "not used", "nothing can be hidden"} {
		if !slices.ContainsFunc(r.Notices, func(n Notice) bool { return strings.Contains(n.Text, want) }) {
			t.Errorf("no notice has %q: %+v", want, r.Notices)
		}
	}
	s.Objects[1].URL = "/p.0123abcd.css"
	if r, err = Check(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"etag must change", "a hash of its content", "no two different ones"} {
		if !slices.ContainsFunc(r.Notices, func(n Notice) bool { return strings.Contains(n.Text, want) }) {
			t.Errorf("no notice has %q: %+v", want, r.Notices)
		}
	}
}

// Each judge must refuse what it is there for.
func TestJudges(t *testing.T) {
	picture := func(alpha byte, colour byte) []byte {
		m := image.NewNRGBA(image.Rect(0, 0, 2, 2))
		m.Pix[0], m.Pix[3] = colour, alpha
		var out bytes.Buffer
		if err := png.Encode(&out, m); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	uri := func(b []byte) []byte {
		return []byte(`a="data:image/png;base64,` + base64.StdEncoding.EncodeToString(b) + `"`)
	}
	for what, c := range map[string]struct {
		judge             func(context.Context, []byte, []byte) error
		original, changed []byte
		same              bool
	}{
		"token":             {sameJSON, []byte(`{"a":["bc"]}`), []byte(`{"a":["bd"]}`), true},
		"number":            {sameJSON, []byte(`{"a":1}`), []byte(`{"a":2}`), false},
		"name":              {sameJSON, []byte(`{"a":null}`), []byte(`{"b":null}`), false},
		"length":            {sameJSON, []byte(`["bc"]`), []byte(`["b"]`), false},
		"no JSON":           {sameJSON, []byte(`[]`), []byte(`[`), false},
		"attribute":         {sameDocument, []byte(`<input value=a>`), []byte(`<input value=b>`), true},
		"other attribute":   {sameDocument, []byte(`<input value=a>`), []byte(`<input name=a>`), false},
		"text":              {sameDocument, []byte(`<p>a`), []byte(`<p>b`), false},
		"element":           {sameDocument, []byte(`<p>a`), []byte(`<p>a<br>`), false},
		"state":             {sameDocument, []byte(`<script>["a"]</script>`), []byte(`<script>["b"]</script>`), true},
		"other state":       {sameDocument, []byte(`<script>[1]</script>`), []byte(`<script>[2]</script>`), false},
		"transparent pixel": {samePicture, picture(0, 1), picture(0, 2), true},
		"pixel":             {samePicture, picture(255, 1), picture(255, 2), false},
		"alpha":             {samePicture, picture(1, 1), picture(2, 1), false},
		"no picture":        {samePicture, picture(0, 1), picture(0, 1)[:40], false},
		"in a URI":          {sameURIs, uri(picture(0, 1)), uri(picture(0, 2)), true},
		"other in a URI":    {sameURIs, uri(picture(255, 1)), uri(picture(255, 2)), false},
		"one URI less":      {sameURIs, uri(picture(0, 1)), nil, false},
		"noise":             {similarPhoto, photograph(9, 0), photograph(9, 6), true},
		"another photo":     {similarPhoto, photograph(9, 0), photograph(9, 99), false},
		"a larger photo":    {similarPhoto, photograph(9, 0), photograph(10, 0), false},
		"no photo":          {similarPhoto, photograph(9, 0), photograph(9, 0)[:100], false},
		"photo in a URI":    {sameURIs, bytes.Replace(uri(photograph(9, 0)), []byte("png"), []byte("jpeg"), 1), bytes.Replace(uri(photograph(9, 99)), []byte("png"), []byte("jpeg"), 1), false},
		"type of a URI":     {sameURIs, uri(picture(0, 1)), bytes.Replace(uri(picture(0, 1)), []byte("png"), []byte("gif"), 1), false},
		"data of a script":  {sameTags, film(87, "000000a"), film(87, "000000b"), true},
		"number of data":    {sameTags, film(87, "000000a"), film(87, "000001a"), false},
		"a shape":           {sameTags, film(2, "a"), film(2, "b"), false},
		"an unknown tag":    {sameTags, film(700, "a"), film(700, "b"), true},
		"its length":        {sameTags, film(700, "a"), film(700, "bb"), false},
		"its type":          {sameTags, film(700, "a"), film(701, "a"), false},
		"a tag more":        {sameTags, film(700, "a"), film(700, "a", 0, 0), false},
		"no film":           {sameTags, film(700, "a"), film(700, "a")[:12], false},
	} {
		if err := c.judge(t.Context(), c.original, c.changed); (err == nil) != c.same {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// photograph is a grey picture with a pattern of some contrast.
func photograph(size int, contrast uint8) []byte {
	m := image.NewGray(image.Rect(0, 0, size, size))
	for i := range m.Pix {
		m.Pix[i] = 100 + contrast*uint8(i%2)
	}
	var out bytes.Buffer
	if err := jpeg.Encode(&out, m, nil); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// film is an SWF with a tag, and with further bytes after it.
func film(kind int, content string, more ...byte) []byte {
	body := append([]byte{0, 0, 12, 1, 0}, byte(kind<<6|len(content)), byte(kind>>2))
	body = append(append(body, content...), more...)
	return append(binary.LittleEndian.AppendUint32([]byte("FWS\x09"), uint32(8+len(body))), body...)
}

func TestProgramJudges(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("needs node: apt-get install nodejs")
	}
	node := scripts()[0]
	for _, c := range []struct {
		original, changed string
		same              bool
	}{{"let a=1", "let b=1", true}, {"let a=1", "let a=", false},
		{"import a from 'b';await a", "import b from 'b';await b", true}, {"export let a=1", "export let a=", false},
		{"delete a", "delete b", true}} /* which no module may */ {
		if err := node.same(t.Context(), []byte(c.original), []byte(c.changed)); (err == nil) != c.same || err == errNoVerdict {
			t.Errorf("%s: %v", c.changed, err)
		}
	}
	if err := node.same(t.Context(), []byte("let a="), []byte("let a=")); err != errNoVerdict {
		t.Error(err)
	}
}

// Objects at which nobody looked are named, with what to install, and do not count as judged by a look at their data URIs.
func TestUnjudged(t *testing.T) {
	body := []byte(`x="` + base64.StdEncoding.EncodeToString(noise(30)) + `"`)
	script := func(url string) Object {
		return Object{Method: "GET", URL: url, Status: 200, Type: "text/javascript", Header: []Field{{"cache-control", "private"}}, Body: body}
	}
	s := &Site{Origin: "http://a.example", Pages: []Page{{}}, Objects: []Object{script("/a.js"), script("/b.js")}}
	t.Setenv("PATH", t.TempDir())
	r, err := Check(t.Context(), s)
	if err != nil || r.Failed > 0 || !slices.Equal(r.Unjudged, []Unjudged{{"text/javascript", 2, "install nodejs"}}) {
		t.Errorf("without node: %+v, %v", r.Unjudged, err)
	}
	for _, c := range []struct {
		kind   string
		judges []string
		want   string
	}{{"text/css", []string{dataURIs}, ""}, {htmlType, []string{"x/net/html", dataURIs}, ""}, {"text/javascript", []string{"node"}, ""}, {"video/mp4", nil, "install ffmpeg"},
		{"image/png", []string{"image/png"}, ""}, {"application/pdf", nil, "install qpdf and poppler-utils"}} {
		if got := lacks(c.kind, c.judges); got != c.want {
			t.Errorf("%s with %q: %q", c.kind, c.judges, got)
		}
	}
}

// noise is random bytes that are the same each time.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// The judge compares all that a program prints, however long it is.
func TestPrintedJudge(t *testing.T) {
	cat := prints(".txt", "cat")[0]
	long := bytes.Repeat([]byte("text\n"), 100000)
	if err := cat.same(t.Context(), long, long); err != nil {
		t.Error(err)
	}
	other := bytes.Clone(long)
	other[len(other)-2] = 'T'
	if err := cat.same(t.Context(), long, other); err == nil {
		t.Error("it took another text")
	}
}

func FuzzTags(f *testing.F) {
	f.Add(film(87, "000000a"))
	f.Add(film(700, "a"))
	f.Fuzz(func(t *testing.T, file []byte) {
		all, err := tags(file)
		size := 0
		for _, tag := range all {
			size += len(tag.content)
		}
		if err == nil && (len(all) == 0 || size > MaxBody) {
			t.Fatalf("%d tags of %d bytes", len(all), size)
		}
	})
}
