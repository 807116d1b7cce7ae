package reliable

import (
	"fmt"
	"slices"
)

// Outbox is what one carrier has to send, and what it sent that is not confirmed, in the order in which it goes out. A
// carrier that comes back goes on with the same one.
type Outbox struct {
	s             *Sender
	waiting, sent fifo
	queued        int    // bytes in waiting
	busy          int    // so many of the last ones in sent are being sent
	next          uint64 // the Seq of the next unit
}

// NewOutbox makes the outbox of a carrier.
func (s *Sender) NewOutbox() *Outbox { return &Outbox{s: s, next: 1} }

// Push queues a unit that was cut.
func (o *Outbox) Push(u Unit) {
	o.s.keep(u)
	o.Adopt(u)
}

// Adopt queues a unit that the sender keeps, such as one that another outbox was drained of.
func (o *Outbox) Adopt(u Unit) {
	o.waiting.push(u)
	o.queued += len(u.Buf)
}

// Waiting is how many units wait to be sent.
func (o *Outbox) Waiting() int { return o.waiting.len() }

// Queued is how many bytes wait to be sent.
func (o *Outbox) Queued() int { return o.queued }

// Unproved is how many units were sent and are not known to have arrived.
func (o *Outbox) Unproved() int { return o.sent.len() }

// Busy is how many units are being sent.
func (o *Outbox) Busy() int { return o.busy }

// Take gives the next unit to send; fresh is false where the carrier was given it before. It counts as being sent, so
// that its buffer stays, until [Outbox.Sent].
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

// Sent says that what was taken is not read any more.
func (o *Outbox) Sent() { o.busy = 0 }

// give notes a unit that goes out at once, and numbers it unless the carrier was given it before.
func (o *Outbox) give(u Unit) Unit {
	if u.Seq == 0 {
		u.Seq = o.next
		o.next++
	}
	o.sent.push(u)
	return u
}

// Retire lets go of what the other side has, as [Sender.Acked] heard; also of what is not sent yet, where waiting says so,
// since shares of a unit are needless once it was restored. It gives how many of the sent units arrived, and how many were
// never sent.
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

// Resume puts what was sent and did not arrive back to the front: the carrier lost its connection and has a new one. Units
// whose Seq is below theirs arrived by the old one. It gives how many will go out again.
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

// Drain empties the outbox of a carrier that is lost, and gives what did not arrive, for others to send.
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

// Fail says that the carrier is lost: [Sender.Fill] gives what it did not deliver to others.
func (o *Outbox) Fail() { o.s.recover(o.Drain()...) }

// Delivered says that the other side has the unit that the carrier was given as seq.
func (o *Outbox) Delivered(seq uint64) {
	if u, ok := o.remove(seq); ok {
		o.s.release(u)
	}
}

// Lost says that the unit that the carrier was given as seq did not arrive, while the carrier goes on.
func (o *Outbox) Lost(seq uint64) {
	if u, ok := o.remove(seq); ok {
		o.s.recover(u)
	}
}

// remove takes one unit out of those that were sent; false where it is not among them any more.
func (o *Outbox) remove(seq uint64) (Unit, bool) {
	i := slices.IndexFunc(o.sent.items[o.sent.head:], func(u Unit) bool { return u.Seq == seq })
	if i < 0 {
		return Unit{}, false
	}
	u := *o.sent.at(i)
	o.sent.items = slices.Delete(o.sent.items, o.sent.head+i, o.sent.head+i+1)
	return u, true
}

// First is the place in the stream of the first byte in the outbox that is not known to have arrived.
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
