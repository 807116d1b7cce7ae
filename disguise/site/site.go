// Package site holds what a browser fetched of a website: the pages and objects among which a web cover hides its payload. Bridge and
// client have the same site, so that both know each object as it was recorded.
package site

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Site is one recorded website, of one origin.
type Site struct {
	Fingerprint [8]byte  `json:"-"`      // the first bytes of the SHA-256 of the index, which names each body by its hash
	About       string   `json:"about"`  // where it is from
	Origin      string   `json:"origin"` // scheme and authority, such as https://www.example
	Pages       []Page   `json:"pages"`
	Objects     []Object `json:"objects"`
}

// Page is one visit of a page. Numbers are indices of [Site.Objects].
type Page struct {
	Document int    `json:"document"`
	Loads    []Load `json:"loads"` // in the order of the requests; the document is not among them
	Links    []int  `json:"links"` // documents of other pages to which it links
}

// Load is one object that a page loads.
type Load struct {
	Object int   `json:"object"`
	At     int64 `json:"at_ms"` // when the browser asked, in ms since it asked for the document; 0 where nothing was recorded
}

// Object is one answer of the site.
type Object struct {
	Method   string   `json:"method"`
	URL      string   `json:"url"` // path and query
	Status   int      `json:"status"`
	Type     string   `json:"type"`     // media type without parameters
	Header   []Field  `json:"header"`   // of those that say how the object is cached and understood
	Cookies  []Cookie `json:"cookies"`  // that the answer sets
	Encoding string   `json:"encoding"` // of the content on the wire, such as gzip
	Wire     int64    `json:"wire"`     // bytes of the body on the wire, or -1 where nothing was recorded
	WaitMS   int64    `json:"wait_ms"`  // from the request to the first byte of the answer, the least of all visits
	TakeMS   int64    `json:"take_ms"`  // from there to the last one, the least of all visits
	Varies   bool     `json:"varies"`   // another visit got other bytes from the same URL
	Sum      string   `json:"sum"`      // SHA-256 of the body, in hex
	Size     int64    `json:"size"`     // bytes of the body, decoded
	Body     []byte   `json:"-"`
	// Posted is the body of a request by POST, of the type PostedType: JSON or a form. Others are not kept.
	Posted     []byte `json:"posted,omitempty"`
	PostedType string `json:"posted_type,omitempty"`
}

// Field is one header of an answer.
type Field struct {
	Name  string `json:"name"` // in lower case
	Value string `json:"value"`
}

// Cookie is a cookie without its value, which would show the session of whoever recorded the site.
type Cookie struct {
	Name     string `json:"name"`
	Length   int    `json:"length"`   // bytes of the value
	Alphabet string `json:"alphabet"` // see [Alphabet]
}

// Bounds of a site: hostile recordings end here.
const (
	MaxObjects = 4096
	MaxPages   = 512
	MaxBody    = 16 << 20  // bytes of one object
	MaxBodies  = 128 << 20 // bytes of all objects
	maxLoads   = 1024      // of one page
	maxLinks   = 1024      // of one page
	maxURL     = 2048      // bytes
	maxField   = 1024      // bytes of a header's value
	maxCookies = 32        // of one object
	maxText    = 2000      // bytes
	maxPosted  = 256 << 10 // bytes of the body of a request
)

// kept are the headers that say how an answer is cached and understood. Others may hold secrets of whoever recorded, and the bridge
// writes its own.
var kept = []string{"content-type", "cache-control", "etag", "last-modified", "expires", "vary", "location", "accept-ranges", "content-language",
	"content-disposition", "content-security-policy", "digest", "content-digest", "repr-digest", "service-worker-allowed"}

// Get returns the value of a header, or "".
func (o *Object) Get(name string) string {
	for _, f := range o.Header {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// Fresh tells why each visit may get other bytes from the URL of the object, or that none does, with "". Only such objects may carry
// payload: of the others a censor can compare what two visitors got.
func (o *Object) Fresh() string {
	if o.Method != "GET" && o.Method != "HEAD" {
		return "the answer to a " + o.Method
	}
	if o.Varies {
		return "differed between two visits"
	}
	for directive := range strings.SplitSeq(strings.ToLower(o.Get("cache-control")), ",") {
		switch directive = strings.TrimSpace(directive); directive {
		case "no-store", "private", "no-cache", "max-age=0":
			return "Cache-Control: " + directive
		}
	}
	return ""
}

// posts reports whether the body of a request is kept.
func posts(mediaType string) bool {
	return mediaType == "application/json" || mediaType == "application/x-www-form-urlencoded"
}

// Alphabet names the narrowest set of characters that holds all of text: "digits", "hex", "alphanumeric", "base64url", "base64" or
// "other". It is "" for no text.
func Alphabet(text string) string {
	if text == "" {
		return ""
	}
	for _, a := range []struct{ name, characters string }{
		{"digits", digits}, {"hex", digits + "abcdef"}, {"alphanumeric", digits + letters}, {"base64url", digits + letters + "-_="},
		{"base64", digits + letters + "+/="},
	} {
		if strings.Trim(text, a.characters) == "" && !strings.ContainsFunc(text, func(r rune) bool { return !strings.ContainsRune(a.characters, r) }) {
			return a.name
		}
	}
	return "other"
}

const (
	digits  = "0123456789"
	letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// check says what is wrong with a site that a stranger wrote. Bodies are not looked at.
func (s *Site) check() error {
	origin, err := url.Parse(s.Origin)
	switch {
	case err != nil || origin.Scheme != "http" && origin.Scheme != "https" || origin.Host == "" || s.Origin != originOf(origin):
		return fmt.Errorf("its origin %.100q is no http or https origin", s.Origin)
	case len(s.About) > maxText:
		return fmt.Errorf("its text has %d bytes, more than %d", len(s.About), maxText)
	case len(s.Objects) == 0 || len(s.Objects) > MaxObjects:
		return fmt.Errorf("it has %d objects, not 1 to %d", len(s.Objects), MaxObjects)
	case len(s.Pages) == 0 || len(s.Pages) > MaxPages:
		return fmt.Errorf("it has %d pages, not 1 to %d", len(s.Pages), MaxPages)
	}
	var all int64
	for i := range s.Objects {
		o := &s.Objects[i]
		if err := o.check(); err != nil {
			return fmt.Errorf("object %d: %w", i, err)
		}
		if all += o.Size; all > MaxBodies {
			return fmt.Errorf("its objects have more than %d MiB", MaxBodies>>20)
		}
	}
	for i, p := range s.Pages {
		if len(p.Loads) > maxLoads || len(p.Links) > maxLinks {
			return fmt.Errorf("page %d has %d objects and %d links, more than %d or %d", i, len(p.Loads), len(p.Links), maxLoads, maxLinks)
		}
		numbers := append([]int{p.Document}, p.Links...)
		for _, l := range p.Loads {
			numbers = append(numbers, l.Object)
		}
		if slices.Min(numbers) < 0 || slices.Max(numbers) >= len(s.Objects) {
			return fmt.Errorf("page %d names an object that there is not", i)
		}
	}
	return nil
}

func (o *Object) check() error {
	_, err := url.ParseRequestURI(o.URL)
	switch {
	case err != nil || !strings.HasPrefix(o.URL, "/") || strings.HasPrefix(o.URL, "//") || len(o.URL) > maxURL || strings.ContainsAny(o.URL, "\r\n\x00 "):
		return fmt.Errorf("%.100q is no path with a query", o.URL)
	case o.Status < 100 || o.Status > 599:
		return fmt.Errorf("it has the status %d", o.Status)
	case o.Method != "GET" && o.Method != "HEAD" && o.Method != "POST":
		return fmt.Errorf("it has the method %.20q", o.Method)
	case o.Size < 0 || o.Size > MaxBody:
		return fmt.Errorf("it has %d bytes, more than %d", o.Size, MaxBody)
	case len(o.Posted) > maxPosted || o.Method != "POST" && len(o.Posted) > 0:
		return fmt.Errorf("its request has a body of %d bytes, more than %d, or is no POST", len(o.Posted), maxPosted)
	case len(o.Posted) > 0 && !posts(o.PostedType):
		return fmt.Errorf("its request has a body of the type %.100q", o.PostedType)
	case len(o.Cookies) > maxCookies:
		return fmt.Errorf("it sets %d cookies, more than %d", len(o.Cookies), maxCookies)
	}
	for _, f := range o.Header {
		if !slices.Contains(kept, f.Name) || len(f.Value) > maxField || strings.ContainsAny(f.Value, "\r\n\x00") {
			return fmt.Errorf("it has the header %.100q, or its value does not fit", f.Name)
		}
	}
	return nil
}

func originOf(u *url.URL) string { return u.Scheme + "://" + strings.ToLower(u.Host) }
