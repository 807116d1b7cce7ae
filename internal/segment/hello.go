package segment

import (
	"encoding/binary"

	"heddle/internal/text"
)

const Version = 1 // of the protocol

const MaxText = 255 // bytes of a text in a hello

const (
	Resume     = 1 << iota // the session was admitted before; if it is unknown, refuse the member
	Degrade                // units of a dead member may move to other members
	knownFlags = Resume | Degrade
)

// Hello says which member of which session a connection is. Session, Members, MinMembers, Segment, the texts and [Degrade]
// are the same on all members.
type Hello struct {
	Session    [16]byte // random
	Flags      byte
	Member     uint8  // from 0
	Members    uint8  // at least 1
	MinMembers uint8  // below this number nothing is sent
	Generation uint32 // number of earlier connections of this member; the highest one is valid
	Segment    uint32 // bytes of a data frame
	Limit      uint64 // as in Ack
	Frames     uint64 // this side has all frames of this member before this one
	Schedule   string
	Shares     string
	Service    string
}

const helloFixed = 1 + 16 + 4 + 4 + 4 + 8 + 8

// Append appends the frame to b. The texts have at most [MaxText] bytes each.
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

// Welcome admits a member.
type Welcome struct {
	Limit  uint64 // as in Ack
	Frames uint64 // this side has all frames of this member before this one
}

func (w Welcome) Append(b []byte) []byte { return pair(b, KindWelcome, w.Limit, w.Frames) }

func ParseWelcome(body []byte) (w Welcome, err error) {
	w.Limit, w.Frames, err = parsePair(body)
	return w, err
}
