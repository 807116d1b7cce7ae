package web

import (
	"fmt"
	"strings"
)

// agent is what Chromium on Linux sends without its full version, which it does not tell.
const agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"

// request writes a request as Chromium does over plain HTTP: the same fields in the same order.
func (t *tab) request(it *item, target string, body []byte) []byte {
	cookies, document := t.visit.about()
	opens := document == it.URL
	var b strings.Builder
	line := func(name, value string) { b.WriteString(name + ": " + value + "\r\n") }
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", it.Method, target)
	line("Host", t.host)
	line("Connection", "keep-alive")
	if it.Method == "POST" {
		line("Content-Length", fmt.Sprint(len(body)))
	}
	if opens {
		line("Upgrade-Insecure-Requests", "1")
	}
	line("User-Agent", t.agent)
	if len(body) > 0 {
		line("Content-Type", it.PostedType)
	}
	line("Accept", accept(it, opens))
	if it.Method == "POST" {
		line("Origin", "http://"+t.host)
	}
	if !opens {
		line("Referer", "http://"+t.host+document)
	}
	line("Accept-Encoding", "gzip, deflate")
	line("Accept-Language", "en-US,en;q=0.9")
	if cookies != "" {
		line("Cookie", cookies)
	}
	if etag := it.Get("etag"); etag != "" && it.Fresh() == "" {
		line("If-None-Match", etag) // a browser has kept it
	}
	b.WriteString("\r\n")
	return append([]byte(b.String()), body...)
}

// accept is what a browser accepts for an object.
func accept(it *item, document bool) string {
	switch {
	case document:
		return "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7"
	case strings.HasPrefix(it.Type, "image/"):
		return "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8"
	case it.Type == "text/css":
		return "text/css,*/*;q=0.1"
	}
	return "*/*"
}
