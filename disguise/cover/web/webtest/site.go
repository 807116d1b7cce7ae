// Package webtest has a small site for tests of the cover http: pages with scripts that send and get tokens, and encrypted media.
package webtest

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"

	"heddle/disguise/site"
)

// The sizes of the site, in bytes.
const (
	Segment  = 256 << 10 // of the media in one object
	Segments = 12
	Posted   = 3000 // of the token that a script posts
)

var shared = []site.Field{{Name: "cache-control", Value: "public, max-age=3600"}, {Name: "etag", Value: `"v1"`}}
var private = []site.Field{{Name: "cache-control", Value: "no-store"}}

// Site returns the site. It is the same each time.
func Site() *site.Site {
	g := generator{rand.NewChaCha8([32]byte{1})}
	s := &site.Site{About: "made for tests", Origin: "http://www.example"}
	add := func(o site.Object) int {
		if o.Status == 0 {
			o.Status = 200
		}
		if o.Method == "" {
			o.Method = "GET"
		}
		o.Wire, o.Size = -1, int64(len(o.Body))
		s.Objects = append(s.Objects, o)
		return len(s.Objects) - 1
	}
	document := func(url, title string) int {
		return add(site.Object{URL: url, Type: "text/html", Header: []site.Field{{Name: "cache-control", Value: "private, no-cache"}}, Encoding: "gzip",
			Cookies: []site.Cookie{{Name: "session", Length: 32, Alphabet: "hex"}},
			Body: fmt.Appendf(nil, `<!doctype html><title>%s</title><link rel=stylesheet href=/style.css><script src=/app.js defer></script><a href=/>home</a> <a href=/watch>watch</a> `+
				`<a href=/about>about</a><form><input type=hidden name=state value="%s"></form>`, title, g.std(90))})
	}
	home, watch := document("/", "Home"), document("/watch", "Watch")
	style := add(site.Object{URL: "/style.css", Type: "text/css", Header: shared, Encoding: "gzip", Body: bytes.Repeat([]byte("body{margin:0}\n"), 100)})
	script := add(site.Object{URL: "/app.js", Type: "text/javascript", Header: shared, Body: []byte("run()\n")})
	about := add(site.Object{URL: "/about", Type: "text/html", Body: []byte("<!doctype html><title>About</title><p>This is a page that never changes.\n"),
		Header: []site.Field{{Name: "etag", Value: `"about-7"`}, {Name: "last-modified", Value: "Mon, 05 Oct 2026 10:00:00 GMT"}}})
	add(site.Object{URL: "/missing", Status: 404, Type: "text/html", Body: []byte("<!doctype html><title>Not here</title>\n")})
	state := add(site.Object{URL: "/api/state?request=" + g.url(48), Type: "application/json", Header: private, WaitMS: 4,
		Body: fmt.Appendf(nil, `{"user":null,"cursor":"%s"}`, g.std(150))})
	event := add(site.Object{Method: "POST", URL: "/api/event", Type: "application/json", Header: private, WaitMS: 4,
		Posted: fmt.Appendf(nil, `{"kind":"view","data":"%s"}`, g.std(Posted)), PostedType: "application/json", Body: fmt.Appendf(nil, `{"ok":true,"next":"%s"}`, g.std(600))})
	var items bytes.Buffer
	for i := range 40 {
		fmt.Fprintf(&items, `,{"id":%d,"ref":"%s"}`, i, g.std(300))
	}
	feed := add(site.Object{URL: "/api/feed?request=" + g.url(48), Type: "application/json", Header: private, Encoding: "gzip", WaitMS: 4,
		Body: fmt.Appendf(nil, `{"items":[%s]}`, items.Bytes()[1:])})
	loads := func(objects ...int) (all []site.Load) {
		for i, number := range objects {
			all = append(all, site.Load{Object: number, At: int64(10 * i)})
		}
		return all
	}
	video := []int{style, script, state, event, feed}
	for i := range Segments {
		video = append(video, add(site.Object{URL: fmt.Sprintf("/media/%s/%d.m4s?sig=%s", g.hex(16), i, g.url(96)), Type: "video/iso.segment", Header: private, WaitMS: 2, Body: segment(Segment)}))
	}
	s.Pages = []site.Page{{Document: home, Loads: loads(style, script, state, event, feed), Links: []int{watch, about}},
		{Document: watch, Loads: loads(video...), Links: []int{home}}, {Document: about, Loads: loads(), Links: []int{}}}
	return s
}

type generator struct{ *rand.ChaCha8 }

func (g generator) bytes(n int) []byte {
	b := make([]byte, n)
	_, _ = g.Read(b)
	return b
}

// std, url and hex return tokens of n bytes with a character that only their alphabet has.
func (g generator) std(n int) string { return "+/" + base64.StdEncoding.EncodeToString(g.bytes(n))[2:] }
func (g generator) url(n int) string {
	return "-_" + base64.RawURLEncoding.EncodeToString(g.bytes(n))[2:]
}
func (g generator) hex(n int) string { return "ab" + hex.EncodeToString(g.bytes(n))[2:] }

// segment is a fragment of media (ISO/IEC 23001-7) with one sample, all of which is encrypted. Its bytes are zeros here.
func segment(size int) []byte {
	box := func(kind string, body ...[]byte) []byte {
		all := bytes.Join(body, nil)
		return append(append(binary.BigEndian.AppendUint32(nil, uint32(len(all)+8)), kind...), all...)
	}
	words := func(v ...uint32) (out []byte) {
		for _, x := range v {
			out = binary.BigEndian.AppendUint32(out, x)
		}
		return out
	}
	moof := func(start uint32) []byte {
		return box("moof", box("mfhd", words(0, 1)), box("traf", box("tfhd", words(0x20000, 1)), box("trun", words(0x201, 1, start, uint32(size))),
			box("senc", words(0, 1), make([]byte, 8))))
	}
	return append(moof(uint32(len(moof(0))+8)), box("mdat", make([]byte, size))...)
}
