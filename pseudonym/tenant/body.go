package tenant

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"heddle/internal/contentcoding"
	"heddle/pseudonym/tenant/page"
)

// newTransport returns the way to the site's server. It uses no proxy that the environment names, and leaves encodings alone.
func newTransport() *http.Transport {
	return &http.Transport{DialContext: (&net.Dialer{Timeout: dialFor}).DialContext, ForceAttemptHTTP2: true, DisableCompression: true, MaxIdleConnsPerHost: 256,
		IdleConnTimeout: idleFor, TLSHandshakeTimeout: dialFor, ExpectContinueTimeout: time.Second}
}

// changer changes what is read.
type changer func(io.Writer, io.Reader) error

// Rewrites returns the names of the kinds of content that a site may want changed too.
func Rewrites() []string { return slices.Sorted(maps.Keys(more)) }

var more = map[string][]string{
	"scripts": {"text/javascript", "application/javascript", "application/x-javascript", "application/ecmascript", "text/ecmascript"},
	"json":    {"application/json", "application/ld+json", "application/manifest+json", "application/importmap+json"},
}

// changerOf returns what replaces a host in a kind of content, or nil for kinds that stay as they are.
func changerOf(kind string, rewrite []string, h *page.Host) changer {
	switch kind {
	case "text/html", "application/xhtml+xml", "image/svg+xml":
		return h.HTML
	}
	if kind == "text/css" || slices.ContainsFunc(rewrite, func(name string) bool { return slices.Contains(more[name], kind) }) {
		return func(w io.Writer, r io.Reader) error {
			_, err := io.Copy(w, h.Text(r))
			return err
		}
	}
	return nil
}

// kindOf returns the type of an answer as a browser sees it, which looks into the content if no type is given (MIME Sniffing, sections 5.1
// and 7). Then it sets the header, so that the browser sees the same.
func kindOf(r *http.Response) string {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	switch kind = strings.ToLower(strings.TrimSpace(kind)); {
	case !strings.Contains(kind, "/"), kind == "unknown/unknown", kind == "application/unknown", kind == "*/*":
	default:
		return kind
	}
	if r.StatusCode < http.StatusOK || r.StatusCode == http.StatusNoContent || r.StatusCode == http.StatusNotModified || r.Request.Method == http.MethodHead {
		return ""
	}
	kind = "application/octet-stream"
	if r.Header.Get("Content-Encoding") == "" {
		first := make([]byte, 512)
		n, err := r.Body.Read(first)
		r.Body = &peeked{io.MultiReader(bytes.NewReader(first[:n]), failed{err}, r.Body), r.Body}
		kind = http.DetectContentType(first[:n])
	}
	r.Header.Set("Content-Type", kind)
	kind, _, _ = strings.Cut(kind, ";")
	return kind
}

// peeked is a body whose beginning was read.
type peeked struct {
	io.Reader
	io.Closer
}

// failed reads nothing, and fails if err is not the end.
type failed struct{ err error }

func (f failed) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}

// whole asks again for all of a page that comes in part: lengths and names in a part cannot be changed so that parts fit together.
type whole struct {
	http.RoundTripper
	rewrite []string
}

// RoundTrip implements [http.RoundTripper].
func (t whole) RoundTrip(q *http.Request) (*http.Response, error) {
	r, err := t.RoundTripper.RoundTrip(q)
	if err != nil || !t.inPart(r) {
		return r, err
	}
	r.Body.Close()
	if q.Method != http.MethodGet && q.Method != http.MethodHead || q.ContentLength != 0 {
		return nil, errors.New("it sends a part of a page")
	}
	q = q.Clone(q.Context())
	q.Header.Del("Range")
	q.Header.Del("If-Range")
	r, err = t.RoundTripper.RoundTrip(q)
	if err == nil && t.inPart(r) {
		r.Body.Close()
		return nil, errors.New("it sends a part of a page that was asked for as a whole")
	}
	return r, err
}

func (t whole) inPart(r *http.Response) bool {
	if r.StatusCode != http.StatusPartialContent {
		return false
	}
	kind := kindOf(r)
	return kind == "multipart/byteranges" || changerOf(kind, t.rewrite, &page.Host{}) != nil
}

// pages replaces the site's name in pages and style sheets.
func (h *handler) pages(r *http.Response, host *page.Host) error {
	if r.StatusCode == http.StatusSwitchingProtocols {
		return nil
	}
	change := changerOf(kindOf(r), h.rewrite, host)
	if change == nil {
		return nil
	}
	// Some servers send an encoding that nobody asked for.
	encoding, decode, err := contentcoding.Of(r.Header.Values("Content-Encoding"))
	if err != nil {
		return fmt.Errorf("it sends a page in %w", err)
	}
	// The site's server was asked for one encoding, or none, as the client wants it.
	packs := encoding != "" && r.Request.Header.Get("Accept-Encoding") == gzipped
	r.Header.Del("Content-Encoding")
	if packs {
		r.Header.Set("Content-Encoding", gzipped)
	}
	if answer, is := r.Request.Context().Value(evenKey{}).(*even); is {
		answer.known = r.ContentLength >= 0
	}
	for _, key := range []string{"Content-Length", "Accept-Ranges", "Content-MD5", "Digest", "Content-Digest", "Repr-Digest"} {
		r.Header.Del(key)
	}
	r.ContentLength = -1
	if tag := r.Header.Get("ETag"); tag != "" && !strings.HasPrefix(tag, "W/") {
		r.Header.Set("ETag", "W/"+tag)
	}
	if r.Request.Method == http.MethodHead || r.StatusCode == http.StatusNoContent || r.StatusCode == http.StatusNotModified {
		return nil
	}
	from, to := io.Pipe()
	body := r.Body
	go func() { to.CloseWithError(recode(to, body, decode, packs, change)) }()
	r.Body = changed{from, body}
	return nil
}

// recode changes content, which decode unpacks. It packs it again fast, since this is done for each request.
func recode(w io.Writer, r io.Reader, decode contentcoding.Decoder, packs bool, change changer) error {
	in, err := decode(r)
	if err != nil {
		return fmt.Errorf("a page cannot be unpacked: %w", err)
	}
	defer in.Close()
	if !packs {
		return change(w, in)
	}
	out := newPacker(w)
	return errors.Join(change(out, in), out.Close())
}

// changed is the body of an answer that is changed while it passes.
type changed struct {
	*io.PipeReader
	body io.Closer
}

func (c changed) Close() error { return errors.Join(c.PipeReader.Close(), c.body.Close()) }
