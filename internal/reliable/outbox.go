package reliable

import (
	"fmt"
	"slices"
)

// Outbox is the queue of one carrier, in sending order: units to send, and sent units without an acknowledgement. A carrier
// that reconnects continues with the same outbox.
type Outbox struct {
	s             *Sender
	waiting, sent fifo
	queued        int    // bytes of waiting
	busy          int    // number of the last units of sent that are being sent now
	next          uint64 // Seq of the next unit
}

func (s *Sender) NewOutbox() *Outbox { return &Outbox{s: s, next: 1} }

// Push queues a unit that was just cut.
func (o *Outbox) Push(u Unit) {
	o.s.keep(u)
	o.Adopt(u)
}

// Adopt queues a unit that the sender already keeps, such as one drained from another outbox.
func (o *Outbox) Adopt(u Unit) {
	o.waiting.push(u)
	o.queued += len(u.Buf)
}

// Waiting returns the number of units to send.
func (o *Outbox) Waiting() int { return o.waiting.len() }

// Queued returns the number of bytes to send.
func (o *Outbox) Queued() int { return o.queued }

// Unproved returns the number of sent units that are not acknowledged.
func (o *Outbox) Unproved() int { return o.sent.len() }

// Busy returns the number of units that are being sent.
func (o *Outbox) Busy() int { return o.busy }

// Take returns the next unit to send. fresh is false if the carrier had it before. Until [Outbox.Sent], the unit counts as
// being sent and keeps its buffer.
func (o *Outbox) Take() (u Unit, fresh, ok bool) {
	if o.waiting.len() == 0 {
		return u, false, false
	}
	u = o.waiting.pop()
	o.queued -= len(u.Buf)
	fresh = u.Seq == 0
	o.busy++
	return o.give(u), fresh, true
}

// Sent reports that the carrier no longer reads the buffers of taken units.
func (o *Outbox) Sent() { o.busy = 0 }

// give records a unit that goes out now, and numbers it unless the carrier had it before.
func (o *Outbox) give(u Unit) Unit {
	if u.Seq == 0 {
		u.Seq = o.next
		o.next++
	}
	o.sent.push(u)
	return u
}

// Retire releases the units that [Sender.Acked] reported. With waiting set it also releases unsent ones, as further shares
// of a restored unit are useless. It returns how many sent units arrived, and how many were never sent.
func (o *Outbox) Retire(waiting bool) (arrived, skipped int) {
	for o.sent.len() > o.busy && o.s.arrived(o.sent.at(0)) {
		o.s.release(o.sent.pop())
		arrived++
	}
	for waiting && o.waiting.len() > 0 && o.s.arrived(o.waiting.at(0)) {
		u := o.waiting.pop()
		o.queued -= len(u.Buf)
		o.s.release(u)
		if u.Seq == 0 {
			skipped++
		}
	}
	return arrived, skipped
}

// Resume moves sent units that did not arrive to the front, after the carrier reconnected. Units with a Seq below theirs
// arrived. It returns how many units will go out again.
func (o *Outbox) Resume(theirs uint64) (again int, err error) {
	if theirs > o.next {
		return 0, violation(fmt.Sprintf("it has %d frames, of which %d were sent", theirs, o.next))
	}
	sent, waiting := o.takeAll()
	for _, u := range sent {
		if u.Seq < theirs || o.s.arrived(&u) {
			o.s.release(u)
			continue
		}
		again++
		o.Adopt(u)
	}
	for _, u := range waiting {
		o.Adopt(u)
	}
	return again, nil
}

func (o *Outbox) takeAll() (sent, waiting []Unit) {
	o.busy, o.queued = 0, 0
	return o.sent.takeAll(), o.waiting.takeAll()
}

// Drain empties the outbox of a lost carrier, and returns the units that did not arrive, to be sent by others.
func (o *Outbox) Drain() (left []Unit) {
	sent, waiting := o.takeAll()
	for _, u := range slices.Concat(sent, waiting) {
		if o.s.arrived(&u) {
			o.s.release(u)
			continue
		}
		u.Seq = 0
		left = append(left, u)
	}
	return left
}

// First returns the stream offset of the first byte in the outbox that is not acknowledged.
func (o *Outbox) First() (offset uint64, ok bool) {
	for _, q := range []*fifo{&o.sent, &o.waiting} {
		for i := range q.len() {
			if u := q.at(i); !o.s.arrived(u) && (!ok || u.Offset < offset) {
				offset, ok = u.Offset, true
			}
		}
	}
	return offset, ok
}
