package split

import (
	"bytes"
	"slices"
	"time"
)

// silence guesses the order of datagrams without numbers. It holds what arrives by a new path until the path before it has
// fallen silent, and so has delivered its queues. QUIC encrypts its packet numbers.
type silence struct {
	window time.Duration // how long anything is held at most
	last   int           // path that is given at once, or -1
	heard  time.Time     // when something last arrived by it
	held   []visit       // in the order in which their paths were first heard
	count  int           // datagrams in held
}

// visit is what arrived by one path since the server went over to it.
type visit struct {
	path        int
	first, last time.Time
	datagrams   [][]byte
}

// drained is how long a path must be silent to have delivered all: several packets' time at 10 Mbit/s.
const drained = 3 * time.Millisecond

func newSilence(window time.Duration) *silence { return &silence{window: window, last: -1} }

// take appends to out what is to be given now that a datagram came by path i.
func (r *silence) take(now time.Time, i int, datagram []byte, out [][]byte) [][]byte {
	out = r.advance(now, out)
	if i == r.last || len(r.held) == 0 && (r.last < 0 || now.Sub(r.heard) >= drained) {
		r.last, r.heard = i, now
		return append(out, datagram)
	}
	r.hold(i, now, datagram)
	if r.count >= heldLimit {
		for len(r.held) > 0 {
			out = r.next(out)
		}
	}
	return out
}

func (r *silence) hold(i int, now time.Time, datagram []byte) {
	at := slices.IndexFunc(r.held, func(v visit) bool { return v.path == i })
	if at < 0 {
		at = len(r.held)
		r.held = append(r.held, visit{path: i, first: now})
	}
	v := &r.held[at]
	v.last = now
	v.datagrams = append(v.datagrams, bytes.Clone(datagram))
	r.count++
}

// advance gives the visits whose turn has come.
func (r *silence) advance(now time.Time, out [][]byte) [][]byte {
	for len(r.held) > 0 && (now.Sub(r.heard) >= drained || now.Sub(r.held[0].first) >= r.window) {
		out = r.next(out)
	}
	return out
}

// next gives the oldest visit; from then on its path is given at once.
func (r *silence) next(out [][]byte) [][]byte {
	v := r.held[0]
	r.held = r.held[1:]
	r.count -= len(v.datagrams)
	r.last, r.heard = v.path, v.last
	return append(out, v.datagrams...)
}

// due is when the oldest visit's turn comes if its predecessor stays silent; false where nothing is held.
func (r *silence) due() (time.Time, bool) {
	if len(r.held) == 0 {
		return time.Time{}, false
	}
	quiet, late := r.heard.Add(drained), r.held[0].first.Add(r.window)
	if late.Before(quiet) {
		return late, true
	}
	return quiet, true
}
