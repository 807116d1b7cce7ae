package web

import (
	"crypto/sha256"
	"math/rand/v2"
	"sync"
	"time"
)

// Within its validity, a request with tokens gets the same answer again, whoever asks.
const (
	validity   = 10 * time.Minute
	mostWeight = 64 << 20 // bytes of payload for which answers are kept
	entryCost  = 256      // bytes that an entry weighs beside its payload
)

// requestKey is the hash of a request.
type requestKey [sha256.Size]byte

func keyOf(method, target string, body []byte) requestKey {
	h := sha256.New()
	h.Write([]byte(method + " " + target + "\n"))
	h.Write(body)
	return requestKey(h.Sum(nil))
}

// answers remembers payloads. A stranger's payload weighs as much as a client's, although only the seed of its random bytes is kept. Otherwise
// the time at which an answer is forgotten would tell clients from strangers.
type answers struct {
	mu     sync.Mutex
	of     map[requestKey]*answer
	order  []*answer // oldest first
	weight int
	now    func() time.Time
}

type answer struct {
	key     requestKey
	at      time.Time
	seed    *[32]byte // of random bytes; nil if the payload is kept
	payload []byte
	weight  int
}

func newAnswers() *answers { return &answers{of: map[requestKey]*answer{}, now: time.Now} }

// find returns the payload of so many bytes that a request got before.
func (a *answers) find(key requestKey, size int) ([]byte, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget()
	old := a.of[key]
	switch {
	case old == nil:
		return nil, false
	case old.seed != nil:
		return expand(*old.seed, size), true
	}
	return old.payload, len(old.payload) == size
}

// keep remembers the payload of an answer of so many bytes, or the seed for it.
func (a *answers) keep(key requestKey, size int, seed *[32]byte, payload []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of[key] != nil {
		return
	}
	one := &answer{key: key, at: a.now(), seed: seed, payload: payload, weight: entryCost + size}
	a.of[key] = one
	a.order = append(a.order, one)
	a.weight += one.weight
	a.forget()
}

// forget drops what is not valid any more, or too much. a.mu is held.
func (a *answers) forget() {
	for len(a.order) > 0 && (a.weight > mostWeight || a.now().Sub(a.order[0].at) > validity) {
		one := a.order[0]
		a.order[0] = nil
		a.order = a.order[1:]
		a.weight -= one.weight
		delete(a.of, one.key)
	}
}

// expand returns the random bytes of a seed.
func expand(seed [32]byte, size int) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8(seed).Read(b) // it never fails
	return b
}
