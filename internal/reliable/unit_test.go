package reliable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// Units are never split. Their carriers come back, as connections do.
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
