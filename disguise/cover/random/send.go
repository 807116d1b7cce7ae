package random

import (
	"context"
	"net"
	"time"

	"heddle/disguise/block"
	"heddle/disguise/cover"
	"heddle/internal/netutil"
	"heddle/internal/unsent"
)

// sender sends blocks on one connection.
type sender struct {
	*connection
	feed  cover.Feed
	pace  pace
	begun bool // a block was sent
	b     []byte
}

// smallest is the least room for which a block is worth its overhead.
const smallest = 2 * block.Overhead

// run sends what waits at once: a block as large as the pace allows, or a small one with a little padding. After a small one
// it rests, which lets what a program writes in many pieces leave in few blocks.
func (s *sender) run(ctx context.Context, w *cover.Wire) error {
	for ctx.Err() == nil {
		waiting, err := s.feed.Wait(ctx)
		if err != nil {
			return err
		}
		size, large := s.size(max(waiting, w.Least()-s.lead))
		if size = w.Left(s.lead+size) - s.lead; size < smallest {
			return nil
		}
		began := time.Now()
		if err := s.send(w, size); err != nil {
			return err
		}
		if large {
			s.pace.wrote(size, time.Since(began))
		} else {
			_ = netutil.Sleep(ctx, s.shape.rest(s.draws))
		}
	}
	return context.Cause(ctx)
}

// size returns the length of the next block, and whether more waits than fits into it.
func (s *sender) size(waiting int) (size int, large bool) {
	if most := s.shape.largeBlock(s.draws, s.pace.bytes); waiting >= most {
		return most, true
	}
	return max(waiting, smallest) + s.shape.padding(s.draws, !s.begun), false
}

func (s *sender) send(w *cover.Wire, size int) error {
	if len(s.b) < s.lead+size {
		s.b = make([]byte, s.lead+size)
	}
	b := s.b[:s.lead+size]
	printableLead(s.draws, b[:s.lead])
	if _, err := s.feed.Fill(b[s.lead:]); err != nil {
		return err
	}
	s.begun, s.lead = true, 0
	_, err := w.Write(b)
	return err
}

// pace chooses the length of large blocks, so that what waits in the kernel leaves within about [horizon]. More would
// delay later small blocks, and would be lost with the connection; less would leave a fast connection idle.
type pace struct {
	bytes int
	limit func(bytes int) error // sets how much may wait unsent in the kernel; nil if the system has no such limit
}

const (
	horizon   = 20 * time.Millisecond
	startPace = 16 << 10 // bytes
	leastPace = 4 << 10
	mostPace  = 256 << 10
	atOnce    = time.Millisecond // a shorter write found room in the kernel
)

func newPace(c net.Conn) pace {
	p := pace{bytes: startPace, limit: func(bytes int) error { return unsent.Limit(c, bytes) }}
	p.apply()
	return p
}

// wrote learns from the time that the write of a large block took.
func (p *pace) wrote(size int, took time.Duration) {
	fits := p.bytes * 2
	if took >= atOnce {
		fits = int(float64(size) * float64(horizon) / float64(took))
	}
	before := p.bytes
	p.bytes = min(max(fits, before/2, leastPace), before*2, mostPace)
	if p.bytes != before {
		p.apply()
	}
}

func (p *pace) apply() {
	if p.limit != nil && p.limit(p.bytes) != nil {
		p.limit = nil
	}
}
