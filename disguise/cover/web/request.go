package web

import (
	"regexp"
	"strconv"
	"strings"

	"heddle/disguise/cover/web/browser"
)

// agent is what Chromium on Linux sends without its full version, which it does not tell.
const agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36"

// chromium finds the version in the User-Agent of a browser of its family.
var chromium = regexp.MustCompile(`Chrome/([0-9]+)\.`)

// request is a request as Chromium sends it: the same fields in the same order. cookie is one of this request only, or "".
func (t *tab) request(it *flight, target string, body []byte, cookie string) browser.Request {
	origin := "http://" + t.host
	if t.sealed {
		origin = "https://" + t.host
	}
	r := browser.Request{Method: it.Method, Authority: t.host, Path: target, Body: body}
	add := func(name, value string) { r.Fields = append(r.Fields, browser.Field{Name: name, Value: value}) }
	var brand, mode, destination, priority string
	if t.sealed { // over plain HTTP it tells less
		mode, destination = purpose(it.item, it.opens)
		priority, r.Weight = urgency(destination)
		if version := chromium.FindStringSubmatch(t.agent); version != nil {
			brand = `"Not:A-Brand";v="8", "Chromium";v="` + version[1] + `"`
		}
	}
	hints := func(parts ...string) {
		for i := 0; brand != "" && i < len(parts); i += 2 {
			add(parts[i], parts[i+1])
		}
	}
	if it.Method == "POST" {
		add("Content-Length", strconv.Itoa(len(body)))
	}
	if it.opens {
		hints("sec-ch-ua", brand, "sec-ch-ua-mobile", "?0", "sec-ch-ua-platform", `"Linux"`)
		add("Upgrade-Insecure-Requests", "1")
		add("User-Agent", t.agent)
	} else {
		hints("sec-ch-ua-platform", `"Linux"`)
		add("User-Agent", t.agent)
		hints("sec-ch-ua", brand)
	}
	if len(body) > 0 {
		add("Content-Type", it.PostedType)
	}
	if !it.opens {
		hints("sec-ch-ua-mobile", "?0")
	}
	add("Accept", accept(it.item, it.opens))
	if it.Method == "POST" {
		add("Origin", origin)
	}
	if t.sealed && it.opens {
		add("Sec-Fetch-Site", "none")
		add("Sec-Fetch-Mode", mode)
		add("Sec-Fetch-User", "?1")
		add("Sec-Fetch-Dest", destination)
	} else if t.sealed {
		add("Sec-Fetch-Site", "same-origin")
		add("Sec-Fetch-Mode", mode)
		add("Sec-Fetch-Dest", destination)
	}
	if !it.opens {
		add("Referer", origin+t.items[it.from.document].URL)
	}
	if t.sealed {
		add("Accept-Encoding", "gzip, deflate, br, zstd")
	} else {
		add("Accept-Encoding", "gzip, deflate")
	}
	add("Accept-Language", "en-US,en;q=0.9")
	for _, one := range t.visit.kept() {
		add("Cookie", one)
	}
	if t.shown != "" {
		add("Cookie", t.shown)
	}
	if cookie != "" {
		r.Fields = append(r.Fields, browser.Field{Name: "Cookie", Value: cookie, Once: true})
	}
	if etag := it.Get("etag"); !t.sealed && etag != "" && it.Fresh() == "" {
		add("If-None-Match", etag) // a browser has kept it
	}
	if priority != "" {
		add("Priority", priority)
	}
	return r
}

// accept is what a browser accepts for an object.
func accept(it *item, document bool) string {
	switch {
	case document:
		return "text/html,application/xhtml+xml,application/xml;q=0.9,image/jxl,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7"
	case strings.HasPrefix(it.Type, "image/"):
		return "image/jxl,image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8"
	case it.Type == "text/css":
		return "text/css,*/*;q=0.1"
	}
	return "*/*"
}

// purpose is what a browser says that it fetches an object for (Fetch Metadata).
func purpose(it *item, document bool) (mode, destination string) {
	switch {
	case document:
		return "navigate", "document"
	case strings.HasPrefix(it.Type, "image/"):
		return "no-cors", "image"
	case it.Type == "text/css":
		return "no-cors", "style"
	case strings.HasSuffix(it.Type, "javascript"):
		return "no-cors", "script"
	case strings.HasPrefix(it.Type, "font/"):
		return "cors", "font"
	}
	return "cors", "empty"
}

// urgency is what Chromium says of it in the header (RFC 9218), and in the stream of HTTP/2.
func urgency(destination string) (priority string, weight uint8) {
	switch destination {
	case "document":
		return "u=0, i", 255
	case "style", "font":
		return "u=0", 255
	case "script":
		return "u=1", 219
	case "image":
		return "u=2, i", 182
	}
	return "u=1, i", 219
}
