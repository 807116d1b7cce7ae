package reliable

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// A cover decides how large each block is. Blocks get lost, are delivered in any order and more than once, and a cover
// connection may die with all that is in it.

// entry is what a unit costs in a block besides its bytes: its place and its length.
const entry = 6

type block struct {
	wire []byte
	seqs []uint64
}

type cover struct {
	out    *Outbox
	flying []block
}

// pack fills a block of exactly room bytes.
func (c *cover) pack(s *Sender, room int) (b block) {
	for room-len(b.wire) > entry {
		u, ok := s.Fill(c.out, room-len(b.wire)-entry)
		if !ok {
			break
		}
		b.wire = binary.BigEndian.AppendUint32(b.wire, uint32(u.Offset))
		b.wire = binary.BigEndian.AppendUint16(b.wire, uint16(u.Size))
		b.wire = append(b.wire, u.Data()...)
		b.seqs = append(b.seqs, u.Seq)
	}
	b.wire = append(b.wire, make([]byte, room-len(b.wire))...) // padding
	return b
}

// unpack takes a block.
func unpack(r *Receiver, wire []byte, now time.Time) error {
	for len(wire) > entry {
		offset, size := binary.BigEndian.Uint32(wire), int(binary.BigEndian.Uint16(wire[4:]))
		if size == 0 {
			break
		}
		u := Unit{Number: uint64(offset), Offset: uint64(offset), Size: size, Buf: bytes.Clone(wire[entry : entry+size])}
		if _, err := r.Take(u, now); err != nil {
			return err
		}
		wire = wire[entry+size:]
	}
	return nil
}

// model is a stream in one direction over covers.
type model struct {
	t      *testing.T
	rng    *rand.Rand
	s      *Sender
	r      *Receiver
	covers []*cover
	got    []byte
	now    time.Time
	want   []byte
}

func (m *model) check(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatalf("after %d bytes: %v", len(m.got), err)
	}
}

// step does one thing, of those that may happen at any time.
func (m *model) step() {
	m.now = m.now.Add(time.Duration(m.rng.IntN(3000)) * time.Microsecond)
	i := m.rng.IntN(len(m.covers))
	c := m.covers[i]
	switch what := m.rng.IntN(100); {
	case what < 25:
		n := min(m.rng.IntN(3000), len(m.want)-int(m.s.Written()))
		if m.s.Write(m.want[m.s.Written():][:n]); int(m.s.Written()) == len(m.want) {
			m.s.Close()
			m.s.Finish()
		}
	case what < 55:
		if b := c.pack(m.s, entry+1+m.rng.IntN([]int{20, 300, 1400}[i%3])); len(b.seqs) > 0 {
			c.flying = append(c.flying, b)
		}
	case what < 80:
		m.arrive(c)
	case what < 90:
		b := make([]byte, m.rng.IntN(4000))
		m.got = append(m.got, b[:m.r.Read(b, m.now)]...)
	case what < 99:
		if end := m.s.End(); end != nil {
			_, err := m.r.TakeEnd(*end, m.now)
			m.check(err)
		}
		_, err := m.s.Acked(m.r.Ack())
		m.check(err)
		for _, c := range m.covers {
			c.out.Retire(false)
		}
	case m.rng.IntN(3) == 0: // it dies: of what was under way some arrives all the same, and nobody says so
		for _, b := range c.flying {
			if m.rng.IntN(2) == 0 {
				m.check(unpack(m.r, b.wire, m.now))
			}
		}
		c.out.Fail()
		m.covers[i] = &cover{out: m.s.NewOutbox()}
	}
}

// arrive delivers a block, any of those under way, or loses it.
func (m *model) arrive(c *cover) {
	if len(c.flying) == 0 {
		return
	}
	k := m.rng.IntN(len(c.flying))
	b := c.flying[k]
	fate := m.rng.IntN(10)
	if fate > 0 {
		m.check(unpack(m.r, b.wire, m.now))
	}
	if fate == 9 { // and once more, later
		return
	}
	c.flying = append(c.flying[:k], c.flying[k+1:]...)
	for _, seq := range b.seqs {
		if fate > 1 {
			c.out.Delivered(seq)
		} else { // the block or what acknowledged it
			c.out.Lost(seq)
		}
	}
}

func TestStreamInBlocksOfACover(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			m := &model{t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: start, want: stream(200_000)}
			m.s = NewSender(SenderOptions{Numbering: ByByte, Buffer: 5000, Credit: 8000, Hold: 20_000, Ahead: 500})
			m.r = NewReceiver(ReceiverOptions{Numbering: ByByte, Window: 8000, Widest: 32_000, Ahead: 500})
			for range 1 + seed%5 {
				m.covers = append(m.covers, &cover{out: m.s.NewOutbox()})
			}
			steps := 0
			for ; !m.s.Proved() || len(m.got) < len(m.want); steps++ {
				if steps > 200_000 {
					t.Fatalf("stuck: %d bytes of %d were read, %d written, %d held, %d ready", len(m.got), len(m.want), m.s.Written(), m.s.held, m.s.Ready(1))
				}
				m.step()
				if m.s.held > 20_000+1400 || m.r.Offset()-uint64(len(m.got)) > 32_000 {
					t.Fatalf("%d bytes are held, %d are unread", m.s.held, m.r.Offset()-uint64(len(m.got)))
				}
			}
			if !bytes.Equal(m.got, m.want) || !m.r.Ended() {
				t.Errorf("what was read is not what was written, ended %v", m.r.Ended())
			}
			for _, c := range m.covers {
				c.out.Retire(false)
				c.out.Fail()
			}
			if m.s.Fill(m.covers[0].out, 1000); m.s.held != 0 || m.s.units != 0 {
				t.Errorf("%d bytes of %d units are held at the end", m.s.held, m.s.units)
			}
		})
	}
}

// The same with units that are never split, over carriers that come back, as connections do.
func TestStreamInWholeUnits(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 2))
			want := stream(100_000)
			freed := 0
			s := NewSender(SenderOptions{Buffer: 5000, Credit: 8000, Hold: 20_000, Ahead: 50, Free: func([]byte) { freed++ }})
			r := NewReceiver(ReceiverOptions{Window: 8000, Widest: 16_000, Ahead: 50})
			type line struct {
				out      *Outbox
				received uint64 // by the other side, frames before this one
				flying   []Unit
			}
			lines := []*line{{out: s.NewOutbox(), received: 1}, {out: s.NewOutbox(), received: 1}, {out: s.NewOutbox(), received: 1}}
			var got []byte
			now := start
			for steps := 0; !s.Proved() || len(got) < len(want); steps++ {
				if steps > 200_000 {
					t.Fatalf("stuck: %d bytes of %d were read, %d written, %d held", len(got), len(want), s.Written(), s.held)
				}
				now = now.Add(time.Millisecond)
				l := lines[rng.IntN(3)]
				switch what := rng.IntN(100); {
				case what < 20:
					if s.Write(want[s.Written():min(len(want), int(s.Written())+rng.IntN(2000))]); int(s.Written()) == len(want) {
						s.Close()
						s.Finish()
					}
				case what < 45:
					if n := min(s.Ready(1), 1+rng.IntN(700)); n > 0 {
						push(s, l.out, n)
						s.Finish()
					}
				case what < 65:
					if u, _, ok := l.out.Take(); ok {
						l.flying = append(l.flying, u)
						l.out.Sent()
					}
				case what < 85: // in order on each line
					if len(l.flying) > 0 {
						u := l.flying[0]
						l.flying = l.flying[1:]
						if u.Seq != l.received {
							t.Fatalf("frame %d came, and it is the turn of %d", u.Seq, l.received)
						}
						l.received++
						u.Buf = bytes.Clone(u.Buf)
						if _, err := r.Take(u, now); err != nil {
							t.Fatal(err)
						}
					}
				case what < 90:
					b := make([]byte, rng.IntN(4000))
					got = append(got, b[:r.Read(b, now)]...)
				case what < 98:
					if end := s.End(); end != nil {
						if _, err := r.TakeEnd(*end, now); err != nil {
							t.Fatal(err)
						}
					}
					if _, err := s.Acked(r.Ack()); err != nil {
						t.Fatal(err)
					}
					for _, l := range lines {
						l.out.Retire(false)
					}
				default: // the connection is cut, and there is a new one
					l.flying = nil
					if _, err := l.out.Resume(l.received); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, l := range lines {
				l.out.Retire(true)
			}
			if !bytes.Equal(got, want) || s.held != 0 || freed != int(s.Next()) {
				t.Errorf("what was read is not what was written, or %d bytes are held, or %d of %d units were freed", s.held, freed, s.Next())
			}
		})
	}
}
