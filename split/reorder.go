package split

import (
	"cmp"
	"sync"
	"time"

	"heddle/path"
)

// reorderer restores the order of datagrams from several paths, exactly if they are numbered, else by a guess. After a
// switch to an emptier queue, packets overtake others. QUIC takes one that three overtook for lost (RFC 9002, section
// 6.1.1).
type reorderer struct {
	now      func() time.Time
	give     func(datagrams [][]byte) // they are valid until it returns
	numbered bool                     // it holds nothing that has no number

	mu    sync.Mutex
	exact *sequencer
	guess *silence
	out   [][]byte
	due   *time.Timer
	armed time.Time // when it is due; zero if not armed
}

func newReorderer(window time.Duration, paths int, give func([][]byte)) *reorderer {
	return &reorderer{now: time.Now, give: give, exact: newSequencer(window, paths), guess: newSilence(window)}
}

// reorderer returns what restores the order of the session's arrivals, or nil. "auto" by itself holds only what has a number: a
// guess may cost more than it gains.
func (s *Session) reorderer(give func(datagrams [][]byte)) *reorderer {
	auto := s.o.Reorder == 0 && s.o.Schedule.Every.Auto
	if s.o.Reorder == 0 && !auto {
		return nil
	}
	r := newReorderer(cmp.Or(s.o.Reorder, autoReorder), s.Paths(), give)
	r.numbered = auto
	return r
}

// arrived takes what came by path i, and delivers it now or in its turn.
func (r *reorderer) arrived(i int, inbound []path.Inbound) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for _, in := range inbound {
		for d := range in.Datagrams() {
			id, number, known, free := placed(d, in)
			switch {
			case known:
				r.out = r.exact.take(now, i, id, number, d, r.out)
			case free, r.numbered:
				r.out = append(r.out, d)
			default:
				r.out = r.guess.take(now, i, d, r.out)
			}
			if in.Order != 0 {
				in.Order++
			}
		}
	}
	r.flush(now)
}

// flush delivers out and sets the timer. r.mu is held.
func (r *reorderer) flush(now time.Time) {
	if len(r.out) > 0 {
		r.give(r.out)
		clear(r.out)
		r.out = r.out[:0]
	}
	at, any := r.exact.due()
	if guess, also := r.guess.due(); also && (!any || guess.Before(at)) {
		at, any = guess, true
	}
	if !any || at.Equal(r.armed) {
		return // what the timer then finds not due it leaves
	}
	r.armed = at
	if r.due == nil {
		r.due = time.AfterFunc(at.Sub(now), r.tick)
		return
	}
	r.due.Reset(at.Sub(now))
}

func (r *reorderer) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.armed = time.Time{}
	r.out = r.exact.advance(now, r.out)
	r.out = r.guess.advance(now, r.out)
	r.flush(now)
}
