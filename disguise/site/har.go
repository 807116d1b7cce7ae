package site

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Skipped counts what an import left out, by reason.
type Skipped map[string]int

var tooLarge = fmt.Sprintf("larger than %d MiB", MaxBody>>20)

// maxHAR is the most bytes of an HTTP archive, in which bodies are in base64.
const maxHAR = 512 << 20

// The parts of an HTTP archive (HAR 1.2) that are read. Playwright and the developer tools of browsers write them.
type (
	harEntry struct {
		Page     string    `json:"pageref"`
		Started  time.Time `json:"startedDateTime"`
		Request  harRequest
		Response harResponse
		Timings  struct{ Wait, Receive float64 }
	}
	harRequest struct {
		Method, URL string
		PostData    struct{ MimeType, Text string }
	}
	harHeader   struct{ Name, Value string }
	harResponse struct {
		Status  int
		Headers []harHeader
		Content struct{ MimeType, Text, Encoding string }
		Body    int64 `json:"bodySize"`
	}
)

// ReadHAR makes a site of an HTTP archive. The origin is that of the first page, unless origin names another one. What other origins
// answered is left out. The bytes may be hostile.
func ReadHAR(r io.Reader, origin string) (*Site, Skipped, error) {
	limited := &io.LimitedReader{R: r, N: maxHAR + 1}
	decoder := json.NewDecoder(limited)
	b := newBuilder(origin)
	err := eachEntry(decoder, b.entry)
	switch {
	case limited.N <= 0:
		return nil, nil, fmt.Errorf("it is larger than %d MiB", maxHAR>>20)
	case err != nil:
		return nil, nil, fmt.Errorf("it is no HTTP archive, or damaged: %w", err)
	}
	return b.finish()
}

// eachEntry calls take for each element of log.entries, so that no more than one is in memory.
func eachEntry(decoder *json.Decoder, take func(*harEntry) error) error {
	if err := enter(decoder, "log"); err != nil {
		return err
	}
	if err := enter(decoder, "entries"); err != nil {
		return err
	}
	if t, err := decoder.Token(); err != nil || t != json.Delim('[') {
		return errors.Join(errors.New("entries is no list"), err)
	}
	for decoder.More() {
		var e harEntry
		if err := decoder.Decode(&e); err != nil {
			return err
		}
		if err := take(&e); err != nil {
			return err
		}
	}
	_, err := decoder.Token()
	return err
}

// enter reads up to the value of a key of the object that begins here.
func enter(decoder *json.Decoder, key string) error {
	if t, err := decoder.Token(); err != nil || t != json.Delim('{') {
		return errors.Join(fmt.Errorf("there is no object with %q", key), err)
	}
	for decoder.More() {
		t, err := decoder.Token()
		if err != nil {
			return err
		}
		if t == key {
			return nil
		}
		var other json.RawMessage
		if err := decoder.Decode(&other); err != nil {
			return err
		}
	}
	return fmt.Errorf("%q is missing", key)
}

// builder collects the answers of an import.
type builder struct {
	site    *Site
	skipped Skipped
	objects map[string]int // by method and URL
	order   []string       // of the pages
	pages   map[string]*visit
	bytes   int64
}

func newBuilder(origin string) *builder {
	return &builder{site: &Site{Origin: origin}, skipped: Skipped{}, objects: map[string]int{}, pages: map[string]*visit{}}
}

type visit struct {
	page  Page
	began time.Time
}

func (b *builder) entry(e *harEntry) error {
	target, err := url.Parse(e.Request.URL)
	if err != nil || target.Scheme != "http" && target.Scheme != "https" || target.Host == "" {
		b.skipped["not of the web"]++
		return nil
	}
	if b.site.Origin == "" {
		b.site.Origin = originOf(target)
	}
	if originOf(target) != b.site.Origin {
		b.skipped["of another origin"]++
		return nil
	}
	if e.Response.Status == http.StatusNotModified {
		number, found := b.objects[e.Request.Method+" "+target.RequestURI()]
		if !found {
			b.skipped["that the browser had in its cache"]++
			return nil
		}
		return b.load(e, number)
	}
	o, why := e.object(target)
	if why != "" {
		b.skipped[why]++
		return nil
	}
	number, err := b.add(o)
	if err != nil {
		return err
	}
	return b.load(e, number)
}

// add returns the number of an object, which may be one that was fetched before.
func (b *builder) add(o *Object) (int, error) {
	key := o.Method + " " + o.URL
	if number, found := b.objects[key]; found {
		b.site.Objects[number].again(o)
		return number, nil
	}
	if b.bytes += int64(len(o.Body)); b.bytes > MaxBodies {
		return 0, fmt.Errorf("its objects have more than %d MiB", MaxBodies>>20)
	}
	if len(b.site.Objects) == MaxObjects {
		return 0, fmt.Errorf("it has more than %d objects", MaxObjects)
	}
	b.objects[key] = len(b.site.Objects)
	b.site.Objects = append(b.site.Objects, *o)
	return len(b.site.Objects) - 1, nil
}

// again notes that another visit got o. The site needed the shorter of both times, as a busy browser or network only adds to it.
func (o *Object) again(other *Object) {
	o.Varies = o.Varies || o.Status == other.Status && !bytes.Equal(o.Body, other.Body)
	o.WaitMS, o.TakeMS = min(o.WaitMS, other.WaitMS), min(o.TakeMS, other.TakeMS)
}

func (b *builder) load(e *harEntry, number int) error {
	v := b.pages[e.Page]
	if v == nil {
		o := &b.site.Objects[number]
		if o.Type != htmlType || o.Status >= 300 && o.Status < 400 {
			return nil // a redirection before the document, or what belongs to no page
		}
		if len(b.order) == MaxPages {
			return fmt.Errorf("it has more than %d pages", MaxPages)
		}
		b.order = append(b.order, e.Page)
		b.pages[e.Page] = &visit{Page{Document: number, Loads: []Load{}, Links: []int{}}, e.Started}
		return nil
	}
	if len(v.page.Loads) == maxLoads {
		b.skipped["beyond the objects of one page"]++
		return nil
	}
	v.page.Loads = append(v.page.Loads, Load{number, max(0, e.Started.Sub(v.began).Milliseconds())})
	return nil
}

func (b *builder) finish() (*Site, Skipped, error) {
	for _, name := range b.order {
		b.site.Pages = append(b.site.Pages, b.pages[name].page)
	}
	if len(b.site.Pages) == 0 {
		return nil, b.skipped, errors.New("it has no page: no answer of the origin is HTML")
	}
	b.site.merge()
	b.site.link()
	return b.site, b.skipped, b.site.check()
}

const htmlType = "text/html"

// object returns what an entry answered, or why it is left out.
func (e *harEntry) object(target *url.URL) (o *Object, why string) {
	o = &Object{Method: e.Request.Method, URL: target.RequestURI(), Status: e.Response.Status, Wire: max(-1, e.Response.Body),
		WaitMS: millis(e.Timings.Wait), TakeMS: millis(e.Timings.Receive), Header: []Field{}, Cookies: []Cookie{}}
	content := &e.Response.Content
	o.Body = []byte(content.Text)
	if content.Encoding == "base64" {
		body, err := base64.StdEncoding.DecodeString(content.Text)
		if err != nil {
			return nil, "with a body that is no base64"
		}
		o.Body = body
	}
	if len(o.Body) > MaxBody {
		return nil, tooLarge
	}
	if len(o.Body) == 0 && e.Response.Body > 0 {
		return nil, "without the body"
	}
	o.Type = mediaType(content.MimeType)
	for _, h := range e.Response.Headers {
		o.field(strings.ToLower(h.Name), h.Value)
	}
	if posted := e.Request.PostData; o.Method == "POST" && posts(mediaType(posted.MimeType)) && len(posted.Text) <= maxPosted {
		o.Posted, o.PostedType = []byte(posted.Text), mediaType(posted.MimeType)
	}
	o.Size = int64(len(o.Body))
	if o.check() != nil {
		return nil, "out of bounds"
	}
	return o, ""
}

// field keeps what is needed of a header.
func (o *Object) field(name, value string) {
	switch {
	case name == "set-cookie":
		for line := range strings.SplitSeq(value, "\n") { // the developer tools join several with newlines
			o.cookie(line)
		}
	case name == "content-encoding" && len(value) <= 20:
		o.Encoding = strings.ToLower(value)
	case slices.Contains(kept, name) && len(value) <= maxField && !strings.ContainsAny(value, "\r\n\x00"):
		o.Header = append(o.Header, Field{name, value})
	}
}

func (o *Object) cookie(line string) {
	pair, _, _ := strings.Cut(line, ";")
	name, value, found := strings.Cut(pair, "=")
	if name = strings.TrimSpace(name); found && name != "" && len(name) <= maxField && len(o.Cookies) < maxCookies {
		o.Cookies = append(o.Cookies, Cookie{name, len(value), Alphabet(value)})
	}
}

func mediaType(text string) string {
	kind, _, err := mime.ParseMediaType(text)
	if err != nil {
		return "application/octet-stream"
	}
	return kind
}

// millis bounds a time that a stranger wrote.
func millis(ms float64) int64 {
	if !(ms > 0) {
		return 0
	}
	return int64(min(ms, float64(time.Hour.Milliseconds())))
}
