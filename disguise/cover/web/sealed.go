package web

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"heddle/disguise/block"
	"heddle/disguise/carrier"
	"heddle/internal/draw"
)

// Inside TLS nobody but the two ends reads what they say, so blocks take the place of whole bodies, of the same size.
//
// A request that carries something has a unit: a number (4 bytes) and blocks. It is the body of a POST, and goes on in a cookie. A body for
// a client begins with a mark of the connection. Parts follow, each of which has a number (4), what the bridge holds then (4), and
// blocks. Both ends take the blocks by their numbers, since streams of HTTP/2 overtake each other.
const (
	orderSize   = 4
	markSize    = headSize
	partSize    = 16 << 10
	partHead    = orderSize + 4
	usefulPart  = 1 << 31 // in the second field of a part: it is not only padding
	leastUnit   = orderSize + block.Overhead
	leastSealed = markSize + partHead + 64 // bytes of a body that carries blocks
	cookieRoom  = 192                      // bytes of a unit in a cookie, beyond a hello
	mostHello   = 2 << 10                  // bytes of the first unit, which holds all of a hello
)

// hiddenCookie is the name of the cookie with a unit, and visitCookie of that with [marks.visit]. A bridge ignores a stranger's cookies with
// these names, as it ignores others.
const (
	hiddenCookie = "_s"
	visitCookie  = "_v"
)

// marks are the random bytes by which the ends of a connection know what is of it.
type marks struct {
	direct [markSize]byte // begins bodies for the client
	behind [markSize]byte // does so in its place if another web server has the client's connection
	visit  [markSize]byte // is in requests to such a bridge, which sees no connection of the client
}

func newMarks(key []byte) marks {
	h := newHeads(key)
	return marks{h.mask(0), h.mask(0), h.mask(0)}
}

// shown is the cookie by which a client's requests are known.
func (m marks) shown() string {
	return visitCookie + "=" + base64.RawURLEncoding.EncodeToString(m.visit[:])
}

// seal makes an item one of a site inside TLS.
func (it *item) seal() {
	it.sealed, it.posted, it.body = true, carrier.Whole, len(it.Posted)
	if it.body < leastUnit {
		it.body = 0
	}
	it.wire, it.sizes = sync.OnceValue(it.visited), sync.OnceValue(it.sample)
}

// How many visits tell the sizes of a body that random bytes change. A picture takes longer to make than text takes to compress.
const (
	samples       = 16 // of a compressed body
	samplesOthers = 4
)

// sample returns sizes that visitors get of the body.
func (it *item) sample() []int {
	all, most := []int{it.wire()}, samplesOthers
	if it.compressed() {
		most = samples
	}
	for it.down > 0 && len(all) < most {
		all = append(all, it.visited())
	}
	return all
}

// visited is the size of the body that one visitor gets.
func (it *item) visited() int {
	if it.down == 0 {
		if it.compressed() {
			return len(it.packed())
		}
		return len(it.Body)
	}
	hidden := make([]byte, it.down)
	_, _ = rand.Read(hidden) // it never fails
	body, err := it.answer.Embed(it.Body, hidden)
	if err != nil {
		body = it.Body
	}
	if it.compressed() {
		return len(pack(body))
	}
	return len(body)
}

func (it *item) compressed() bool { return it.Encoding != "" && it.Encoding != "identity" }

// media reports whether a visitor loads the item only for as long as she watches or listens.
func (it *item) media() bool {
	return strings.HasPrefix(it.Type, "video/") || strings.HasPrefix(it.Type, "audio/")
}

// parts is how many bytes of blocks the body carries for a client.
func (it *item) parts() int {
	if it.Status != http.StatusOK || len(it.Body) < leastSealed || it.wire() < leastSealed {
		return 0
	}
	size := it.wire() - markSize
	room := size / partSize * (partSize - partHead)
	if rest := size % partSize; rest >= partHead+block.Overhead {
		room += rest - partHead
	}
	return room
}

// complete makes a page one that a client inside TLS uses, and reports whether the page carries anything. If no script fetches
// what carries something, the client fetches parts of the page again.
func (c *catalogue) complete(p *page) bool {
	all := []int{p.document}
	for _, l := range p.loads {
		all = append(all, l.number)
	}
	room, scripts := 0, slices.ContainsFunc(p.live, func(number int) bool { return c.items[number].parts() > 0 })
	for _, number := range all {
		it := c.items[number]
		room += it.parts()
		if !scripts && it.parts() > 0 && !it.media() {
			p.live = append(p.live, number)
		}
	}
	return room > 0 && len(p.live) > 0
}

// order puts numbered parts of a stream in order.
type order struct {
	most  int // bytes that may wait for others
	next  uint32
	early map[uint32][]byte
	held  int // bytes of them
}

// How many bytes of parts may wait for others. At a client it is more than HTTP/2 lets the bridge send at once. A bridge has many clients, and the units
// of the requests that it serves at a time are seldom large.
const (
	mostEarly = 32 << 20
	mostUnits = 4 << 20
)

var errOrder = errors.New("the parts of a connection do not follow each other")

// put takes a part, and passes on all that is in order now. It does not keep the part.
func (o *order) put(number uint32, part []byte, take func([]byte) error) error {
	if number != o.next {
		if o.early[number] != nil || number < o.next || o.held+len(part) > o.most {
			return errOrder
		}
		if o.early == nil {
			o.early = map[uint32][]byte{}
		}
		o.early[number] = append(make([]byte, 0, len(part)), part...)
		o.held += len(part)
		return nil
	}
	for part != nil {
		o.next++
		if err := take(part); err != nil {
			return err
		}
		part = o.early[o.next]
		delete(o.early, o.next)
		o.held -= len(part)
	}
	return nil
}

// unit returns the unit in a request: what its body hides, and a cookie.
func unit(hidden []byte, r *http.Request) []byte {
	if c, err := r.Cookie(hiddenCookie); err == nil {
		if more, err := base64.RawURLEncoding.Strict().DecodeString(c.Value); err == nil {
			hidden = append(hidden, more...)
		}
	}
	return hidden
}

// takeUnit passes on what a request carries. v.mu is held.
func (v *visitor) takeUnit(unit []byte) {
	if len(unit) < leastUnit {
		return
	}
	number, blocks := binary.BigEndian.Uint32(unit), unit[orderSize:]
	if v.feed == nil && number != v.units.next { // a client sends nothing beside its hello
		v.stranger = true
		return
	}
	if v.units.put(number, blocks, func(b []byte) error { v.take(b); return nil }) != nil {
		v.leave()
	}
}

// carry answers a client. It returns false if the answer is that of the site.
func (v *visitor) carry(w http.ResponseWriter, r *http.Request, it *item) bool {
	if !v.client() || it.carries() == 0 || r.Method == http.MethodHead {
		return false
	}
	if it.Fresh() != "" {
		withoutValidators(w.Header())
		think(it)
	} else {
		w.Header().Set("Accept-Ranges", "bytes")
	}
	left := len(it.Body)
	if v.compresses(w, r, it) || !it.compressed() {
		sizes := it.sizes()
		left = sizes[draw.Below(len(sizes))]
	}
	w.Header().Set("Content-Length", strconv.Itoa(left))
	w.WriteHeader(it.Status)
	if left < markSize {
		return true
	}
	_, err := w.Write(v.mark[:])
	b, pauses := make([]byte, partSize), it.pauses()
	if it.replies() {
		v.await(left, it.least(), &pauses)
		pauses = 0
	}
	for left -= markSize; left > 0 && err == nil; left -= len(b) {
		b = b[:min(left, partSize)]
		err = v.sendPart(w, b, &pauses)
	}
	if err != nil { // a part is missing, so the others are of no use
		v.mu.Lock()
		v.leave()
		v.mu.Unlock()
	}
	return true
}

// sendPart fills a part and sends it. Answers send one after the other: a part that waited for the network while others go out would be
// padding that the next bytes of the link wait for. The write waits while the client or the network is slow, so the next part holds what came
// meanwhile.
func (v *visitor) sendPart(w io.Writer, b []byte, pauses *time.Duration) error {
	v.sending <- struct{}{}
	defer func() { <-v.sending }()
	if time.Since(v.useful) < mostPauses { // or else a page that carries nothing would come slowly
		v.await(len(b)-partHead, leastPart, pauses)
	}
	if v.part(b) {
		v.useful = time.Now()
	}
	_, err := w.Write(b)
	return err
}

// stalling pauses once before a place of what is written.
type stalling struct {
	http.ResponseWriter
	left  int // bytes until the place
	pause time.Duration
}

// Write implements [io.Writer].
func (s *stalling) Write(b []byte) (n int, err error) {
	if s.pause > 0 && s.left < len(b) {
		if n, err = s.ResponseWriter.Write(b[:s.left]); err != nil {
			return n, err
		}
		time.Sleep(s.pause)
		s.pause = 0
	}
	more, err := s.ResponseWriter.Write(b[n:])
	s.left -= len(b)
	return n + more, err
}

// part fills a part. It reports whether the part holds more than padding.
func (v *visitor) part(b []byte) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(b) < partHead+block.Overhead || v.feed == nil {
		_, _ = rand.Read(b) // it never fails
		return false
	}
	useful, err := v.feed.Fill(b[partHead:])
	if err != nil {
		v.leave()
		_, _ = rand.Read(b)
		return false
	}
	held := uint32(min(v.feed.Waiting(), usefulPart-1))
	if useful > 0 {
		held |= usefulPart
	}
	binary.BigEndian.PutUint32(b, v.parts)
	binary.BigEndian.PutUint32(b[orderSize:], held)
	v.parts++
	return useful > 0
}

// drawUnit fills the unit of a request for an item. A client fills the body of a POST in any case, and uses a cookie if something waits.
func (t *tab) drawUnit(it *item) ([]byte, error) {
	room, waits := it.body, t.feed.Waiting()
	switch {
	case !t.known:
		room += orderSize + min(waits, mostHello) + 2*block.Overhead
	case waits > 0 && waits > room-orderSize:
		room += cookieRoom
	}
	t.useful = false
	if room < leastUnit {
		return nil, nil
	}
	b := make([]byte, room)
	useful, err := t.feed.Fill(b[orderSize:])
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint32(b, t.units)
	t.units++
	t.useful = useful > 0
	return b, nil
}

// enclose returns the body and the cookie of a request that carries a unit.
func (it *item) enclose(unit []byte) (body []byte, cookie string) {
	body = it.Posted
	if it.body > 0 {
		body, unit = unit[:it.body], unit[it.body:]
	}
	if len(unit) > 0 {
		cookie = hiddenCookie + "=" + base64.RawURLEncoding.EncodeToString(unit)
	}
	return body, cookie
}

// takeParts takes the parts of an answer. ours is false if the bridge gave the answer of the site.
func (t *tab) takeParts(it *flight, r *http.Response) (ours bool, err error) {
	if it.carries() == 0 || r.StatusCode != it.Status || r.ContentLength < leastSealed {
		return false, nil
	}
	in := bufio.NewReaderSize(r.Body, partSize)
	r.Body = struct {
		io.Reader
		io.Closer
	}{in, r.Body}
	mark, err := in.Peek(markSize)
	behind := bytes.Equal(mark, t.marks.behind[:])
	if err != nil || !behind && !bytes.Equal(mark, t.marks.direct[:]) {
		return false, err
	}
	_, _ = in.Discard(markSize) // it is there
	if !t.known {
		t.known = true // no other request is on its way
		if behind {
			t.shown = t.marks.shown()
		}
	}
	b := make([]byte, partSize)
	left := r.ContentLength - markSize
	for ; left >= partHead+block.Overhead; left -= int64(len(b)) {
		b = b[:min(left, partSize)]
		if _, err := io.ReadFull(in, b); err != nil {
			return true, err
		}
		number, held := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[orderSize:])
		t.visit.got(t.view, it, len(b)-partHead, head{held &^ usefulPart, held&usefulPart != 0})
		if err := t.takePart(number, b[partHead:]); err != nil {
			return true, fmt.Errorf("part %d: %w", number, err)
		}
	}
	// To close a stream of HTTP/2 before its end is to break the answer off, even if nothing but the end is missing. The bridge then gives the
	// client up.
	if n, err := io.Copy(io.Discard, io.LimitReader(in, left+1)); err != nil || n != left {
		return true, cmp.Or(err, io.ErrUnexpectedEOF)
	}
	return true, nil
}

func (t *tab) takePart(number uint32, b []byte) error {
	t.taking.Lock()
	defer t.taking.Unlock()
	return t.parts.put(number, b, t.feed.Take)
}
