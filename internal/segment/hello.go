package segment

import (
	"encoding/binary"

	"heddle/internal/text"
)

// Version is that of the protocol, in each hello.
const Version = 1

// MaxText bounds the texts in a hello, in bytes.
const MaxText = 255

// Flags of a hello.
const (
	// Resume: the session was let in before; who does not know it must refuse the member.
	Resume = 1 << iota
	// Degrade: units of a dead member may move to other members.
	Degrade
	knownFlags = Resume | Degrade
)

// Hello says which member of which session a connection is. Session, Members, Segment, MinMembers, Degrade and the texts are the
// same on all members.
type Hello struct {
	Session    [16]byte // random
	Flags      byte
	Member     uint8  // from 0
	Members    uint8  // at least 1
	MinMembers uint8  // nothing is sent on fewer
	Generation uint32 // how often this member was dialled before; the highest one counts
	Segment    uint32 // bytes of a data frame
	Limit      uint64 // as in Ack
	Frames     uint64 // of the frames of this member, this side has all before this one
	Schedule   string
	Shares     string
	Service    string
}

const helloFixed = 1 + 16 + 4 + 4 + 4 + 8 + 8

// Append appends the frame to b. The texts have at most [MaxText] bytes.
func (h Hello) Append(b []byte) []byte {
	start := len(b)
	b = append(b, make([]byte, HeaderSize)...)
	b = append(b, Version)
	b = append(b, h.Session[:]...)
	b = append(b, h.Flags, h.Member, h.Members, h.MinMembers)
	b = binary.BigEndian.AppendUint32(b, h.Generation)
	b = binary.BigEndian.AppendUint32(b, h.Segment)
	b = binary.BigEndian.AppendUint64(b, h.Limit)
	b = binary.BigEndian.AppendUint64(b, h.Frames)
	for _, text := range []string{h.Schedule, h.Shares, h.Service} {
		b = append(append(b, byte(len(text))), text...)
	}
	PutHeader(b[start:], KindHello, len(b)-start-HeaderSize)
	return b
}

// ParseHello reads the body of a hello.
func ParseHello(body []byte) (h Hello, err error) {
	if len(body) < helloFixed {
		return h, malformed("a hello of %d bytes", len(body))
	}
	if body[0] != Version {
		return h, malformed("version %d of the protocol, and this is version %d", body[0], Version)
	}
	copy(h.Session[:], body[1:])
	h.Flags, h.Member, h.Members, h.MinMembers = body[17], body[18], body[19], body[20]
	h.Generation, h.Segment = binary.BigEndian.Uint32(body[21:]), binary.BigEndian.Uint32(body[25:])
	h.Limit, h.Frames = binary.BigEndian.Uint64(body[29:]), binary.BigEndian.Uint64(body[37:])
	rest := body[helloFixed:]
	for _, into := range []*string{&h.Schedule, &h.Shares, &h.Service} {
		if len(rest) < 1 || len(rest) < 1+int(rest[0]) {
			return h, malformed("a hello that ends within a text")
		}
		end := 1 + int(rest[0])
		*into, rest = string(rest[1:end]), rest[end:]
		if *into != text.Printable(*into) {
			return h, malformed("a text in a hello that cannot be printed")
		}
	}
	switch {
	case len(rest) > 0:
		return h, malformed("%d bytes behind a hello", len(rest))
	case h.Flags&^byte(knownFlags) != 0:
		return h, malformed("unknown flags %#x in a hello", h.Flags)
	case h.Members < 1 || h.Member >= h.Members || h.MinMembers < 1 || h.MinMembers > h.Members:
		return h, malformed("member %d of %d, of which %d are needed", h.Member, h.Members, h.MinMembers)
	case h.Segment < DataOverhead || h.Segment > HeaderSize+MaxData:
		return h, malformed("segments of %d bytes", h.Segment)
	}
	return h, nil
}

// Welcome lets a member in.
type Welcome struct {
	Limit  uint64 // as in Ack
	Frames uint64 // of the frames of this member, this side has all before this one
}

// Append appends the frame to b.
func (w Welcome) Append(b []byte) []byte { return pair(b, KindWelcome, w.Limit, w.Frames) }

// ParseWelcome reads the body of a welcome.
func ParseWelcome(body []byte) (w Welcome, err error) {
	w.Limit, w.Frames, err = parsePair(body)
	return w, err
}
