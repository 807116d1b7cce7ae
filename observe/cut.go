package observe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"heddle/path"
)

// TraceOptions say what the sessions of a trace are. With the zero value each session stays whole.
type TraceOptions struct {
	Payload bool          // count the bytes that TCP, UDP or else IP carries, and leave out packets without any
	Flows   bool          // make each conversation a session
	Gap     time.Duration // if positive, begin a new session after so long a silence on all paths
	Sort    bool          // allow times that go backwards
}

// jitter is how far times may go backwards in any capture: threads that capture both directions write their packets a
// little out of order.
const jitter = 10 * time.Millisecond

// cut returns the sessions that the options make of one.
func (s *Session) cut(options TraceOptions) ([]*Session, error) {
	if options.Flows && len(s.Observers) > 1 {
		return nil, &path.Error{What: "session " + s.Label, Why: fmt.Sprintf(
			"it has %d observers, and conversations on several paths cannot be matched", len(s.Observers)),
			Hint: "cut it by silences, or name one capture"}
	}
	if err := s.inOrder(); err != nil && !options.Sort {
		return nil, err
	}
	whole := *s
	if options.Payload {
		whole.Observers = nil
		for _, o := range s.Observers {
			o.Packets = payloads(o.Packets)
			whole.Observers = append(whole.Observers, o)
		}
	}
	switch {
	case options.Flows:
		return whole.parts(func(p Packet) int { return p.Flow }), nil
	case options.Gap > 0:
		begins := whole.begins(options.Gap)
		return whole.parts(func(p Packet) int {
			part, _ := slices.BinarySearchFunc(begins, p.Time, func(begin, at time.Time) int { return cmp.Or(begin.Compare(at), -1) })
			return part
		}), nil
	}
	return []*Session{&whole}, nil
}

func (s *Session) inOrder() error {
	for _, o := range s.Observers {
		for _, c := range o.captures {
			if c.Backwards > jitter.Seconds() {
				return &path.Error{What: "capture " + c.File, Why: fmt.Sprintf("its times go backwards at packet %d", c.disordered),
					Hint: "--sort puts packets in the order of time"}
			}
		}
	}
	return nil
}

// payloads returns packets with the sizes of their payloads, without those that carry none.
func payloads(packets []Packet) []Packet {
	var kept []Packet
	for _, p := range packets {
		if p.Size = p.Payload; p.Size > 0 {
			kept = append(kept, p)
		}
	}
	return kept
}

// begins returns when a session begins after a silence of all observers, in order.
func (s *Session) begins(silence time.Duration) (begins []time.Time) {
	all := s.merged()
	for i := 1; i < len(all); i++ {
		if all[i].Time.Sub(all[i-1].Time) >= silence {
			begins = append(begins, all[i].Time)
		}
	}
	return begins
}

// parts divides a session by the number of each packet's part, in order of these numbers.
func (s *Session) parts(of func(Packet) int) []*Session {
	divided := map[int][][]Packet{} // by part and observer
	for i, o := range s.Observers {
		for _, p := range o.Packets {
			part := of(p)
			if divided[part] == nil {
				divided[part] = make([][]Packet, len(s.Observers))
			}
			divided[part][i] = append(divided[part][i], p)
		}
	}
	var all []*Session
	for _, part := range slices.Sorted(maps.Keys(divided)) {
		one := &Session{Label: s.Label}
		for i, o := range s.Observers {
			o.Packets = divided[part][i]
			one.Observers = append(one.Observers, o)
		}
		all = append(all, one)
	}
	return all
}
