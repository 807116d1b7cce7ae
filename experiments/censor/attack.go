package censor

import (
	"bytes"
	"slices"
	"time"

	"heddle/observe/inspect"
)

// Attack is what a censor does to TCP connections that begin while it runs.
type Attack struct {
	Name, About string
	strike      func(j *judge, f *flow, s *segment) action
}

// action is what an attack does with a segment.
type action int

const (
	pass    action = iota
	cut            // drop it, and all later packets of the connection
	replace        // send what the attack forged in place of it
	hold           // send it behind the next one of its direction
	end            // send what the attack forged in place of it, and drop all later packets
)

// Limits of the attacks, in bytes of a connection's streams.
const (
	freezeAfter = 16_000  // from the server
	strikeAfter = 100_000 // both ways
	reorderEach = 5       // segments of one direction
	lateBy      = 300 * time.Millisecond
)

// Attacks are all of them.
var Attacks = []Attack{
	{"encrypted", "cut connections whose first packet looks fully encrypted", func(_ *judge, _ *flow, s *segment) action {
		if s.first && inspect.Exemption(s.payload) == "" {
			return cut
		}
		return pass
	}},
	{"freeze", "freeze connections after 16 kB from the server", func(_ *judge, f *flow, _ *segment) action {
		if f.stream.bytes[fromServer] > freezeAfter {
			return cut
		}
		return pass
	}},
	{"kill", "reset connections after 100 kB", func(j *judge, f *flow, s *segment) action {
		if f.stream.total() <= strikeAfter {
			return pass
		}
		s.forged = j.resets()
		return end
	}},
	{"truncate", "end connections (FIN) after 100 kB, in the midst of a segment", func(j *judge, f *flow, s *segment) action {
		if f.stream.total() <= strikeAfter {
			return pass
		}
		s.forged = j.truncation()
		return end
	}},
	{"flip", "change a bit of every 100 kB", func(j *judge, f *flow, s *segment) action {
		if f.stream.total()/strikeAfter == s.before/strikeAfter {
			return pass
		}
		s.forged = j.flipped()
		return replace
	}},
	{"reorder", "send every fifth segment behind the next one", func(_ *judge, f *flow, s *segment) action {
		if f.stream.segments[s.side]%reorderEach == 0 {
			return hold
		}
		return pass
	}},
	{"delay", "delay all packets by 300 ms", nil},
	{"probe", "cut off servers that answer probes, such as a replay", func(j *judge, f *flow, s *segment) action {
		answered, known := j.probed[f.server()]
		if !known && s.first {
			j.probed[f.server()] = false
			j.suspect(f.server(), bytes.Clone(s.payload))
		}
		if answered {
			return cut
		}
		return pass
	}},
}

// delay is the attack that strikes outside of the judge.
const delay = "delay"

// AttackNames are the names of all attacks.
func AttackNames() (names []string) {
	for _, a := range Attacks {
		names = append(names, a.Name)
	}
	return names
}

// attackByName returns an attack, or nil.
func attackByName(name string) *Attack {
	if i := slices.IndexFunc(Attacks, func(a Attack) bool { return a.Name == name }); i >= 0 {
		return &Attacks[i]
	}
	return nil
}

// The sides of a connection.
const (
	fromClient = iota
	fromServer
)

// stream is what a censor knows of a TCP connection whose first packet it saw.
type stream struct {
	opened   bool
	forward  bool      // the direction of the client's packets
	start    [2]uint32 // sequence number of the first byte
	bytes    [2]uint32 // of the stream, by side: how far it came
	segments [2]int    // with data
	held     [2][]byte
}

func (s *stream) total() uint32 { return s.bytes[fromClient] + s.bytes[fromServer] }

// segment is one segment with data.
type segment struct {
	side    int
	first   bool // the client's first one
	payload []byte
	before  uint32 // total of the stream before it
	forged  [][]byte
}

// attack follows a connection by its last decoded segment, and lets all attacks have a look at it.
func (j *judge) attack(f *flow, data []byte, forward bool) (passes bool, forged [][]byte) {
	s := &f.stream
	if j.tcp.SYN && !j.tcp.ACK {
		*s = stream{opened: true, forward: forward}
	}
	side := fromClient
	if forward != s.forward {
		side = fromServer
	}
	if j.tcp.SYN {
		s.start[side] = j.tcp.Seq + 1
	}
	if !s.opened {
		return true, nil
	}
	if held := s.held[side]; held != nil { // this packet goes first
		s.held[side] = nil
		defer func() {
			if passes {
				passes, forged = false, append(forged, data)
			}
			forged = append(forged, held)
		}()
	}
	if len(j.tcp.Payload) == 0 {
		return true, nil
	}
	at := &segment{side: side, payload: j.tcp.Payload, before: s.total(), first: side == fromClient && s.segments[side] == 0}
	s.segments[side]++
	s.bytes[side] = max(s.bytes[side], j.tcp.Seq-s.start[side]+uint32(len(at.payload)))
	return j.strike(f, at, data)
}

// strike lets the attacks act on a segment, until one does.
func (j *judge) strike(f *flow, at *segment, data []byte) (passes bool, forged [][]byte) {
	for i, a := range j.attacks {
		if a.strike == nil {
			continue
		}
		did := a.strike(j, f, at)
		if did == pass {
			continue
		}
		struck := &j.status.Attacks[i]
		struck.Segments++
		switch did {
		case hold:
			f.stream.held[at.side] = bytes.Clone(data)
		case cut, end:
			struck.Connections++
			struck.Dropped++
			j.status.Dropped++
			f.convicted, f.dropped = j.now(), &struck.Dropped
		}
		return false, at.forged
	}
	return true, nil
}
