package embed

import (
	"context"
	"crypto/rand"
	"time"

	"heddle/disguise/block"
	"heddle/disguise/cover"
	"heddle/internal/netutil"
)

// leastBlock is the smallest block of a stream, in bytes: a block may span small packets, so that its overhead leaves room.
const leastBlock = 128

// tail is how long an end of datagrams still reads after its trace: the peer's last ones are on their way.
const tail = 2 * time.Second

// player sends the packets of one side of a trace.
type player struct {
	*connection
	feed    cover.Feed
	header  *writer
	packets int    // of this side
	rest    int64  // bytes of a stream that this side will send, or -1 if its trace loops
	ready   []byte // bytes of a stream that the next packets carry
	b       []byte
}

func newPlayer(c *connection, f cover.Feed) *player {
	p := &player{connection: c, feed: f, header: newWriter(c.trace.Header(c.down))}
	p.packets, _ = c.trace.Count(c.down)
	for _, before := range c.trace.Packets[:c.start] {
		if before.Down == c.down {
			p.header.next(p.packets)
		}
	}
	if !c.trace.Datagrams {
		p.ready = make([]byte, p.header.size)
		p.header.write(p.ready)
		_, p.rest = c.trace.Count(c.down)
		p.rest -= int64(p.header.size)
		if c.trace.Loop {
			p.rest = -1
		}
	}
	return p
}

// run sends each packet at its time since the beginning. A packet that is late makes no other one late.
func (p *player) run(ctx context.Context, w *cover.Wire) error {
	t := p.trace
	began := time.Now().Add(-t.Packets[p.start].At)
	for from := p.start; ; from = 0 {
		for _, packet := range t.Packets[from:] {
			if packet.Down != p.down {
				continue
			}
			if !sleepUntil(ctx, began.Add(packet.At)) {
				return context.Cause(ctx)
			}
			b, err := p.fill(packet.Size)
			if err != nil {
				return err
			}
			if w.Left(len(b)) < len(b) {
				return nil
			}
			if _, err := w.Write(b); err != nil {
				return err
			}
		}
		if began = began.Add(t.Duration() + t.rest()); !t.Loop {
			break
		}
	}
	end := began.Add(-t.rest())
	if t.Datagrams {
		end = end.Add(tail)
	}
	sleepUntil(ctx, end)
	return nil
}

// fill returns the next packet, which is valid until the next call.
func (p *player) fill(size int) ([]byte, error) {
	if !p.trace.Datagrams {
		return p.fillStream(size)
	}
	if cap(p.b) < size {
		p.b = make([]byte, size)
	}
	b := p.b[:size]
	p.header.write(b)
	p.header.next(p.packets)
	body := b[min(size, p.header.size):]
	if len(body) < block.Overhead {
		_, _ = rand.Read(body)
		return b, nil
	}
	_, err := p.feed.Fill(body)
	return b, err
}

// fillStream makes as many blocks as it takes until size bytes are ready.
func (p *player) fillStream(size int) ([]byte, error) {
	p.ready = append(p.b[:0], p.ready...)
	if missing := size - len(p.ready); missing > 0 {
		more := max(missing, leastBlock)
		if p.rest >= 0 && int64(more) > p.rest {
			more = missing // no other packet takes the rest of the block
		}
		at := len(p.ready)
		p.ready = append(p.ready, make([]byte, more)...)
		if more < block.Overhead {
			_, _ = rand.Read(p.ready[at:])
		} else if _, err := p.feed.Fill(p.ready[at:]); err != nil {
			return nil, err
		}
		if p.rest >= 0 {
			p.rest -= int64(more)
		}
	}
	p.b = p.ready
	p.ready = p.ready[size:]
	return p.b[:size], nil
}

// sleepUntil returns false if ctx ended first.
func sleepUntil(ctx context.Context, at time.Time) bool {
	left := time.Until(at)
	if left <= 0 {
		return ctx.Err() == nil
	}
	return netutil.Sleep(ctx, left) == nil
}
