package link

import "time"

// counters are what a connection or a link carried.
type counters struct {
	Sent, Received   uint64 // bytes of the stream that went out, again or not, and that arrived for the first time
	Retransmitted    uint64 // bytes of the stream that go out again
	Again            uint64 // bytes that arrived more than once
	WireOut, WireIn  uint64
	Useful           uint64 // bytes of WireOut that are not padding
	PaddingIn        uint64 // bytes of padding that arrived
	DatagramsOut     uint64
	DatagramsIn      uint64
	DatagramsDropped uint64
}

// Stats tell about a link.
type Stats struct {
	counters
	ID          uint32
	Open        bool // the bridge answered
	Epoch       uint64
	PostQuantum bool // an epoch with keys from ML-KEM is in use
	Unread      int  // bytes that arrived in order
	Conns       []ConnStats
}

// ConnStats tell about a connection of a link.
type ConnStats struct {
	counters
	Serial   int           // number among the connections of the link
	RTT      time.Duration // zero if it is not known
	Stalled  bool
	InFlight int // data blocks that are not acknowledged
}

// Stats returns the state of a link.
func (l *Link) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{counters: l.count, ID: l.id, Open: l.keys.send != nil, Unread: l.in.Buffered()}
	if s.Open {
		s.Epoch = l.keys.send.seq
		s.PostQuantum = s.Epoch > 0 // the first rekey brings it
	}
	for _, c := range l.conns {
		s.Conns = append(s.Conns, c.stats())
	}
	return s
}

// Stats returns the state of a connection.
func (c *Conn) Stats() ConnStats {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	return c.stats()
}

func (c *Conn) stats() ConnStats {
	return ConnStats{counters: c.count, Serial: c.serial, RTT: c.rtt.smooth, Stalled: c.stalled, InFlight: c.flight.Len()}
}

// sentOut counts the bytes of one Fill. l.mu is held.
func (c *Conn) sentOut(wire, useful int) {
	for _, n := range [2]*counters{&c.count, &c.l.count} {
		n.WireOut += uint64(wire)
		n.Useful += uint64(useful)
	}
}
