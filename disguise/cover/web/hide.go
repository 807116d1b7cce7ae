package web

import (
	"bytes"
	"crypto/rand"
	"io"
	mrand "math/rand/v2"
	"time"

	"heddle/internal/draw"
	"heddle/internal/pacing"
)

const (
	// hiddenPart is how many bytes are drawn at a time, and mostPart how many are if the reader has room for them.
	hiddenPart = 4 << 10
	mostPart   = 16 << 10
	// leastPart is how many bytes are worth a part, once it waited for more of them for shortPause.
	leastPart  = 512
	shortPause = 20 * time.Millisecond
	lookEvery  = 5 * time.Millisecond
)

// hiding is what an answer hides: blocks for a client, drawn as late as the answer takes them, and random bytes for others.
type hiding struct {
	v      *visitor
	key    *requestKey // under which the answer is remembered; nil if it is not
	seed   [32]byte
	random *mrand.ChaCha8
	number uint64 // of its head
	object int
	head   bool // comes next, before blocks
	blocks bool // go on
	ours   bool // there were some
	left   int  // bytes that are not drawn yet
	ready  []byte
	drawn  []byte // all so far, if the answer is remembered

	turn    turn          // among the answers of the link
	pauses  time.Duration // how long the answer may yet wait for more to carry
	least   int           // bytes that end a pause before its end
	pauseAt int           // how many bytes come after the place where a stranger's answer waits
}

// turn is the turn of an answer: a [pacing.Turn], which is nil for one that never waits.
type turn interface {
	Wait(bytes int)
	End()
}

// hide returns what the answer to a request hides. A request with tokens gets the same within its validity. The caller closes it.
func (v *visitor) hide(it *item, key requestKey, tokens bool) io.ReadCloser {
	h := &hiding{v: v, object: it.number, left: it.down, turn: (*pacing.Turn)(nil)}
	if it.carries() > 0 && !v.sealed {
		v.mu.Lock()
		h.head, h.number = v.feed != nil, v.payloads
		v.payloads++
		v.mu.Unlock()
	}
	if tokens {
		if old, found := v.seen.find(key, it.down); found {
			return io.NopCloser(bytes.NewReader(old))
		}
		h.key = &key
	}
	switch {
	case v.sealed:
	case h.head:
		h.pauses, h.least = it.pauses(), it.least()
	default:
		h.pauses, h.pauseAt = it.stranger(), draw.Below(it.down)
	}
	h.turn = v.turn(it)
	_, _ = rand.Read(h.seed[:]) // it never fails
	h.random = mrand.NewChaCha8(h.seed)
	return h
}

// Read implements [io.Reader]. It never fails before the end.
func (h *hiding) Read(b []byte) (int, error) {
	if len(h.ready) == 0 {
		if h.left == 0 {
			return 0, io.EOF
		}
		h.draw(min(max(hiddenPart, len(b)), mostPart))
	}
	n := copy(b, h.ready)
	h.ready = h.ready[n:]
	return n, nil
}

// draw draws the next part, of about so many bytes.
func (h *hiding) draw(n int) {
	if h.left < n+leastBlock {
		n = h.left
	}
	h.wait(n)
	part := make([]byte, n)
	h.left -= n
	if !h.head && !h.blocks || !h.fill(part) {
		_, _ = h.random.Read(part) // it never fails
	}
	h.ready = part
	if h.key != nil {
		h.drawn = append(h.drawn, part...)
	}
}

// wait waits until a part is worth sending, and should leave. Another answer may take what it waits for meanwhile.
func (h *hiding) wait(bytes int) {
	for {
		h.pause(bytes)
		h.turn.Wait(bytes + bytes/4) // with what the object has besides
		if !h.head && !h.blocks || h.pauses <= 0 || h.v.waiting() >= min(bytes, h.least) {
			return
		}
	}
}

// pause waits until a part has so many bytes to carry, or nearly. An answer to a stranger waits once, before the part with a place that was
// drawn. So pauses alone do not tell a client.
func (h *hiding) pause(bytes int) {
	if !h.head && !h.blocks {
		if h.pauses > 0 && h.left-bytes <= h.pauseAt {
			time.Sleep(h.pauses)
			h.pauses = 0
		}
		return
	}
	h.v.await(bytes, h.least, &h.pauses)
}

// pauses draws how long an answer may pause, if it differs at each visit. One that carries much waits for more to carry. Those to scripts wait for
// something, or the client would have to ask again and again.
func (it *item) pauses() time.Duration {
	switch {
	case it.Fresh() == "":
		return 0
	case it.carries() >= leastBulk:
		return partOf(mostPauses)
	case !it.replies():
		return 0
	case it.url+it.body == 0:
		return partOf(mostPauses)
	}
	return partOf(mostReply)
}

// stranger draws how long the answer to a stranger pauses. A client's reply is sent when something comes, so a stranger's may come as soon.
func (it *item) stranger() time.Duration {
	pauses := it.pauses()
	if it.replies() && pauses > 0 {
		pauses = time.Duration(draw.Below(int(pauses)))
	}
	return pauses
}

// replies reports whether the answer is a small one to a script.
func (it *item) replies() bool {
	return it.live && it.carries() > 0 && it.carries() < leastBulk
}

// least is how many bytes end a pause before its end.
func (it *item) least() int {
	if it.replies() {
		return 1
	}
	return leastPart
}

// await waits until so many bytes wait for a client, or at least some for a while, but not for longer than left. It takes from left what it waited.
func (v *visitor) await(bytes, least int, left *time.Duration) {
	for began := time.Now(); *left > 0; {
		n := v.waiting()
		if n >= bytes || n >= least && time.Since(began) >= shortPause {
			return
		}
		slept := time.Now()
		time.Sleep(lookEvery)
		*left -= time.Since(slept)
	}
}

// waiting is how many bytes wait for a client.
func (v *visitor) waiting() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.feed == nil {
		return 0
	}
	return v.feed.Waiting()
}

// fill fills a part with blocks. It returns false if there are no more for the visitor.
func (h *hiding) fill(part []byte) bool {
	h.v.mu.Lock()
	defer h.v.mu.Unlock()
	room := part
	if h.head {
		room = part[headSize:]
	}
	h.blocks = false
	if h.v.feed == nil {
		return false
	}
	useful, err := h.v.feed.Fill(room)
	if err != nil {
		h.v.leave()
		return false
	}
	if h.head {
		h.v.heads.next = h.number
		h.v.heads.seal(h.object, part, head{uint32(min(h.v.feed.Waiting(), 1<<31)), useful > 0})
	}
	h.head, h.blocks, h.ours = false, true, true
	return true
}

// Close remembers the answer. What did not go out is random.
func (h *hiding) Close() error {
	h.turn.End()
	h.turn = (*pacing.Turn)(nil)
	if h.key == nil {
		return nil
	}
	size := len(h.drawn) + h.left
	if !h.ours {
		h.v.seen.keep(*h.key, size, &h.seed, nil)
		return nil
	}
	for h.head, h.blocks, h.pauses = false, false, 0; h.left > 0; {
		h.draw(hiddenPart)
	}
	h.v.seen.keep(*h.key, size, nil, h.drawn)
	return nil
}
