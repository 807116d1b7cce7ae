package site

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"heddle/internal/contentcoding"
	"heddle/observe"
	"heddle/observe/decrypt"
)

// ReadCapture makes a site of the HTTP/1.1 and HTTP/2 connections of a capture; the keys open those of TLS 1.3. The origin is that of the
// first page, unless origin names another one. A capture does not say which page an object belongs to: it is the last one that the
// browser had asked for. The capture may be hostile.
func ReadCapture(all []observe.Conversation, keys decrypt.Keys, origin string) (*Site, Skipped, error) {
	b := newBuilder(origin)
	var found []exchange
	for i := range all {
		c, err := open(&all[i], keys)
		if err != nil {
			b.skipped["or more, of connections that no key log opens"]++
			continue
		}
		found = append(found, c.exchanges()...)
	}
	slices.SortStableFunc(found, func(x, y exchange) int { return x.asked.Compare(y.asked) })
	page := 0
	for i := range found {
		x := &found[i]
		e, why := x.entry()
		if why != "" {
			b.skipped[why]++
			continue
		}
		if x.navigation(e) {
			page++
		}
		e.Page = strconv.Itoa(page)
		if err := b.entry(e); err != nil {
			return nil, b.skipped, err
		}
	}
	return b.finish()
}

// stream is one direction of a connection without its TLS.
type stream struct {
	data     []byte
	arrivals []observe.Arrival
}

func (s stream) at(offset int) time.Time { return observe.ArrivalOf(s.arrivals, offset) }

// connection is one connection of a capture.
type connection struct {
	up, down stream
	base     string // scheme and address of its server, for requests that do not name a host
	scheme   string
}

// open takes the TLS off a conversation, as far as it goes: one that an end breaks off may have said nothing.
func open(c *observe.Conversation, keys decrypt.Keys) (connection, error) {
	if !decrypt.IsTLS(c.Up) {
		return connection{stream{c.Up, c.UpAt}, stream{c.Down, c.DownAt}, c.Server.String(), "http"}, nil
	}
	client, server, err := decrypt.Records(c.Up, c.Down, keys)
	if errors.Is(err, decrypt.ErrNoKeys) || errors.Is(err, decrypt.ErrNoTLS) {
		return connection{}, err
	}
	return connection{plain(client, c.UpAt), plain(server, c.DownAt), c.Server.String(), "https"}, nil
}

// plain is what records say; it was there when the last byte of a record was.
func plain(records []decrypt.Record, arrivals []observe.Arrival) (s stream) {
	for _, r := range records {
		s.data = append(s.data, r.Text...)
		s.arrivals = append(s.arrivals, observe.Arrival{End: len(s.data), At: observe.ArrivalOf(arrivals, r.At+max(0, len(r.Text)-1))})
	}
	return s
}

// exchange is a request and its answer.
type exchange struct {
	method, url        string
	request, response  http.Header
	status             int
	posted             []byte // at most one byte more than is kept
	body               []byte // as on the wire
	asked, first, last time.Time
	whole              bool
}

func (c *connection) exchanges() []exchange {
	if bytes.HasPrefix(c.up.data, []byte(http2Preface)) {
		return c.http2()
	}
	return c.http1()
}

func (c *connection) http1() (all []exchange) {
	up, down := newCounted(c.up.data), newCounted(c.down.data)
	for {
		start := up.offset()
		r, err := http.ReadRequest(up.Reader)
		if err != nil {
			return all
		}
		posted, err := io.ReadAll(io.LimitReader(r.Body, maxPosted+1))
		if _, rest := io.Copy(io.Discard, r.Body); err != nil || rest != nil {
			return all
		}
		x := exchange{method: r.Method, posted: posted, url: c.scheme + "://" + or(r.Host, c.base) + r.URL.RequestURI(), request: r.Header, asked: c.up.at(start)}
		answer, start, err := finalAnswer(down, r)
		if err != nil {
			return all
		}
		x.status, x.response, x.first = answer.StatusCode, answer.Header, c.down.at(start)
		x.body, err = io.ReadAll(io.LimitReader(answer.Body, MaxBody+1))
		x.whole = err == nil
		x.last = c.down.at(max(start, down.offset()-1))
		all = append(all, x)
		if _, err := io.Copy(io.Discard, answer.Body); err != nil || x.status == http.StatusSwitchingProtocols {
			return all
		}
	}
}

// finalAnswer reads the answer that follows those of 1xx, and tells where it begins.
func finalAnswer(down counted, r *http.Request) (answer *http.Response, start int, err error) {
	for {
		start = down.offset()
		answer, err = http.ReadResponse(down.Reader, r)
		if err != nil || answer.StatusCode >= 200 || answer.StatusCode == http.StatusSwitchingProtocols {
			return answer, start, err
		}
	}
}

// counted is a reader that tells how much was read.
type counted struct {
	*bufio.Reader
	under *bytes.Reader
}

func newCounted(data []byte) counted {
	under := bytes.NewReader(data)
	return counted{bufio.NewReader(under), under}
}

func (c counted) offset() int { return int(c.under.Size()) - c.under.Len() - c.Buffered() }

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// entry is the exchange in the words of an HTTP archive, or why there is none.
func (x *exchange) entry() (e *harEntry, why string) {
	if !x.whole {
		return nil, "that the capture has no end of"
	}
	if len(x.body) > MaxBody {
		return nil, tooLarge
	}
	body, err := decoded(x.response, x.body)
	if err != nil {
		return nil, "whose body " + err.Error()
	}
	e = &harEntry{Started: x.asked, Request: harRequest{Method: x.method, URL: x.url}}
	e.Request.PostData.MimeType, e.Request.PostData.Text = x.request.Get("Content-Type"), string(x.posted)
	e.Response.Status, e.Response.Body = x.status, int64(len(x.body))
	e.Response.Content.MimeType, e.Response.Content.Text = x.response.Get("Content-Type"), string(body)
	for _, name := range slices.Sorted(maps.Keys(x.response)) {
		for _, value := range x.response[name] {
			e.Response.Headers = append(e.Response.Headers, harHeader{name, value})
		}
	}
	e.Timings.Wait = float64(x.first.Sub(x.asked).Microseconds()) / 1000
	e.Timings.Receive = float64(x.last.Sub(x.first).Microseconds()) / 1000
	return e, ""
}

// decoded takes the content coding off a body.
func decoded(header http.Header, raw []byte) ([]byte, error) {
	coding, decode, err := contentcoding.Of(header.Values("Content-Encoding"))
	if err != nil {
		return nil, fmt.Errorf("has %w", err)
	}
	if coding == "" || len(raw) == 0 {
		return raw, nil
	}
	r, err := decode(bytes.NewReader(raw))
	if err != nil {
		return nil, errors.New("cannot be decoded")
	}
	defer r.Close()
	body, err := io.ReadAll(io.LimitReader(r, MaxBody+1))
	if err != nil {
		return nil, errors.New("cannot be decoded")
	}
	return body, nil
}

// navigation tells that the browser asked for a page. It says so by Sec-Fetch-Dest (Fetch Metadata, W3C), but not to servers without
// TLS.
func (x *exchange) navigation(e *harEntry) bool {
	if to := x.request.Get("Sec-Fetch-Dest"); to != "" {
		return to == "document"
	}
	return x.request.Get("Upgrade-Insecure-Requests") == "1" && (mediaType(e.Response.Content.MimeType) == htmlType || x.status == http.StatusNotModified)
}
