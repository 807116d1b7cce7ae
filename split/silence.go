package split

import (
	"bytes"
	"slices"
	"time"
)

// silence guesses the order of datagrams without numbers, such as QUIC's, whose numbers are encrypted. It holds arrivals by
// a new path until the previous path is silent, and so has delivered its queues.
type silence struct {
	window time.Duration // how long anything is held at most
	last   int           // path that is delivered at once, or -1
	heard  time.Time     // last arrival by it
	held   []visit       // in the order in which their paths were first heard
	count  int           // datagrams in held
}

// visit is what arrived by one path since the server switched to it.
type visit struct {
	path        int
	first, last time.Time
	datagrams   [][]byte
}

// drained is the silence after which a path has delivered everything: the time of several packets at 10 Mbit/s.
const drained = 3 * time.Millisecond

func newSilence(window time.Duration) *silence { return &silence{window: window, last: -1} }

// take appends to out what can be delivered now that a datagram came by path i.
func (r *silence) take(now time.Time, i int, datagram []byte, out [][]byte) [][]byte {
	out = r.advance(now, out)
	if i == r.last || len(r.held) == 0 && (r.last < 0 || now.Sub(r.heard) >= drained) {
		r.last, r.heard = i, now
		return append(out, datagram)
	}
	if !r.hold(i, now, datagram) {
		out = append(out, datagram)
	}
	if r.count >= heldLimit {
		for len(r.held) > 0 {
			out = r.next(out)
		}
	}
	return out
}

// hold keeps a datagram until its turn. The first one of a visit may be QUIC's PATH_CHALLENGE, without whose answer the server
// never leaves the path before, so hold returns false for it.
func (r *silence) hold(i int, now time.Time, datagram []byte) bool {
	at := slices.IndexFunc(r.held, func(v visit) bool { return v.path == i })
	if at < 0 {
		r.held = append(r.held, visit{path: i, first: now, last: now})
		return false
	}
	v := &r.held[at]
	v.last = now
	v.datagrams = append(v.datagrams, bytes.Clone(datagram))
	r.count++
	return true
}

// advance delivers the visits whose turn has come.
func (r *silence) advance(now time.Time, out [][]byte) [][]byte {
	for len(r.held) > 0 && (now.Sub(r.heard) >= drained || now.Sub(r.held[0].first) >= r.window) {
		out = r.next(out)
	}
	return out
}

// next delivers the oldest visit. From then on its path is delivered at once.
func (r *silence) next(out [][]byte) [][]byte {
	v := r.held[0]
	r.held = r.held[1:]
	r.count -= len(v.datagrams)
	r.last, r.heard = v.path, v.last
	return append(out, v.datagrams...)
}

// due returns when the oldest visit's turn comes if its predecessor stays silent; false if nothing is held.
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
