package split

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"heddle/internal/clienthello"
	"heddle/path"
)

// handshakes follows the QUIC handshakes of a session from outside. A client must keep its address until its handshake is
// confirmed (RFC 9000, section 9): many servers ignore a second flight from another address. Everything that tells this is
// encrypted, except for headers and time.
type handshakes struct {
	seen    atomic.Bool // there was one
	limited atomic.Bool // one reached a bound, which nobody was told

	mu   sync.Mutex
	list []*handshake // the one that began last at the end
	up   idSet        // of connections whose handshake is confirmed, in packets to the server
	down idSet        // likewise from it
}

// handshake is that of one connection. The server confirms it by a packet with a short header, after it received the client's
// second flight. The server may send such packets before, so one counts only a round trip after the client's last long header.
type handshake struct {
	client   []byte    // the client's connection id
	server   []byte    // the server's, as last used by the client
	ids      idSet     // all that the server had
	path     int       // member that carries it, -1 before the first datagram; the session's lock guards it
	running  bool      // it is not confirmed
	over     bool      // it reached a bound
	began    time.Time // first Initial
	asked    time.Time // first Initial, or that after a Retry
	last     time.Time // client's last long header
	flight   bool      // the client sent a Handshake packet
	early    bool      // the client sent 0-RTT data
	answered bool
	rtt      time.Duration
	count    int // client's datagrams
}

const (
	// The round trip is that of the server's first answer, which may have waited for retransmissions. The packets of one flight
	// do not arrive at one moment, hence the tolerance.
	longestHandshakeRTT = 3 * time.Second
	rttTolerance        = 0.8
	// A server answers 0-RTT data before it has the client's second flight. If that was lost, the client repeats it after a probe
	// timeout, which is three round trips at first (RFC 9002, section 6.2).
	earlyRTTs = 4
	// A handshake that takes longer keeps its path no more, so that nobody can keep a session on one path.
	handshakeLimit   = 10 * time.Second
	handshakePackets = 500 // of the client

	mostHandshakes = 16
	mostIDs        = 8
)

// idSet holds the connection ids that were last seen in packets of one direction. Such ids have one length, which packets with
// short headers do not tell.
type idSet struct {
	length int
	ids    [][]byte
}

// of returns the connection id in a packet with a short header, nil if that is unknown.
func (s *idSet) of(short []byte) []byte {
	if s.length == 0 || len(short) <= s.length {
		return nil
	}
	return short[1 : 1+s.length]
}

func (s *idSet) has(id []byte) bool {
	return slices.ContainsFunc(s.ids, func(known []byte) bool { return bytes.Equal(known, id) })
}

func (s *idSet) add(id []byte) {
	if len(id) == 0 || s.has(id) {
		return
	}
	if len(s.ids) == mostIDs {
		s.ids = slices.Delete(s.ids, 0, 1)
	}
	s.ids = append(s.ids, bytes.Clone(id))
}

// sent records what the client sends. It returns the handshake that the first n datagrams belong to while it runs, or nil.
func (h *handshakes) sent(now time.Time, datagrams [][]byte) (c *handshake, n int) {
	if !h.seen.Load() && !isLong(datagrams[0]) {
		return nil, shorts(datagrams)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c = h.next(now, datagrams[0])
	if c != nil || h.running() || isLong(datagrams[0]) {
		return c, 1
	}
	return nil, shorts(datagrams)
}

// shorts returns how many datagrams there are up to the next one with a long header, at least one.
func shorts(datagrams [][]byte) int {
	if i := slices.IndexFunc(datagrams[1:], isLong); i >= 0 {
		return 1 + i
	}
	return len(datagrams)
}

// running reports whether any handshake runs. h.mu is held, as in all that follow.
func (h *handshakes) running() bool {
	return slices.ContainsFunc(h.list, func(c *handshake) bool { return c.running })
}

func (h *handshakes) next(now time.Time, datagram []byte) *handshake {
	var c *handshake
	if isLong(datagram) {
		c = h.long(now, datagram)
	} else {
		c = h.short(datagram)
	}
	if c == nil || c.over {
		return nil
	}
	c.count++
	if c.over = now.Sub(c.began) > handshakeLimit || c.count > handshakePackets; c.over {
		h.end(c)
		h.limited.Store(true)
		return nil
	}
	return c
}

// long records a client's datagram with a long header.
func (h *handshakes) long(now time.Time, datagram []byte) *handshake {
	packets, _ := clienthello.Packets(datagram)
	if len(packets) == 0 {
		return nil
	}
	c := h.find(packets)
	if c == nil {
		if packets[0].Kind != clienthello.KindInitial || datagram[0]&0x40 == 0 || len(datagram) < quicDatagram {
			return nil // it began before the session, or it is not QUIC
		}
		c = h.begin(now, packets[0].Source)
	}
	if c.asked.IsZero() {
		c.asked = now
	}
	c.last = now
	for _, p := range packets {
		c.ids.add(p.Destination)
		c.server = bytes.Clone(p.Destination)
		switch p.Kind {
		case clienthello.KindHandshake:
			c.flight, h.up.length, h.down.length = true, len(p.Destination), len(p.Source)
			c.hear(now)
		case clienthello.KindEarlyData:
			c.early = true
		}
	}
	if !c.over && !c.running {
		if c.count > 0 { // the client repeats something, and the sets may have ids of its own
			h.up.ids, h.down.ids = nil, nil
		}
		c.running = true
		h.seen.Store(true)
	}
	return c
}

// find returns the connection of a client's packets, nil for a new one.
func (h *handshakes) find(packets []clienthello.Packet) *handshake {
	p := packets[0]
	i := slices.IndexFunc(h.list, func(c *handshake) bool { return bytes.Equal(c.client, p.Source) })
	if i < 0 {
		return nil
	}
	c := h.list[i]
	// Successive connections of a client may have the same id, above all the empty one. Within a handshake the server's id may
	// change: quic-go takes another one for its second flight.
	second := slices.ContainsFunc(packets, func(p clienthello.Packet) bool { return p.Kind == clienthello.KindHandshake })
	if p.Kind == clienthello.KindInitial && !second && !c.running && !c.ids.has(p.Destination) {
		h.list = slices.Delete(h.list, i, i+1)
		return nil
	}
	return c
}

func (h *handshakes) begin(now time.Time, client []byte) *handshake {
	c := &handshake{client: bytes.Clone(client), path: -1, began: now}
	for _, other := range h.list {
		if other.running { // packets with short headers do not tell which of the two they belong to
			c.path = other.path
		}
	}
	if len(h.list) == mostHandshakes {
		h.list = slices.Delete(h.list, 0, 1)
	}
	h.list = append(h.list, c)
	return c
}

// short returns the handshake that a client's datagram with a short header may belong to. The client may have changed its id
// for the server, so only the ids that other connections used before tell that it does not.
func (h *handshakes) short(datagram []byte) *handshake {
	var latest *handshake
	for _, c := range h.list {
		if c.running && c.flight {
			latest = c
		}
	}
	id := h.up.of(datagram)
	switch {
	case latest == nil:
		h.up.add(id)
	case h.up.has(id) && !bytes.Equal(id, latest.server):
		return nil
	}
	return latest
}

// heard records what the server sends.
func (h *handshakes) heard(now time.Time, in path.Inbound) {
	if !h.seen.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for d := range in.Datagrams() {
		if !h.running() {
			h.down.add(h.down.of(d))
			return
		}
		h.answer(now, d)
	}
}

// answer records a datagram of the server while a handshake runs.
func (h *handshakes) answer(now time.Time, datagram []byte) {
	short := datagram
	if isLong(datagram) {
		packets, rest := clienthello.Packets(datagram)
		if len(packets) == 0 {
			return
		}
		for _, c := range h.list {
			if bytes.Equal(c.client, packets[0].Destination) {
				c.answer(now, packets)
			}
		}
		if len(rest) == 0 || rest[0]&0x40 == 0 { // padding
			return
		}
		short = rest
	}
	// The server, too, may have changed its id for the client.
	id := h.down.of(short)
	for _, c := range h.list {
		if (bytes.Equal(id, c.client) || !h.down.has(id)) && c.confirmed(now) {
			h.end(c)
		}
	}
}

// answer records the server's packets with long headers.
func (c *handshake) answer(now time.Time, packets []clienthello.Packet) {
	for _, p := range packets {
		c.ids.add(p.Source)
	}
	if packets[0].Kind == clienthello.KindRetry {
		c.asked = time.Time{}
		return
	}
	c.hear(now)
}

// hear takes the time of the first answer.
func (c *handshake) hear(now time.Time) {
	if !c.answered {
		c.answered, c.rtt = true, min(now.Sub(c.asked), longestHandshakeRTT)
	}
}

// confirmed reports whether a packet with a short header that comes now confirms the handshake.
func (c *handshake) confirmed(now time.Time) bool {
	wait := time.Duration(rttTolerance * float64(c.rtt))
	if c.early {
		wait = earlyRTTs * c.rtt
	}
	return c.running && c.flight && now.Sub(c.last) >= wait
}

// end ends a handshake.
func (h *handshakes) end(c *handshake) {
	c.running = false
	h.up.add(c.server)
	h.down.add(c.client)
}

// on reports whether a member carries a handshake that runs.
func (h *handshakes) on(member int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.list, func(c *handshake) bool { return c.running && c.path == member })
}

// isLong reports whether a datagram begins with a QUIC long header, of any version (RFC 8999, section 5.1).
func isLong(datagram []byte) bool { return len(datagram) > 0 && datagram[0]&0x80 != 0 }
