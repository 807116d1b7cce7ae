package handshake

import (
	"errors"
	"io"
	"sync"
	"time"
)

const (
	slotSeconds = 600          // messages are kept in slots of this many seconds of their own time
	maxSeen     = 1 << 20      // messages that are remembered at once: about 40 MB
	maxAhead    = maxSeen / 64 // messages in one slot that begins later than leastAhead from now
	leastAhead  = 600          // seconds
	leastKept   = 600          // seconds for which no slot is forgotten after its end
)

// Replays remembers which messages arrived, for as long as their time would be accepted. The zero value keeps them in memory only.
//
// It remembers a bounded number. When it is full it forgets the oldest slot of times, and refuses all messages of these times from
// then on. It never forgets the slots around the present time, and keeps few messages of times ahead. So a flood of messages by
// somebody who knows the bridge's key shuts out the users whose clocks are wrong, and others only at more than a thousand
// messages each second.
type Replays struct {
	max, ahead int // 0 is maxSeen and maxAhead

	mu    sync.Mutex
	slots map[int64]*slot // by start, in slots since 1970
	total int             // messages in slots
	floor int64           // slots below are forgotten
	disk  *disk           // nil is memory only
	lock  io.Closer
}

// record is the start of a representative. A client could find two with the same start, and shut out only itself.
type record [16]byte

type slot struct {
	seen map[record]struct{}
	file *slotFile // nil is memory only, or nothing to write yet
}

// check refuses a message that was seen.
func (r *Replays) check(from Representative, at time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.checkLocked(from, at)
}

func (r *Replays) checkLocked(from Representative, at time.Time) error {
	number := at.Unix() / slotSeconds
	if number < r.floor {
		return &Refusal{Reason: Replayed}
	}
	if s := r.slots[number]; s != nil {
		if _, seen := s.seen[record(from[:])]; seen {
			return &Refusal{Reason: Replayed}
		}
	}
	return nil
}

var errFull = errors.New("too many messages arrived in a short time")

// remember refuses a message that was seen, or that it cannot remember.
func (r *Replays) remember(from Representative, at, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.expire(now); err != nil {
		return &Refusal{Reason: NotKept, Err: err}
	}
	if err := r.checkLocked(from, at); err != nil {
		return err
	}
	number := at.Unix() / slotSeconds
	if err := r.room(number, now); err != nil {
		return &Refusal{Reason: NotKept, Err: err}
	}
	s := r.slot(number)
	if r.disk != nil {
		if err := r.disk.keep(s, number, record(from[:])); err != nil {
			return &Refusal{Reason: NotKept, Err: err}
		}
	}
	s.seen[record(from[:])] = struct{}{}
	r.total++
	return nil
}

// slot makes the slot if it is new.
func (r *Replays) slot(number int64) *slot {
	s := r.slots[number]
	if s == nil {
		s = &slot{seen: map[record]struct{}{}}
		if r.slots == nil {
			r.slots = map[int64]*slot{}
		}
		r.slots[number] = s
	}
	return s
}

// expire forgets the slots whose times are no longer accepted.
func (r *Replays) expire(now time.Time) error {
	last, accepted := int64(-1), now.Add(-MaxSkew).Unix()
	for number := range r.slots {
		if (number+1)*slotSeconds <= accepted {
			last = max(last, number)
		}
	}
	if last < 0 {
		return nil
	}
	return r.forget(last)
}

// room makes room for one more message in a slot.
func (r *Replays) room(number int64, now time.Time) error {
	limit, ahead := r.max, r.ahead
	if limit == 0 {
		limit, ahead = maxSeen, maxAhead
	}
	if s := r.slots[number]; s != nil && number*slotSeconds > now.Unix()+leastAhead && len(s.seen) >= ahead {
		return errFull
	}
	for r.total >= limit {
		oldest, ok := r.oldest()
		if !ok || oldest >= number || (oldest+1)*slotSeconds > now.Unix()-leastKept {
			return errFull
		}
		if err := r.forget(oldest); err != nil {
			return err
		}
	}
	return nil
}

func (r *Replays) oldest() (number int64, ok bool) {
	for one := range r.slots {
		if !ok || one < number {
			number, ok = one, true
		}
	}
	return number, ok
}

// forget drops all slots up to one. It writes the new floor first: without it, a restart would accept their messages again.
func (r *Replays) forget(last int64) error {
	if r.disk != nil {
		if err := r.disk.setFloor(last + 1); err != nil {
			return err
		}
	}
	r.floor = last + 1
	for number, s := range r.slots {
		if number > last {
			continue
		}
		if r.disk != nil {
			r.disk.remove(s, number)
		}
		r.total -= len(s.seen)
		delete(r.slots, number)
	}
	return nil
}

// Close ends the use of the state directory.
func (r *Replays) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, s := range r.slots {
		errs = append(errs, s.file.close())
	}
	if r.lock != nil {
		errs = append(errs, r.lock.Close())
		r.lock = nil
	}
	if r.disk != nil {
		r.disk.closed = true
	}
	return errors.Join(errs...)
}
