package defence

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// pieceHeader is of a request for a piece, "ID COUNT INDEX MODE DESTINATION", and of an answer that is one. A count of 0 asks for units, as
// many as the object has, and the answer's header says how many that are. An answer of 0 goes on to the end of the content. If the mode is
// padMode too, the request is for a unit without content, the index is how many units with content the page had, the destination is the page's
// number, and the answer's header says how many units it shall have.
const pieceHeader = "Heddle-Piece"

const (
	mostObject = 4 << 20 // bytes; a larger object passes in one piece, without padding
	padMode    = "pad"
	mostPieces = 16   // of an object, whatever the strategy was when the browser got its worker
	mostUnits  = 9999 // of an object, or a page, which has four digits
	keepFor    = 30 * time.Second
)

// unbounded is the length of content that goes on to the end.
const unbounded = math.MaxUint32

type loadKey struct{ visitor, id string }

// load is one object that a browser fetches in pieces. Its first request asks the site's server.
type load struct {
	visitor string
	asked   int // how many pieces the browser drew, or 0 for as many units as it takes
	count   int
	left    int // pieces that were not asked for; the defence's mu guards it
	ready   chan struct{}
	once    sync.Once

	// Once ready:
	meta   []byte
	body   []byte
	page   int  // the number of the page that it opens, or 0
	passed bool // the first request carries all
	failed bool
}

func (l *load) finish() { l.once.Do(func() { close(l.ready) }) }

// asked is the header of a request.
type asked struct {
	id, mode, dest string
	count, index   int
}

func parse(header string) (a asked, ok bool) {
	f := strings.Fields(header)
	if len(f) != 5 || len(f[0]) != 32 {
		return a, false
	}
	count, err := strconv.Atoi(f[1])
	if err != nil || count < 0 || count > mostPieces {
		return a, false
	}
	index, err := strconv.Atoi(f[2])
	if err != nil || index < 0 || index >= count && count > 0 || index > mostUnits {
		return a, false
	}
	return asked{f[0], f[3], f[4], count, index}, true
}

// piece answers with one piece of an object.
func (d *Defence) piece(w http.ResponseWriter, r *http.Request, visitor, header string) {
	a, ok := parse(header)
	if !ok || (a.count == 0) != (d.unit > 0) { // the browser may still have a worker of another strategy
		http.Error(w, "no piece is named so; load this page again", http.StatusBadRequest)
		return
	}
	if a.mode == padMode && d.unit > 0 {
		d.pad(w, a.index, a.dest)
		return
	}
	d.answer(w, r, visitor, a)
}

// answer answers with a piece that has content.
func (d *Defence) answer(w http.ResponseWriter, r *http.Request, visitor string, a asked) {
	l, first := d.enter(loadKey{visitor, a.id}, a.count)
	if l == nil {
		http.Error(w, errFull.Error(), http.StatusServiceUnavailable)
		return
	}
	if first {
		r.Header.Del(pieceHeader)
		r.Header.Set("Sec-Fetch-Mode", a.mode)
		r.Header.Set("Sec-Fetch-Dest", a.dest)
		d.fetch(w, r, l)
		d.cut(loadKey{visitor, a.id}, l)
	}
	select {
	case <-l.ready:
	case <-r.Context().Done():
		return
	}
	switch {
	case l.passed && first:
	case l.passed:
		d.send(w, 1, []byte("{}"), nil)
	case l.failed:
		panic(http.ErrAbortHandler)
	case d.unit > 0:
		d.tell(w.Header(), l.page)
		meta, content := d.unitOf(l, a.index)
		d.send(w, l.count, meta, content)
	default:
		size := (len(l.body) + l.count - 1) / l.count
		from := min(a.index*size, len(l.body))
		d.send(w, 1, l.meta, l.body[from:min(from+size, len(l.body))])
	}
}

// enter counts a request for a piece. first reports that its load is new. It returns no load if there is no place for it.
func (d *Defence) enter(key loadKey, count int) (l *load, first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l = d.loads[key]
	if first = l == nil; first {
		if !d.room.enter(key.visitor) {
			return nil, false
		}
		l = &load{visitor: key.visitor, asked: count, count: count, left: count, ready: make(chan struct{})}
		if count == 0 {
			l.left = mostUnits // until it is known
		}
		d.loads[key] = l
		time.AfterFunc(keepFor, func() {
			<-l.ready
			d.mu.Lock()
			defer d.mu.Unlock()
			d.forget(key, l)
		})
	}
	if l.asked != count || l.left == 0 {
		return nil, false
	}
	if l.left--; l.left == 0 {
		go func() {
			<-l.ready
			d.mu.Lock()
			defer d.mu.Unlock()
			d.forget(key, l)
		}()
	}
	return l, first
}

// forget needs mu. Requests that have the load go on with it.
func (d *Defence) forget(key loadKey, l *load) {
	if d.loads[key] != l {
		return
	}
	delete(d.loads, key)
	d.room.giveBack(key.visitor, len(l.body))
	d.room.leave(key.visitor)
}

// fetch asks the site's server. It holds the answer, or passes one that is too large.
func (d *Defence) fetch(w http.ResponseWriter, r *http.Request, l *load) {
	rec := &recorder{to: w, header: http.Header{}, d: d, l: l}
	l.failed = true // until it ended well
	defer func() {
		if l.failed {
			d.room.giveBack(l.visitor, len(rec.body))
		}
		l.finish()
	}()
	d.next.ServeHTTP(rec, r)
	d.objects.Add(1)
	if rec.status == http.StatusUnauthorized && rec.header.Get("WWW-Authenticate") != "" && r.Header.Get("Sec-Fetch-Dest") == "document" && !l.passed {
		rec.refusePassword(r.URL.RequestURI())
	}
	if l.failed = rec.full; l.failed || l.passed {
		return
	}
	rec.WriteHeader(http.StatusOK)
	l.meta = rec.meta()
	if d.unit > 0 && rec.status == http.StatusOK && r.Header.Get("Sec-Fetch-Dest") == "document" {
		l.page = d.pages.number(r.URL.Path)
	}
	rec.keep()
	d.compare(l)
}

// send writes a piece and its padding. number is what its header says.
func (d *Defence) send(w http.ResponseWriter, number int, meta, content []byte) {
	size := frameSize + len(meta) + len(content)
	total := d.strategy.Padded(size)
	b := append(frame(make([]byte, 0, total), meta, uint32(len(content))), content...)
	d.pieces.Add(1)
	d.content.Add(uint64(len(content)))
	d.sent.Add(uint64(total))
	pieceHeaders(w.Header(), number)
	w.Header().Set("Content-Length", strconv.Itoa(total))
	_, _ = w.Write(b[:total]) // the client is gone if it fails
}

func pieceHeaders(h http.Header, number int) {
	h.Set(pieceHeader, fmt.Sprintf("%04d", number)) // as long as any other
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Cache-Control", "no-store")
}

// frame appends the beginning of a piece to b.
func frame(b, meta []byte, length uint32) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(meta)))
	b = binary.BigEndian.AppendUint32(b, length)
	return append(b, meta...)
}

// direct are headers that only a real answer can have: a worker cannot set them.
var direct = []string{"Set-Cookie", "Strict-Transport-Security", "Clear-Site-Data"}

var errFull = errors.New("too much waits to be fetched")

// recorder holds an answer up to mostObject, and passes a larger one on.
type recorder struct {
	to     http.ResponseWriter
	header http.Header
	status int
	body   []byte
	full   bool // there was no room for it
	d      *Defence
	l      *load
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= http.StatusOK {
		r.status = status
	}
}

// Flush does nothing: an observer would see how the site's server writes.
func (r *recorder) Flush() {}

func (r *recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if !r.l.passed {
		if len(r.body)+len(b) <= mostObject {
			if r.full = r.full || !r.d.room.take(r.l.visitor, len(b)); r.full {
				return 0, errFull
			}
			r.body = append(r.body, b...)
			return len(b), nil
		}
		if err := r.pass(); err != nil {
			return 0, err
		}
	}
	r.d.content.Add(uint64(len(b)))
	r.d.sent.Add(uint64(len(b)))
	return r.to.Write(b)
}

// pass sends what was held, and lets all that follows through.
func (r *recorder) pass() error {
	r.l.passed = true
	r.keep()
	pieceHeaders(r.to.Header(), 0)
	b := append(frame(nil, r.meta(), unbounded), r.body...)
	r.d.room.giveBack(r.l.visitor, len(r.body))
	r.d.pieces.Add(1)
	r.d.content.Add(uint64(len(r.body)))
	r.d.sent.Add(uint64(len(b)))
	r.body = nil
	r.l.finish()
	_, err := r.to.Write(b)
	return err
}

// keep hands the real headers to the real answer, and the body to the load.
func (r *recorder) keep() {
	for _, key := range direct {
		for _, value := range r.header.Values(key) {
			r.to.Header().Add(key, value)
		}
	}
	if !r.l.passed {
		r.l.body = r.body
	}
}

// meta describes the answer: {status, headers}.
func (r *recorder) meta() []byte {
	m := struct {
		Status  int         `json:"status"`
		Headers [][2]string `json:"headers"`
	}{r.status, [][2]string{}}
	for key, values := range r.header {
		switch key {
		case "Set-Cookie", "Strict-Transport-Security", "Clear-Site-Data", "Content-Length", "Transfer-Encoding", "Connection", "Date", "Trailer":
			continue
		}
		for _, value := range values {
			m.Headers = append(m.Headers, [2]string{key, value})
		}
	}
	text, _ := json.Marshal(m) // of text alone
	return text
}
