package split

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"heddle/path"
)

// sequencer delivers datagrams in the order of their numbers. A path nearly always delivers in order, so a loss is mostly
// known at once. It drops nothing: datagrams that are late, or whose number is implausible, are delivered at once.
type sequencer struct {
	window  time.Duration // how long anything is held at most
	paths   int
	streams []*stream // the one that began last at the end
}

// stream is one count, of a WireGuard key pair or of a proxy's exit. Numbers are compared as in RFC 1982.
type stream struct {
	id      streamID
	next    uint64    // the next number to deliver
	by      int       // path of the previous datagram
	came    time.Time // when that one arrived
	paths   []progress
	held    []early // by number; the first has waited longest
	strayed bool
	stray   uint64 // the last number, if it was far from next
}

// streamID identifies a count. A WireGuard receiver index and a proxy's exit never coincide.
type streamID struct {
	wireguard bool
	id        uint64
}

// progress is how far a path has delivered.
type progress struct {
	heard   time.Time
	highest uint64
}

type early struct {
	number   uint64
	path     int
	came     time.Time
	since    time.Time // when it came, or what is behind it
	datagram []byte
}

const (
	// heldLimit is how many datagrams a stream holds at most: 100 ms of 100 Mbit/s.
	heldLimit = 1024
	// span is how far from next a number is plausible. Anyone can forge WireGuard's counter before it is checked; one forged
	// number costs the order of at most this many datagrams.
	span = 4 * heldLimit
	// shortGap is how many numbers missing between consecutive arrivals of one path mean loss: no visit is so short.
	shortGap = 3
	// atWork is how long after its last datagram a path may still bring missing ones.
	atWork = time.Second
	// maxStreams bounds the counts of a session: two key pairs overlap in a rekeying, and each proxy counts.
	maxStreams = 8
)

func newSequencer(window time.Duration, paths int) *sequencer {
	return &sequencer{window: window, paths: paths}
}

// placed returns a datagram's place in the server's order, if known. A free datagram has no order.
func placed(datagram []byte, in path.Inbound) (id streamID, number uint64, known, free bool) {
	if len(datagram) >= transportMin && binary.LittleEndian.Uint32(datagram) == transportType {
		index := binary.LittleEndian.Uint32(datagram[4:])
		return streamID{true, uint64(index)}, binary.LittleEndian.Uint64(datagram[8:]), true, false
	}
	if isHandshake(datagram) {
		return id, 0, false, true
	}
	return streamID{id: in.Exit}, in.Order, in.Order != 0, in.Exit != 0
}

// isHandshake reports whether a datagram looks like a WireGuard initiation, response or cookie (WireGuard paper, 5.4).
func isHandshake(datagram []byte) bool {
	if len(datagram) < 4 {
		return false
	}
	kind, n := binary.LittleEndian.Uint32(datagram), len(datagram)
	return kind == initiationType && n == initiationLength || kind == responseType && n == responseLength || kind == cookieType && n == cookieLength
}

// take appends to out what can be delivered now that a datagram came by a path.
func (q *sequencer) take(now time.Time, path int, id streamID, number uint64, datagram []byte, out [][]byte) [][]byte {
	s, out := q.stream(id, number, out)
	distance := int64(number - s.next)
	if distance > span || distance < -span {
		if !s.strayed || !near(number, s.stray) {
			s.strayed, s.stray = true, number
			return append(out, datagram)
		}
		out = s.release(len(s.held), out) // two in a row: the count has jumped
		s.begin(number)
		distance = 0
	}
	s.strayed = false
	s.paths[path].note(now, number)
	switch {
	case distance == 0:
		out = append(out, datagram)
		s.next, s.by, s.came = number+1, path, now
	case distance < 0 || !s.hold(now, path, number, datagram):
		out = append(out, datagram)
	}
	return s.settle(now, q.window, out)
}

// stream finds the stream of a number, or begins one.
func (q *sequencer) stream(id streamID, number uint64, out [][]byte) (*stream, [][]byte) {
	for _, s := range q.streams {
		if s.id == id {
			return s, out
		}
	}
	if len(q.streams) == maxStreams {
		oldest := q.streams[0]
		out = oldest.release(len(oldest.held), out)
		q.streams = q.streams[1:]
	}
	s := &stream{id: id, paths: make([]progress, q.paths)}
	s.begin(number)
	q.streams = append(q.streams, s)
	return s, out
}

func (s *stream) begin(number uint64) {
	s.next, s.by = number, -1
	for i := range s.paths {
		s.paths[i] = progress{highest: number - 1}
	}
}

func near(a, b uint64) bool {
	d := int64(a - b)
	return d >= -span && d <= span
}

func (p *progress) note(now time.Time, number uint64) {
	p.heard = now
	if int64(number-p.highest) > 0 {
		p.highest = number
	}
}

// hold keeps a copy of an early datagram. It returns false for a duplicate number.
func (s *stream) hold(now time.Time, path int, number uint64, datagram []byte) bool {
	at, found := slices.BinarySearchFunc(s.held, number, func(e early, n uint64) int { return cmp.Compare(int64(e.number-n), 0) })
	if found {
		return false
	}
	since := now
	if at < len(s.held) {
		since = s.held[at].since
	}
	s.held = slices.Insert(s.held, at, early{number, path, now, since, bytes.Clone(datagram)})
	return true
}

// settle delivers datagrams in turn, while the ones missing before them are lost or overdue.
func (s *stream) settle(now time.Time, window time.Duration, out [][]byte) [][]byte {
	for {
		turn := 0
		for turn < len(s.held) && s.held[turn].number == s.next+uint64(turn) {
			turn++
		}
		out = s.release(turn, out)
		if len(s.held) == 0 {
			return out
		}
		first := s.held[0]
		if len(s.held) < heldLimit && now.Sub(first.since) < window && !s.lost(now, first) {
			return out
		}
		s.next = first.number
	}
}

// release delivers the first n held datagrams.
func (s *stream) release(n int, out [][]byte) [][]byte {
	if n == 0 {
		return out
	}
	for _, e := range s.held[:n] {
		out = append(out, e.datagram)
	}
	last := s.held[n-1]
	s.next, s.by, s.came = last.number+1, last.path, last.came
	clear(s.held[:n])
	if s.held = s.held[n:]; len(s.held) == 0 {
		s.held = nil
	}
	return out
}

// lost reports whether the numbers missing before the first held one will not come.
func (s *stream) lost(now time.Time, first early) bool {
	if s.by == first.path && first.number-s.next <= shortGap && first.came.Sub(s.came) < drained {
		return true
	}
	for _, p := range s.paths {
		if now.Sub(p.heard) < atWork && int64(p.highest-first.number) < 0 {
			return false
		}
	}
	return true
}

// advance delivers what was held long enough.
func (q *sequencer) advance(now time.Time, out [][]byte) [][]byte {
	for _, s := range q.streams {
		out = s.settle(now, q.window, out)
	}
	return out
}

// due returns when something will have been held long enough; false if nothing is held.
func (q *sequencer) due() (time.Time, bool) {
	var first time.Time
	for _, s := range q.streams {
		if len(s.held) == 0 {
			continue
		}
		if at := s.held[0].since.Add(q.window); first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first, !first.IsZero()
}
