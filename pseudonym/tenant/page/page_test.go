package page

import (
	"bytes"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/net/html"
)

const to = "abc.cloud.example"

var host = NewHost("news.example", to)

func TestString(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "",
		"https://news.example/a":                "https://" + to + "/a",
		"//NEWS.example":                        "//" + to,
		`"https:\/\/news.example\/a"`:           `"https:\/\/` + to + `\/a"`,
		"url(//news.example/x) url(/y)":         "url(//" + to + "/x) url(/y)",
		"//news.example:443/ //news.example:80": "//" + to + "/ //" + to,
		"//news.example:8080/":                  "//news.example:8080/",
		"//news.example:/":                      "//" + to + ":/",
		"//news.example.":                       "//" + to + ".",
		"//news.example.evil.example":           "//news.example.evil.example",
		"//news.example-x":                      "//news.example-x",
		"//www.news.example":                    "//www.news.example",
		"mail to me@news.example":               "mail to me@news.example",
		"news.example":                          "news.example",
		"///news.example":                       "///" + to,
		"//news.exampl":                         "//news.exampl",
		"/\\":                                   "/\\",
		"//news.exampleä":                       "//news.exampleä",
	} {
		if got := host.String(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
		// However it arrives.
		for name, r := range map[string]io.Reader{"bytes": iotest.OneByteReader(strings.NewReader(text)), "halves": iotest.HalfReader(strings.NewReader(text))} {
			if got, err := io.ReadAll(host.Text(r)); err != nil || string(got) != want {
				t.Errorf("%q in %s is %q, %v", text, name, got, err)
			}
		}
	}
}

func TestHTML(t *testing.T) {
	for text, want := range map[string]string{
		`<a href="http://news.example/a?b&amp;c">news.example</a>`: `<a href="https://` + to + `/a?b&amp;c">news.example</a>`,
		`<A HREF='/a' Title=x>`:                                                     `<A HREF='/a' Title=x>`,
		`<a href="https://other.example/?u=//news.example">`:                        `<a href="https://other.example/?u=//news.example">`,
		`<img srcset="//news.example/1 1x, https://news.example/2 2x"/>`:            `<img srcset="//` + to + `/1 1x, https://` + to + `/2 2x"/>`,
		`<noscript><img src="//news.example/x"></noscript><script>"//news.example"`: `<noscript><img src="//` + to + `/x"></noscript><script>"//` + to + `"`,
		`<script>fetch("https://news.example/x") </script>//news.example`:           `<script>fetch("https://` + to + `/x") </script>//news.example`,
		`<style>@import "//news.example/a.css"</style>`:                             `<style>@import "//` + to + `/a.css"</style>`,
		`<meta http-equiv=refresh content="0; url=http://news.example/">`:           `<meta http-equiv="refresh" content="0; url=http://` + to + `/">`,
		`<form action=https://news.example/post method=post>`:                       `<form action="https://` + to + `/post" method="post">`,
		`<!-- //news.example --><!DOCTYPE html>`:                                    `<!-- //news.example --><!DOCTYPE html>`,
		`<p>a < b <br`:                                                              `<p>a < b <br`,
		`<a href=" https://news.example ">`:                                         `<a href="https://` + to + `">`,
		`<link rel=stylesheet href=/a.css integrity=sha256-x>`:                      `<link rel="stylesheet" href="/a.css">`,
		`<link href="//cdn.example/a.css" integrity=sha256-x>`:                      `<link href="//cdn.example/a.css" integrity=sha256-x>`,
		`<script src="/a.js" integrity=sha256-x></script>`:                          `<script src="/a.js" integrity=sha256-x></script>`,
		`<a href="ftp://news.example/">`:                                            `<a href="ftp://news.example/">`,
		`<a href="mailto:a@news.example">`:                                          `<a href="mailto:a@news.example">`,
		`<textarea><a href="//news.example"></textarea>`:                            `<textarea><a href="//news.example"></textarea>`,
		`<a href="wss://news.example/"><a href="ws://news.example">`:                `<a href="wss://` + to + `/"><a href="wss://` + to + `">`,
		`<div data-api="https://news.example" onclick="go('//news.example')">`:      `<div data-api="https://` + to + `" onclick="go(&#39;//` + to + `&#39;)">`,
	} {
		var out bytes.Buffer
		if err := host.HTML(&out, iotest.HalfReader(strings.NewReader(text))); err != nil || out.String() != want {
			t.Errorf("%s\nis   %s\nwant %s (%v)", text, out.String(), want, err)
		}
	}
}

// Elements meta and attributes can say what headers say: they tell no other site of the pseudonym either, and name the pseudonym in a policy.
func TestHeadersInPages(t *testing.T) {
	for text, want := range map[string]string{
		`<meta name=referrer content=unsafe-url>`:                                           `<meta name="referrer" content="same-origin">`,
		`<META NAME=" Referrer " CONTENT=always>`:                                           `<meta name=" Referrer " content="same-origin">`,
		`<meta name="referrer" content="no-referrer">`:                                      `<meta name="referrer" content="no-referrer">`,
		`<meta name="referrer" content="never">`:                                            `<meta name="referrer" content="no-referrer">`,
		`<meta name="author" content="origin">`:                                             `<meta name="author" content="origin">`,
		`<a href="/" referrerpolicy=origin>`:                                                `<a href="/" referrerpolicy="same-origin">`,
		`<img src="/x" referrerpolicy="no-referrer">`:                                       `<img src="/x" referrerpolicy="no-referrer">`,
		`<img src="/x" referrerpolicy>`:                                                     `<img src="/x" referrerpolicy>`,
		`<meta http-equiv=content-security-policy content="img-src news.example cdn.test">`: `<meta http-equiv="content-security-policy" content="img-src ` + to + ` cdn.test">`,
		`<meta name=description content="all of news.example">`:                             `<meta name=description content="all of news.example">`,
	} {
		var out bytes.Buffer
		if err := host.HTML(&out, strings.NewReader(text)); err != nil || out.String() != want {
			t.Errorf("%s\nis   %s\nwant %s (%v)", text, out.String(), want, err)
		}
	}
}

func TestNames(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "",
		"news.example":                           to,
		"default-src https://NEWS.example:8443;": "default-src https://" + to + ":8443;",
		"*.news.example":                         "*.news.example",
		"my-news.example":                        "my-news.example",
		"news.example.evil.example":              "news.example.evil.example",
		"at news.example.":                       "at " + to + ".",
		"news.example news.example":              to + " " + to,
		"\xe9\xe9\xe9\xe9 news.example":          "\xe9\xe9\xe9\xe9 " + to,
		"\xe9news.example":                       "\xe9news.example",
	} {
		if got := host.Names(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// Only what a person follows leads elsewhere, and only where the link says so.
func TestLinks(t *testing.T) {
	h := host.WithLinks(func(u *url.URL) (string, bool) { return "https://linker/?" + u.Host, u.Host == "shop.example" })
	for text, want := range map[string]string{
		`<a href="https://shop.example/x">`:           `<a href="https://linker/?shop.example">`,
		`<AREA href=" //shop.example/">`:              `<area href="https://linker/?shop.example">`,
		`<svg><a xlink:href="//shop.example/">`:       `<svg><a xlink:href="https://linker/?shop.example">`,
		`<a href="https://other.example/">`:           `<a href="https://other.example/">`,
		`<a href="/shop.example">`:                    `<a href="/shop.example">`,
		`<a href="https://news.example/">`:            `<a href="https://` + to + `/">`,
		`<a title="https://shop.example/">`:           `<a title="https://shop.example/">`,
		`<img src="https://shop.example/x.png">`:      `<img src="https://shop.example/x.png">`,
		`<link href="https://shop.example/x.css">`:    `<link href="https://shop.example/x.css">`,
		`<form action="https://shop.example/find">`:   `<form action="https://shop.example/find">`,
		`<a href="https://shop.example/%zz">broken`:   `<a href="https://shop.example/%zz">broken`,
		`<p>https://shop.example/ is a <a>site</a>`:   `<p>https://shop.example/ is a <a>site</a>`,
		`<script>go("https://shop.example")</script>`: `<script>go("https://shop.example")</script>`,
	} {
		var out bytes.Buffer
		if err := h.HTML(&out, strings.NewReader(text)); err != nil || out.String() != want {
			t.Errorf("%s\nis   %s\nwant %s (%v)", text, out.String(), want, err)
		}
	}
}

// A form leads where the sidecar says, and a script that is changed has no hash.
func TestFormsAndScripts(t *testing.T) {
	h := host.WithForms(func(u *url.URL) (string, bool) { return "/form/" + u.Host, u.Host == "shop.example" }).WithScripts()
	for text, want := range map[string]string{
		`<form action="https://shop.example/find">`:                     `<form action="/form/shop.example">`,
		`<button formaction=//shop.example>`:                            `<button formaction="/form/shop.example">`,
		`<form action="https://news.example/find">`:                     `<form action="https://` + to + `/find">`,
		`<form action="/find">`:                                         `<form action="/find">`,
		`<a href="https://shop.example/">`:                              `<a href="https://shop.example/">`,
		`<script src="/a.js" integrity=sha256-x></script>`:              `<script src="/a.js"></script>`,
		`<script src="//cdn.example/a.js" integrity=sha256-x></script>`: `<script src="//cdn.example/a.js" integrity=sha256-x></script>`,
	} {
		var out bytes.Buffer
		if err := h.HTML(&out, strings.NewReader(text)); err != nil || out.String() != want {
			t.Errorf("%s\nis   %s\nwant %s (%v)", text, out.String(), want, err)
		}
	}
}

// A page that never ends a tag passes, takes no more than some memory, and still has no name of the site.
func TestEndlessTag(t *testing.T) {
	text := `<a href="//news.example/` + strings.Repeat("x", 3*mostToken) + `"><a href="//news.example">`
	var out bytes.Buffer
	if err := host.HTML(&out, strings.NewReader(text)); err != nil || out.String() != strings.ReplaceAll(text, "news.example", to) {
		t.Errorf("%d bytes of %d, %v", out.Len(), len(text), err)
	}
}

func TestBrokenOff(t *testing.T) {
	broken := io.MultiReader(strings.NewReader(`<a href="//news.example">`), iotest.ErrReader(io.ErrUnexpectedEOF))
	var out bytes.Buffer
	if err := host.HTML(&out, broken); err != io.ErrUnexpectedEOF && (err == nil || !strings.Contains(err.Error(), io.ErrUnexpectedEOF.Error())) {
		t.Errorf("a page that breaks off seems whole: %v", err)
	}
}

// What comes arrives before the rest does.
func TestPagesStream(t *testing.T) {
	r, w := io.Pipe()
	near, far := io.Pipe()
	go func() { far.CloseWithError(host.HTML(far, r)) }()
	go io.WriteString(w, `<p>first</p>`)
	b := make([]byte, len(`<p>first</p>`))
	if _, err := io.ReadFull(near, b); err != nil || string(b) != `<p>first</p>` {
		t.Errorf("%q, %v", b, err)
	}
	w.Close()
}

// names finds the site's name where it leads a browser to the site.
var names = regexp.MustCompile(`(?i)//news\.example(:80|:443)?(["'/?# )]|$)`)

// texts are attributes that may have several URLs, or a text with some.
var texts = regexp.MustCompile(`(?i)^(srcset|imagesrcset|style|ping|srcdoc|data-.*|on.*)$`)

// left says what of a tag still leads a browser to the site's own name, or tells other sites the pseudonym.
func left(t html.Token) string {
	for _, a := range t.Attr {
		switch key := strings.ToLower(a.Key); {
		case slices.Contains([]string{"action", "background", "cite", "data", "formaction", "href", "longdesc", "manifest", "poster", "src", "xlink:href"}, key):
			u, err := url.Parse(strings.TrimSpace(a.Val))
			if err == nil && strings.EqualFold(u.Hostname(), "news.example") && slices.Contains([]string{"", "80", "443"}, u.Port()) &&
				slices.Contains([]string{"", "http", "https", "ws", "wss"}, u.Scheme) || err != nil && names.MatchString(a.Val) {
				return a.Key + "=" + a.Val
			}
		case texts.MatchString(key) && names.MatchString(a.Val):
			return a.Key + "=" + a.Val
		case key == "referrerpolicy" && a.Val != "" && a.Val != "same-origin" && !strings.EqualFold(strings.TrimSpace(a.Val), "no-referrer"):
			return a.Key + "=" + a.Val
		}
	}
	return ""
}

func FuzzHTML(f *testing.F) {
	for _, text := range []string{`<a href="https://news.example/">x</a>`, `<script>//news.example`, `<!--`, `<a href='&#x2f;/news.example'>`, `<form action=//news.example?a>`,
		`<img srcset="//news.example/1 1x, https://news.example/2 2x" src=http://news.example:80 style="a:url(//news.example)">`, `<p data-x="//news.example" onclick='go("//news.example")' ping=//news.example>`,
		`<a referrerpolicy=origin href=//news.example:443>`, `<iframe srcdoc="<a href=//news.example/>">`, `<meta name=referrer content=origin>`,
		`<object action=//news.example background=//news.example cite=//news.example data=//news.example formaction=//news.example longdesc=//news.example manifest=//news.example poster=//news.example xlink:href=//news.example>`,
		`<a imagesrcset=//news.example/ ping=//news.example/><a onclick=//news.example/><a data-x=//news.example/>`, `<noscript><img src=//news.example></noscript>`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var once, again bytes.Buffer
		if err := host.HTML(&once, bytes.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		lower := bytes.ToLower(text)
		if !bytes.Contains(lower, []byte("news.example")) && !bytes.Contains(lower, []byte("referrer")) && !bytes.Contains(lower, []byte("integrity")) && !bytes.Contains(text, []byte("&")) && !bytes.Equal(once.Bytes(), text) {
			t.Fatalf("%q changed to %q", text, once.Bytes())
		}
		if err := host.HTML(&again, bytes.NewReader(once.Bytes())); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(once.Bytes(), again.Bytes()) {
			t.Fatalf("%q changes to %q, and then to %q", text, once.Bytes(), again.Bytes())
		}
		z := html.NewTokenizer(bytes.NewReader(once.Bytes()))
		for kind := z.Next(); kind != html.ErrorToken; kind = z.Next() {
			if kind != html.StartTagToken && kind != html.SelfClosingTagToken {
				continue
			}
			token := z.Token()
			if token.Data == "noscript" {
				z.NextIsNotRawText()
			}
			if leads := left(token); leads != "" {
				t.Fatalf("%q leaves %q", text, leads)
			}
		}
	})
}
