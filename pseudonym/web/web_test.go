package web

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"heddle/pseudonym/work"
)

// Each page is whole, needs nothing from elsewhere, and escapes what others say.
func TestPages(t *testing.T) {
	const odd = `<b>"&'`
	p := Pseudonym{Name: odd, Site: odd, URL: "https://x.cloud.example/?pseudonym=y", Ends: time.Unix(0, 0)}
	for name, c := range map[string]struct {
		page Page
		has  []string
	}{
		"home of a stranger": {Home{Zone: odd, Sites: []string{odd}, Site: odd, Own: true}, []string{"name=\"own\"", "/get"}},
		"home":               {Home{Zone: odd, Known: true, All: []Pseudonym{p, {Site: "b.example", Ended: true}}}, []string{"/renew", "ended", "1 January 1970", string(p.URL)}},
		"home, login":        {Home{Zone: odd, Login: true, Site: odd}, []string{"/login?site=%3Cb%3E"}},
		"home, account":      {Home{Known: true, Account: true}, []string{"/get", "/logout"}},
		"work":               {Work{odd, odd, work.Puzzle{Text: odd, Bits: 3, Parts: 2}}, []string{"data-bits=\"3\"", "<noscript>", "/?site=%3Cb%3E"}},
		"code":               {Code{odd}, nil},
		"made, one lost":     {Made{Zone: "cloud.example", Pseudonym: p, NoOwn: odd}, []string{"could not be made", "store.cloud.example"}},
		"home, empty":        {Home{Known: true}, []string{"none yet"}},
		"made":               {Made{Pseudonym: p, Passphrase: "secret", Files: []File{{odd, "data:x/y;base64,QQ==", odd}}, Browsers: Browsers, Browser: "firefox"}, []string{"this file", "data:x/y;base64,QQ==", "secret", "<details open"}},
		"made, two":          {Made{Pseudonym: p, Own: &p, Files: make([]File, 2)}, []string{"these files", "entrance"}},
		"revoke":             {Revoke{p}, []string{"/revoke"}},
		"message":            {Message{odd, odd, odd}, nil},
		"go on, 0":           {GoOn{Site: odd, URL: "https://shop.example/", Reason: NoCertificate}, []string{"did not show", "https://shop.example/"}},
		"go on, 1":           {GoOn{Site: odd, URL: "https://shop.example/", Reason: NotTrusted}, []string{"trusts", "https://shop.example/"}},
		"go on, 2":           {GoOn{Site: odd, URL: "https://shop.example/", Reason: NoPseudonym, Store: "https://store/"}, []string{"no pseudonym", "https://store/"}},
	} {
		w := httptest.NewRecorder()
		Write(w, 200, c.page)
		text := w.Body.String()
		if w.Code != 200 || strings.Contains(text, odd) || !strings.HasSuffix(strings.TrimSpace(text), "</html>") {
			t.Errorf("%s: %d %s", name, w.Code, text)
		}
		for _, part := range c.has {
			if !strings.Contains(text, part) {
				t.Errorf("%s: lacks %s\n%s", name, part, text)
			}
		}
		if policy := w.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "script-src") != (name == "work") || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", name, w.Header())
		}
		for z := html.NewTokenizer(strings.NewReader(text)); z.Next() != html.ErrorToken; {
			if tag := z.Token(); tag.Data == "script" && name != "work" || tag.Data == "style" || tag.Data == "img" {
				t.Errorf("%s: has a %s", name, tag)
			}
		}
	}
}

func TestBrowserOf(t *testing.T) {
	const like = "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko) "
	for agent, want := range map[string]string{
		like + "(Windows NT 10.0; Win64; x64) Chrome/120.0 Safari/537.36":                              "windows",
		like + "(X11; Linux x86_64) Chrome/120.0 Safari/537.36":                                        "linux",
		like + "(Linux; Android 10; K) Chrome/120.0 Mobile Safari/537.36":                              "android",
		"Mozilla/5.0 (X11; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0":                       "firefox",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 Version/17.0 Safari/605": "mac",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605.1.15 CriOS/120.0":      "ios",
		"curl/8.0": "",
	} {
		if got := BrowserOf(agent); got != want {
			t.Errorf("%s: %q, want %q", agent, got, want)
		}
	}
	for _, b := range Browsers {
		if b.Title == "" || len(b.Steps) < 2 {
			t.Errorf("%+v", b)
		}
	}
}
