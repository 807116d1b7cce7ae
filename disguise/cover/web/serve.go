package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"io"
	"log"
	mrand "math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"heddle/disguise/carrier"
	"heddle/disguise/cover"
	"heddle/disguise/site"
	"heddle/internal/draw"
	"heddle/internal/pacing"
	"heddle/internal/unsent"
)

// Bounds of what a visitor can make the bridge hold or wait for.
const (
	mostHeaders  = 32 << 10 // bytes
	mostBody     = 512 << 10
	headPatience = 30 * time.Second // for the head of a request
	bodyPatience = time.Minute      // for the rest of it
	sendPatience = time.Minute      // for an answer, and 1 s more for each sendRate bytes
	sendRate     = 8 << 10
	mostThink    = 300 * time.Millisecond // before an answer, if the site needed as long
	mostPauses   = 300 * time.Millisecond // in an answer with much that differs, or that a script asks for without telling anything
	mostReply    = 100 * time.Millisecond // before another answer to a script
	mostStreams  = 100                    // requests at a time, over HTTP/2
	mostFresh    = 8                      // answers of them that are held in memory
	mostUnsent   = 16 << 10               // bytes in the kernel
)

// quietOf draws how long an idle connection stays open. Websites differ in this.
func quietOf(seed []byte) time.Duration {
	r := mrand.New(mrand.NewChaCha8(sha256.Sum256(append([]byte("heddle disguise 1 cover http idle"), seed...))))
	return 5*time.Minute + time.Duration(r.IntN(300))*time.Second
}

// visitor is one connection at the bridge. Over HTTP/2 its handler runs for several requests at once.
type visitor struct {
	*factory
	reading sync.Mutex // one body at a time is held in memory
	fresh   chan struct{}

	mu       sync.Mutex
	enter    cover.Enter // nil if the hello was read
	feed     cover.Gauge // nil for a stranger
	heads    *heads
	stranger bool
	payloads uint64 // answers with a payload so far

	// Inside TLS.
	mark  [markSize]byte
	known func(*guest) // behind another web server, is called when a client entered
	units order        // of requests
	parts uint32       // of answers so far

	conn   net.Conn       // nil inside TLS
	member *pacing.Member // of the link's connections; nil for strangers

	sending chan struct{} // held by the answer that sends a part
	useful  time.Time     // when one last carried more than padding; who sends guards it
}

// welcome makes a client of a visitor.
func (v *visitor) welcome(feed cover.Gauge, g *guest) {
	v.feed, v.heads, v.mark = feed, g.heads, g.marks.direct
	if v.known != nil {
		v.mark = g.marks.behind
		v.known(g)
	}
	v.share()
}

// share lets the connection of a client share a window with others of its link. v.mu is held.
func (v *visitor) share() {
	if v.feed != nil && v.conn != nil && v.member == nil {
		v.member = v.shares.Join(v.feed.Route(), v.conn)
	}
}

// turn returns the turn of an answer that carries much.
func (v *visitor) turn(it *item) *pacing.Turn {
	v.mu.Lock()
	defer v.mu.Unlock()
	if it.carries() < leastBulk {
		return nil
	}
	return v.member.Begin()
}

// client reports whether the visitor is one.
func (v *visitor) client() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.feed != nil
}

// Host implements [cover.Host].
func (f *factory) Host(ctx context.Context, c net.Conn, enter cover.Enter) {
	f.serve(ctx, c, &visitor{factory: f, enter: enter})
}

// serve is the website for one connection.
func (f *factory) serve(ctx context.Context, c net.Conn, v *visitor) {
	_ = unsent.Limit(c, mostUnsent) // without it a client's data wait longer
	c = pacing.New(c)
	if f.tls != nil {
		c = tls.Server(c, f.tls)
	} else { // inside TLS a client has one connection, mostly
		v.mu.Lock()
		v.conn = c
		v.share()
		v.mu.Unlock()
	}
	v.begin()
	f.converse(ctx, c, v)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.leave()
	v.member.Leave()
}

func (v *visitor) begin() {
	v.fresh, v.sending, v.units.most = make(chan struct{}, mostFresh), make(chan struct{}, 1), mostUnits
}

// converse lets a handler answer what comes by one connection, until it ends.
func (f *factory) converse(ctx context.Context, c net.Conn, h http.Handler) {
	defer context.AfterFunc(ctx, func() { c.Close() })()
	var taken atomic.Bool // the origin speaks another protocol on it, such as that of WebSockets
	done := make(chan struct{})
	var running handlers
	handler := func(w http.ResponseWriter, r *http.Request) {
		if !running.enter() {
			return
		}
		defer running.group.Done()
		defer func() {
			if taken.Load() {
				close(done)
			}
		}()
		h.ServeHTTP(w, r)
	}
	s := &http.Server{Handler: http.HandlerFunc(handler), ReadHeaderTimeout: headPatience, IdleTimeout: f.quiet, MaxHeaderBytes: mostHeaders,
		ErrorLog: log.New(io.Discard, "", 0), DisableGeneralOptionsHandler: true, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: mostStreams, WriteByteTimeout: sendPatience},
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateHijacked:
				taken.Store(true)
			case http.StateClosed:
				close(done)
			}
		}}
	_ = s.Serve(&single{c: c, done: done})
	<-done
	running.end()
}

// handlers counts the ones that run. Those of HTTP/2 outlive their connection, and may begin after its end.
type handlers struct {
	mu    sync.Mutex
	ended bool
	group sync.WaitGroup
}

// enter reports whether a handler may run.
func (h *handlers) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.group.Add(1)
	}
	return !h.ended
}

// end lets no other handler run, and waits for those that do.
func (h *handlers) end() {
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	h.group.Wait()
}

// single is a listener with one connection. It ends with it.
type single struct {
	c    net.Conn
	once sync.Once
	done chan struct{}
}

func (s *single) Accept() (c net.Conn, err error) {
	s.once.Do(func() { c = s.c })
	if c == nil {
		<-s.done
		return nil, net.ErrClosed
	}
	return c, nil
}

func (s *single) Close() error   { return nil }
func (s *single) Addr() net.Addr { return s.c.LocalAddr() }

// ServeHTTP implements [http.Handler].
func (v *visitor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if v.origin != nil && (r.ContentLength < 0 || r.ContentLength > mostBody) { // no client posts so
		v.origin.ServeHTTP(w, r)
		return
	}
	control := http.NewResponseController(w)
	body, err := v.body(w, r)
	if err != nil {
		v.mu.Lock()
		v.leave()
		v.mu.Unlock()
		http.Error(w, http.StatusText(http.StatusRequestEntityTooLarge), http.StatusRequestEntityTooLarge)
		return
	}
	method, target := asked(r)
	it, hidden := v.match(method, target, body)
	if it != nil && r.Method != http.MethodHead {
		v.receive(it, hidden, r)
	}
	switch {
	case v.origin != nil && (it == nil || v.sealed && !v.client()): // over plain HTTP a client's answers are seen, so strangers get the same ones
		if len(body) > 0 {
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		v.origin.ServeHTTP(w, r)
		return
	case it == nil:
		v.refuse(w, r, target)
		return
	}
	_ = control.SetWriteDeadline(time.Now().Add(sendPatience + time.Duration(len(it.Body)/sendRate)*time.Second))
	v.cookies(w, r, it)
	it.describe(w.Header())
	if v.sealed && v.carry(w, r, it) {
		return
	}
	if it.Fresh() != "" {
		v.differing(w, r, it, keyOf(method, target, body), len(hidden) > 0)
		return
	}
	v.stable(w, r, it)
}

// asked is what a request asks a catalogue for.
func asked(r *http.Request) (method, target string) {
	if method, target = r.Method, r.RequestURI; method == http.MethodHead {
		method = http.MethodGet
	}
	if !strings.HasPrefix(target, "/") {
		target = r.URL.RequestURI()
	}
	return method, target
}

// body reads the body of a request.
func (v *visitor) body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength == 0 {
		return nil, nil
	}
	v.reading.Lock()
	defer v.reading.Unlock()
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyPatience))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBody))
	if err == nil { // or else net/http would wait for the rest of it
		_ = control.SetReadDeadline(time.Time{})
	}
	return body, err
}

// describe sets the recorded headers.
func (it *item) describe(h http.Header) {
	for _, f := range it.Header {
		h.Set(f.Name, f.Value)
	}
	if it.Type != "" && h.Get("Content-Type") == "" {
		h.Set("Content-Type", it.Type)
	}
}

// refuse answers a request for what the site does not have.
func (v *visitor) refuse(w http.ResponseWriter, r *http.Request, target string) {
	if known, _ := v.match(http.MethodGet, target, nil); known != nil && r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
		return
	}
	if v.lost == nil {
		http.NotFound(w, r)
		return
	}
	v.lost.describe(w.Header())
	v.send(w, r, v.lost, v.lost.Body, v.lost.packed)
}

// receive passes on what a request for an item hides.
func (v *visitor) receive(it *item, hidden []byte, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.sealed {
		v.takeUnit(unit(hidden, r))
	} else if len(hidden) > 0 {
		hidden = bytes.Clone(hidden)
		v.binding.apply(it.number, hidden)
		v.take(hidden)
	}
}

// take passes on the next bytes of the link. v.mu is held.
func (v *visitor) take(hidden []byte) {
	switch {
	case v.feed != nil:
		if v.feed.Take(hidden) != nil {
			v.leave()
		}
	case v.enter != nil && !v.stranger:
		feed, shape, err := v.enter(hidden)
		if err != nil {
			v.stranger = true
			return
		}
		if g, ok := shape.(*guest); ok && feed != nil {
			v.welcome(feed, g)
		}
	}
}

// leave makes a stranger of a visitor: what it hid was changed on the way, or its link is over. v.mu is held.
func (v *visitor) leave() { v.feed, v.stranger = nil, true }

// cookies sets those that the object set, unless the visitor has them.
func (v *visitor) cookies(w http.ResponseWriter, r *http.Request, it *item) {
	for _, c := range it.Cookies {
		if _, err := r.Cookie(c.Name); err != nil {
			w.Header().Add("Set-Cookie", c.Name+"="+cookieValue(c)+"; Path=/")
		}
	}
}

// cookieValue draws a value of the recorded length and alphabet.
func cookieValue(c site.Cookie) string {
	b := make([]byte, c.Length)
	_, _ = rand.Read(b) // it never fails
	switch c.Alphabet {
	case "digits":
		for i := range b {
			b[i] = '0' + b[i]%10
		}
		return string(b)
	case "hex":
		return hex.EncodeToString(b)[:c.Length]
	case "base64":
		return base64.StdEncoding.EncodeToString(b)[:c.Length]
	case "alphanumeric":
		return strings.NewReplacer("-", "a", "_", "b").Replace(base64.URLEncoding.EncodeToString(b)[:c.Length])
	}
	return base64.URLEncoding.EncodeToString(b)[:c.Length]
}

// stale are headers of the recorded bytes, which an answer with other bytes cannot have.
var stale = []string{"etag", "last-modified", "digest", "content-digest", "repr-digest", "accept-ranges"}

func withoutValidators(h http.Header) {
	for _, name := range stale {
		h.Del(name)
	}
}

// differing answers with an object that differs at each visit: for everybody something is hidden in it.
func (v *visitor) differing(w http.ResponseWriter, r *http.Request, it *item, key requestKey, tokens bool) {
	withoutValidators(w.Header())
	think(it)
	// The context of the request is of no use here: it also ends when the visitor has sent her last request, and then she still gets the answers.
	v.fresh <- struct{}{}
	defer func() { <-v.fresh }()
	if it.down == 0 {
		v.send(w, r, it, it.Body, it.packed)
		return
	}
	hidden := v.hide(it, key, tokens)
	defer hidden.Close()
	if v.sealed { // a client's answer has a length too
		var body bytes.Buffer
		_ = carrier.Write(&body, it.answer, it.Body, hidden) // neither of them fails
		v.send(&stalling{w, draw.Below(body.Len()), it.stranger()}, r, it, body.Bytes(), func() []byte { return pack(body.Bytes()) })
		return
	}
	out := io.Writer(flushing{w, http.NewResponseController(w)})
	if v.compresses(w, r, it) {
		packed := gzip.NewWriter(w)
		defer packed.Close()
		out = packed
	}
	w.WriteHeader(it.Status)
	if r.Method == http.MethodHead {
		return
	}
	_ = carrier.Write(out, it.answer, it.Body, hidden) // the connection ends if it fails
}

// flushing lets what was written leave.
type flushing struct {
	io.Writer
	*http.ResponseController
}

// think waits as long as the site did before it answered, or half as long at least. It is the same for everybody.
func think(it *item) { time.Sleep(partOf(min(time.Duration(it.WaitMS)*time.Millisecond, mostThink))) }

// partOf draws a time between half of the most and all of it.
func partOf(most time.Duration) time.Duration {
	return most/2 + time.Duration(draw.Below(int(most/2)+1))
}

// stable answers with an object as it was recorded: the same bytes for everybody, with ranges and conditions.
func (v *visitor) stable(w http.ResponseWriter, r *http.Request, it *item) {
	if it.Status != http.StatusOK || it.Method != http.MethodGet {
		v.send(w, r, it, it.Body, it.packed)
		return
	}
	body := it.Body
	if v.compresses(w, r, it) {
		body = it.packed()
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	modified, _ := http.ParseTime(it.Get("last-modified"))
	http.ServeContent(w, r, "", modified, bytes.NewReader(body))
}

// compresses decides whether an answer is compressed, and says so.
func (v *visitor) compresses(w http.ResponseWriter, r *http.Request, it *item) bool {
	if !it.compressed() {
		return false
	}
	if !slices.Contains(strings.Split(strings.ToLower(w.Header().Get("Vary")), ", "), "accept-encoding") {
		w.Header().Add("Vary", "Accept-Encoding")
	}
	if !takesGzip(r.Header.Get("Accept-Encoding")) {
		return false
	}
	w.Header().Set("Content-Encoding", "gzip")
	return true
}

// takesGzip reads Accept-Encoding (RFC 9110, section 12.5.3).
func takesGzip(accepted string) bool {
	for one := range strings.SplitSeq(strings.ToLower(accepted), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(one), ";")
		if strings.TrimSpace(name) == "gzip" || strings.TrimSpace(name) == "*" {
			return strings.Trim(strings.TrimPrefix(strings.ReplaceAll(weight, " ", ""), "q="), "0.") != "" || weight == ""
		}
	}
	return false
}

// send sends a whole body.
func (v *visitor) send(w http.ResponseWriter, r *http.Request, it *item, body []byte, packed func() []byte) {
	if it.Status >= 200 && it.Status != http.StatusNoContent && it.Status != http.StatusNotModified {
		if v.compresses(w, r, it) {
			body = packed()
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(it.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the connection ends if it fails
	}
}
