package stripe

import (
	"slices"
	"time"

	"heddle/internal/reliable"
	"heddle/internal/segment"
	"heddle/schedule"
	"heddle/stripe/share"
)

const (
	Strict   = "strict"
	Fast     = "fast"
	Weighted = "weighted"
)

const (
	initialLimit = 1 << 20 // bytes of the stream before the peer says anything
	// aheadOf limits the bytes queued on a member if the schedule has no choice, so that a path may lag briefly.
	aheadOf = 1 << 20
	atOnce  = 8         // segments of one decision for a member
	minRing = 256 << 10 // bytes
)

// sender cuts the stream into frames.
type sender struct {
	*reliable.Sender
	turn           int                // who gets the odd byte next
	wake, writable chan struct{}      // for cut and for Write
	progress       chan struct{}      // for Close
	draws          *schedule.Schedule // if weighted
	drawn          int                // the path drawn next, -1 before the draw
	since, emptied time.Time          // start of this transfer; when all was cut
	weights        []float64
	codec          *share.Codec // used by cut only
	scratch        []byte
}

// piece is a member's part of a row.
type piece struct{ member, size int }

func (c *Conn) prepareSender() error {
	s := &c.out
	row := len(c.members) * c.payload()
	hold := c.settings.window
	if unit := c.scheme.Capacity(c.payload()); !c.scheme.None() {
		hold = (c.settings.window/unit + 1) * c.scheme.N * c.segment
	}
	s.Sender = reliable.NewSender(reliable.SenderOptions{Buffer: max(minRing, 4*row), Credit: initialLimit, Hold: max(hold, 2*row),
		Ahead: segment.MaxAhead, Free: giveBuffer})
	for _, m := range c.members {
		m.out = s.NewOutbox()
	}
	s.drawn = -1
	s.wake, s.writable, s.progress = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	var err error
	if !c.scheme.None() {
		s.codec, err = c.scheme.NewCodec()
		return err
	}
	if c.schedule == Weighted {
		s.draws, err = schedule.New(schedule.Config{Name: "weighted", Every: schedule.Every{Packets: 1}, Weights: c.settings.weights}, len(c.members))
		if err != nil {
			return err
		}
		s.weights = s.draws.Weights()
	}
	return nil
}

// cut turns written bytes into frames until the session is over.
func (c *Conn) cut() {
	defer c.running.Done()
	for {
		c.mu.Lock()
		row := c.plan()
		from := c.out.Offset()
		if row == nil {
			c.endStream()
		}
		c.mu.Unlock()
		if row == nil {
			select {
			case <-c.out.wake:
				continue
			case <-c.over:
				return
			}
		}
		frames, taken, err := c.buildFrames(row, from)
		c.mu.Lock()
		if err != nil {
			c.fail(err)
		} else {
			c.enqueue(row, frames, taken)
		}
		c.mu.Unlock()
	}
}

// plan decides what is cut next, or returns nil. c.mu is held.
func (c *Conn) plan() []piece {
	s := &c.out
	pending := s.Ready(len(c.members) * atOnce)
	if pending == 0 || !c.sending() {
		return nil
	}
	if !c.scheme.None() {
		return c.planShares(pending)
	}
	up := c.live()
	row := len(up) * c.payload()
	c.beginTransfer()
	if s.Pending() <= row {
		// A short message, or the end of a long one: wait until all paths can take a part, so that none carries all of it.
		up = c.inTime(up)
		if c.room(up, c.payload(), 0) < len(up) {
			return nil
		}
		return c.divide(min(pending, len(up)*c.payload()), up)
	}
	switch {
	case pending < row: // the window is short, and will open
		return nil
	case c.schedule == Fast:
		return c.planFast(up, pending)
	case c.schedule == Weighted:
		return c.planWeighted(up)
	}
	var rows []piece
	for n := range min(pending/row, atOnce) {
		if c.room(up, aheadOf, (n+1)*c.payload()) < len(up) {
			break
		}
		rows = append(rows, c.divide(row, up)...)
	}
	return rows
}

// room counts the members that can queue more bytes without exceeding most.
func (c *Conn) room(members []int, most, more int) int {
	n := 0
	for _, i := range members {
		if c.members[i].out.Queued()+more <= most {
			n++
		}
	}
	return n
}

// divide cuts n bytes into one piece for each member: equal over time, or by weight.
func (c *Conn) divide(n int, up []int) []piece {
	s := &c.out
	row := make([]piece, len(up))
	left := n
	for j, i := range up {
		size := n / len(up)
		if s.weights != nil && n >= len(up) {
			size = 1 + int(c.weightAmong(i, up)*float64(n-len(up)))
		}
		size = min(size, c.payload(), left)
		row[j] = piece{i, size}
		left -= size
	}
	for ; left > 0; s.turn++ {
		if p := &row[s.turn%len(up)]; p.size < c.payload() {
			p.size++
			left--
		}
	}
	return row
}

// weightAmong returns the weight of a member relative to those that are up.
func (c *Conn) weightAmong(member int, up []int) float64 {
	sum := 0.0
	for _, i := range up {
		sum += c.out.weights[i]
	}
	if sum == 0 {
		return 1 / float64(len(up))
	}
	return c.out.weights[member] / sum
}

// planWeighted draws a member for each segment, and waits for the drawn one.
func (c *Conn) planWeighted(up []int) []piece {
	s := &c.out
	usable := make([]bool, len(c.members))
	for _, i := range up {
		usable[i] = true
	}
	var row []piece
	more := map[int]int{}
	for range up {
		if s.drawn < 0 || !usable[s.drawn] {
			s.draws.Cut()
			s.drawn, _, _ = s.draws.Take(c.since, usable, 1)
		}
		i := s.drawn
		if c.members[i].out.Queued()+more[i]+c.payload() > aheadOf {
			break
		}
		more[i] += c.payload()
		row = append(row, piece{i, c.payload()})
		s.drawn = -1
	}
	return row
}

// planShares cuts one unit into a share for each member. A member that is down gets one too, since it may return in time.
func (c *Conn) planShares(pending int) []piece {
	capacity := c.scheme.Capacity(c.payload())
	up := c.live()
	needed := c.scheme.K
	if c.waits() {
		needed = len(up)
	}
	ready := 0
	for _, i := range up {
		m := c.members[i]
		most := m.pace.limit
		switch {
		case pending < capacity:
			most = c.payload()
		case c.waits():
			most = aheadOf
		}
		if m.out.Queued() < most {
			ready++
		}
	}
	if ready < needed {
		return nil
	}
	row := make([]piece, len(c.members))
	for i := range row {
		row[i] = piece{i, min(pending, capacity)}
	}
	return row
}

// buildFrames cuts the frames of a row. c.mu is not held: only cut takes from the ring.
func (c *Conn) buildFrames(row []piece, from uint64) (frames []reliable.Unit, taken int, err error) {
	s := &c.out
	unit, offset := s.Next(), from
	if !c.scheme.None() {
		frames, err = c.buildShares(row, from)
		return frames, row[0].size, err
	}
	for _, p := range row {
		b := takeBuffer(segment.DataOverhead + p.size)
		segment.Data{Unit: unit, Offset: offset, Size: uint32(p.size)}.Put(b, p.size)
		s.Get(offset, b[segment.DataOverhead:])
		frames = append(frames, reliable.Unit{Number: unit, Offset: offset, Size: p.size, Buf: b, Head: segment.DataOverhead})
		unit, offset, taken = unit+1, offset+uint64(p.size), taken+p.size
	}
	return frames, taken, nil
}

func (c *Conn) buildShares(row []piece, from uint64) ([]reliable.Unit, error) {
	s := &c.out
	size := row[0].size
	s.scratch = slices.Grow(s.scratch[:0], size)[:size]
	s.Get(from, s.scratch)
	frames := make([]reliable.Unit, len(row))
	into := make([][]byte, len(row))
	length := c.scheme.Size(size)
	for i := range row {
		b := takeBuffer(segment.DataOverhead + length)
		segment.Data{Unit: s.Next(), Offset: from, Size: uint32(size)}.Put(b, length)
		frames[i], into[i] = reliable.Unit{Number: s.Next(), Offset: from, Size: size, Buf: b, Head: segment.DataOverhead}, b[segment.DataOverhead:]
	}
	return frames, s.codec.Split(s.Next(), s.scratch, into)
}

// enqueue queues the frames of a row at their members. c.mu is held.
func (c *Conn) enqueue(row []piece, frames []reliable.Unit, taken int) {
	s := &c.out
	s.Cut(taken, frames[len(frames)-1].Number+1)
	for i, p := range row {
		m := c.members[p.member]
		m.given, m.touched = m.given+p.size, true
		m.out.Push(frames[i])
		wake(m.wake)
	}
	if s.Pending() == 0 {
		c.emptied()
	}
	if c.degrade && c.scheme.None() {
		c.rebalance()
	}
	wake(s.writable)
}

// endStream tells the peer the end of the stream once all of it is cut. c.mu is held.
func (c *Conn) endStream() {
	if c.finished || !c.out.Finish() {
		return
	}
	for _, m := range c.members {
		m.finDue = true
		wake(m.wake)
	}
}

// rebalance moves the frames of dead members to live ones, but only with Degrade and without shares. c.mu is held.
func (c *Conn) rebalance() {
	up := c.live()
	if len(up) == 0 {
		return
	}
	n := 0
	for _, m := range c.members {
		if m.link != nil {
			continue
		}
		for _, f := range m.out.Drain() {
			c.members[up[n%len(up)]].out.Adopt(f)
			n++
		}
	}
	for _, i := range up {
		wake(c.members[i].wake)
	}
}

// acked handles the peer's acks. c.mu is held.
func (c *Conn) acked(m *member, a segment.Ack) error {
	more, err := c.out.Acked(a.Units, a.Limit)
	if err != nil {
		return c.violated(m, "%v", err)
	}
	if more {
		for _, other := range c.members {
			other.retire()
		}
		wake(c.out.progress)
	}
	wake(c.out.wake)
	return nil
}
