package web

import (
	"bytes"
	"crypto/rand"
	"io"
	mrand "math/rand/v2"
)

// hiddenPart is how many bytes are drawn at a time.
const hiddenPart = 4 << 10

// hiding is what an answer hides: blocks for a client, drawn as late as the answer takes them, and random bytes for others.
type hiding struct {
	v      *visitor
	key    *requestKey // under which the answer is remembered; nil if it is not
	seed   [32]byte
	random *mrand.ChaCha8
	number uint64 // of its head
	head   bool   // comes next, before blocks
	blocks bool   // go on
	ours   bool   // there were some
	left   int    // bytes that are not drawn yet
	ready  []byte
	drawn  []byte // all so far, if the answer is remembered
}

// hide returns what the answer to a request hides. A request with tokens gets the same within its validity. The caller closes it.
func (v *visitor) hide(it *item, key requestKey, tokens bool) io.ReadCloser {
	h := &hiding{v: v, left: it.down}
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
		h.draw()
	}
	n := copy(b, h.ready)
	h.ready = h.ready[n:]
	return n, nil
}

// draw draws the next part.
func (h *hiding) draw() {
	n := hiddenPart
	if h.left < n+leastBlock {
		n = h.left
	}
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
		h.v.heads.seal(part, head{uint32(max(0, min(h.v.feed.Waiting(), 1<<31)-h.left)), useful > 0})
	}
	h.head, h.blocks, h.ours = false, true, true
	return true
}

// Close remembers the answer. What did not go out is random.
func (h *hiding) Close() error {
	if h.key == nil {
		return nil
	}
	size := len(h.drawn) + h.left
	if !h.ours {
		h.v.seen.keep(*h.key, size, &h.seed, nil)
		return nil
	}
	for h.head, h.blocks = false, false; h.left > 0; {
		h.draw()
	}
	h.v.seen.keep(*h.key, size, nil, h.drawn)
	return nil
}
