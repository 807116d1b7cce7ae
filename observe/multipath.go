package observe

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/gopacket/gopacket/layers"
)

// Subflow is what a capture shows of a TCP connection that is part of an MPTCP connection (RFC 8684).
type Subflow struct {
	first    bool   // the first subflow, which has the keys of both sides
	client   uint64 // keys, if first
	server   uint64
	token    uint32 // of the side that is asked to join, if not first
	number   uint32 // the client's first sequence number, which NAT preserves
	up, down []mapping
}

// mapping places a part of a subflow's bytes in the connection (RFC 8684, section 3.3.1).
type mapping struct {
	start, length uint32 // in the subflow; length 0 is all that follows
	sequence      uint64 // in the connection
	wide          bool   // sequence has 64 bits instead of 32
}

// multipathVersion is the supported version of MPTCP. Version 0 (RFC 6824) hashes its keys differently.
const multipathVersion = 1

// multipath reads the MPTCP options of one segment.
func (f *assembly) multipath(p decoded, up bool) {
	for _, o := range p.options {
		switch join, capable, dss := o.OptionMPTCPMpJoin, o.OptionMPTCPMpCapable, o.OptionMPTCPDss; {
		case join != nil && p.syn && !p.ack && f.Subflow == nil:
			f.Subflow = &Subflow{token: join.ReceivToken, number: p.sequence}
		case capable != nil && up && !p.syn && capable.Version == multipathVersion && len(capable.ReceivKey) == 8:
			f.capable(capable, len(p.payload) > 0)
		case dss != nil && dss.M && f.Subflow != nil && len(p.payload) > 0:
			f.Subflow.add(readMapping(dss), up)
		}
	}
}

// capable stores the keys, and the mapping of the first data (RFC 8684, section 3.1).
func (f *assembly) capable(c *layers.MPCapable, carries bool) {
	if f.Subflow == nil {
		f.Subflow = &Subflow{first: true, client: binary.BigEndian.Uint64(c.SendKey), server: binary.BigEndian.Uint64(c.ReceivKey), number: f.isn}
	}
	if s := f.Subflow; s.first && carries && c.DataLength > 0 {
		s.add(mapping{length: uint32(c.DataLength), sequence: firstOf(s.client), wide: true}, true)
	}
}

// readMapping ignores that a DATA_FIN counts as a byte of the last mapping: no subflow byte belongs to it.
func readMapping(d *layers.Dss) mapping {
	m := mapping{start: d.SSN - 1, length: uint32(d.DataLength), wide: len(d.DSN) == 8}
	if m.wide {
		m.sequence = binary.BigEndian.Uint64(d.DSN)
	} else {
		m.sequence = uint64(binary.BigEndian.Uint32(d.DSN))
	}
	return m
}

// add stores a mapping. All segments of a large write repeat the same one.
func (s *Subflow) add(m mapping, up bool) {
	list := &s.up
	if !up {
		list = &s.down
	}
	if n := len(*list); n == 0 || (*list)[n-1] != m {
		*list = append(*list, m)
	}
}

// tokenOf and firstOf derive the connection's token and the first data sequence number from a side's key (RFC 8684,
// sections 3.1 and 3.2).
func tokenOf(key uint64) uint32 {
	sum := keyHash(key)
	return binary.BigEndian.Uint32(sum[:])
}

func firstOf(key uint64) uint64 {
	sum := keyHash(key)
	return binary.BigEndian.Uint64(sum[len(sum)-8:]) + 1
}

func keyHash(key uint64) [sha256.Size]byte {
	return sha256.Sum256(binary.BigEndian.AppendUint64(nil, key))
}

// Piece is a part of a stream with its position.
type Piece struct {
	Offset uint64 // of its first byte in the stream
	Bytes  []byte
}

// Connection is an MPTCP connection, as far as its subflows were captured.
type Connection struct {
	Client, Server netip.AddrPort // of the first subflow captured
	// Token is the token of the server's key, or of the side that was asked to join if the first subflow was not captured.
	Token uint32
	// Placed reports whether its first subflow was captured, which alone says where the stream begins. Otherwise the
	// subflows have no bytes.
	Placed   bool
	Subflows []Part
}

// Part is the data of one subflow. A subflow captured at several places has one Part for each, with the same Number.
type Part struct {
	// Conversation is the index in the argument of [Connections], and Number the subflow of the connection, from 0.
	Conversation, Number int
	Up, Down             []Piece // sent by the connection's client, and by its server
}

// maxOffset bounds the position of a piece; a larger one is not from a real stream.
const maxOffset = 1 << 48

// Connections finds the MPTCP connections of these conversations, which may be from captures at several places.
func Connections(all []Conversation) []Connection {
	var found []*gathered
	byToken := map[uint32]side{}
	for i, c := range all {
		if c.Subflow == nil || !c.Subflow.first {
			continue
		}
		name := tokenOf(c.Subflow.server)
		g := byToken[name].of
		if g == nil {
			g = newGathered(c, name)
			g.Placed, g.upAt, g.downAt = true, firstOf(c.Subflow.client), firstOf(c.Subflow.server)
			byToken[name], byToken[tokenOf(c.Subflow.client)] = side{g, false}, side{g, true}
			found = append(found, g)
		}
		g.members = append(g.members, member{i, false})
	}
	for i, c := range all {
		if c.Subflow == nil || c.Subflow.first {
			continue
		}
		s, known := byToken[c.Subflow.token]
		if !known {
			s = side{newGathered(c, c.Subflow.token), false}
			byToken[c.Subflow.token] = s
			found = append(found, s.of)
		}
		s.of.members = append(s.of.members, member{i, s.turned})
	}
	connections := make([]Connection, 0, len(found))
	for _, g := range found {
		connections = append(connections, g.settle(all))
	}
	return connections
}

// gathered is a connection whose subflows are being collected.
type gathered struct {
	Connection
	upAt, downAt uint64 // data sequence numbers of the first bytes
	members      []member
}

// side is one side of a connection. turned means that it is the client that others joined.
type side struct {
	of     *gathered
	turned bool
}

type member struct {
	conversation int
	turned       bool // the connection's server opened this subflow
}

func newGathered(c Conversation, token uint32) *gathered {
	return &gathered{Connection: Connection{Client: c.Client, Server: c.Server, Token: token}}
}

// settle places the data of each subflow.
func (g *gathered) settle(all []Conversation) Connection {
	var numbers []uint32
	for _, m := range g.members {
		c := all[m.conversation]
		number := slices.Index(numbers, c.Subflow.number)
		if number < 0 {
			number = len(numbers)
			numbers = append(numbers, c.Subflow.number)
		}
		part := Part{Conversation: m.conversation, Number: number}
		switch up, down := c.Subflow.up, c.Subflow.down; {
		case !g.Placed:
		case m.turned:
			part.Up, part.Down = place(down, c.Down, g.upAt), place(up, c.Up, g.downAt)
		default:
			part.Up, part.Down = place(up, c.Up, g.upAt), place(down, c.Down, g.downAt)
		}
		g.Subflows = append(g.Subflows, part)
	}
	return g.Connection
}

// from returns the 64-bit number of a mapping's first byte: if it has 32, the one nearest to near.
func (m mapping) from(near uint64) uint64 {
	if m.wide {
		return m.sequence
	}
	return near + uint64(int64(int32(uint32(m.sequence)-uint32(near))))
}

// place places a subflow's bytes in the connection, whose first byte has the number first.
func place(list []mapping, bytes []byte, first uint64) (pieces []Piece) {
	near := first
	for _, m := range list {
		near = m.from(near)
		start, end := uint64(m.start), uint64(m.start)+uint64(m.length)
		if m.length == 0 {
			end = uint64(len(bytes))
		}
		end = min(end, uint64(len(bytes)))
		if offset := near - first; start < end && offset < maxOffset {
			pieces = append(pieces, Piece{Offset: offset, Bytes: bytes[start:end]})
		}
	}
	return pieces
}

// Runs joins overlapping and adjacent pieces in order. Where two differ, the one with the lower offset counts.
func Runs(pieces []Piece) (runs []Piece) {
	pieces = slices.Clone(pieces)
	slices.SortStableFunc(pieces, func(a, b Piece) int { return cmp.Compare(a.Offset, b.Offset) })
	for _, p := range pieces {
		if n := len(runs); n > 0 {
			last := &runs[n-1]
			if end := last.Offset + uint64(len(last.Bytes)); p.Offset <= end {
				last.Bytes = append(last.Bytes, p.Bytes[min(end-p.Offset, uint64(len(p.Bytes))):]...)
				continue
			}
		}
		runs = append(runs, Piece{p.Offset, slices.Clone(p.Bytes)})
	}
	return runs
}
