package stripe

import (
	"slices"
	"time"

	"heddle/internal/reliable"
	"heddle/internal/segment"
	"heddle/schedule"
	"heddle/stripe/share"
)

// The schedules.
const (
	Strict   = "strict"
	Fast     = "fast"
	Weighted = "weighted"
)

const (
	// initialLimit is how much of a stream may be sent before the other side said anything.
	initialLimit = 1 << 20
	// aheadOf is how many bytes may wait for a member where the schedule leaves no choice: so far may a path fall behind the
	// others for a moment without holding them up.
	aheadOf = 1 << 20
	// atOnce is how many segments a member gets by one decision.
	atOnce = 8
	// minRing is how much may be written before it is cut.
	minRing = 256 << 10
)

// sender is the half of a session that cuts the stream.
type sender struct {
	*reliable.Sender
	turn           int                // who gets the odd byte next
	wake, writable chan struct{}      // for the cutter, and for Write
	progress       chan struct{}      // for Close
	draws          *schedule.Schedule // where weighted
	drawn          int                // the path whose turn it is, -1 before the draw
	since, emptied time.Time          // since when there is something to send but for pauses, and when all was cut
	weights        []float64
	codec          *share.Codec // of the cutter alone
	scratch        []byte
}

// piece is what one member gets of a row.
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

// cut turns what was written into frames, until the session is over.
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

// plan decides what is cut next; nil is nothing. c.mu is held.
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
		// A message, or its end: it goes out once each path can take a part, so that it is on none of them whole.
		up = c.inTime(up)
		if c.room(up, c.payload(), 0) < len(up) {
			return nil
		}
		return c.divide(min(pending, len(up)*c.payload()), up)
	}
	switch {
	case pending < row: // the window leaves less than is there; it will open
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

// room counts the members that could take more bytes without holding more than most.
func (c *Conn) room(members []int, most, more int) int {
	n := 0
	for _, i := range members {
		if c.members[i].out.Queued()+more <= most {
			n++
		}
	}
	return n
}

// divide cuts n bytes into one piece for each member: evenly to the byte over time, or by weight.
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

// weightAmong is the weight of a member as part of those that are up.
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

// planWeighted draws a member for each segment, and waits for the one that is drawn.
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

// planShares cuts one unit, of which each member gets a share, also one that is down: it may come back in time.
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

// buildFrames cuts the frames of a row. c.mu is not held: nobody else takes from the ring.
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

// endStream says that the stream is at its end, once all of it is cut. c.mu is held.
func (c *Conn) endStream() {
	if c.finished || !c.out.Finish() {
		return
	}
	for _, m := range c.members {
		m.finDue = true
		wake(m.wake)
	}
}

// rebalance moves what is under way on members that are down to those that are up. Only a session that may degrade does so,
// and never with shares. c.mu is held.
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

// acked takes what the other side says of this side's stream. c.mu is held.
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
