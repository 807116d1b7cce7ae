// Package segment is the format of what a striped session says on one member, inside its TLS: frames with segments of the
// stream, and what it takes to keep the members together. docs/wire.md describes it.
//
// It is apart from package stripe so that package observe can read what an attacker who broke the TLS of a member would see.
// Do not use it to send anything: it knows nothing of order, windows or paths.
package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"heddle/internal/text"
)

// Kind is what a frame is.
type Kind byte

// The kinds of frames.
const (
	KindHello   Kind = 1 // first on each member, by who dials
	KindWelcome Kind = 2 // the answer
	KindData    Kind = 3
	KindAck     Kind = 4
	KindPing    Kind = 5
	KindPong    Kind = 6
	KindFin     Kind = 7 // the end of the stream in one direction
	KindClose   Kind = 8 // the end of the session
)

// Sizes in bytes.
const (
	// HeaderSize is what each frame begins with: its kind, and the length of what follows in three bytes.
	HeaderSize = 4
	// DataOverhead is what a segment has before its payload, the frame's header included.
	DataOverhead = HeaderSize + dataHead
	dataHead     = 28

	// MaxData bounds the body of a data frame, and MaxControl that of any other.
	MaxData    = 64 << 10
	MaxControl = 2 << 10

	pingSize = 8
)

// MaxAhead is how many units a sender may be ahead of what the other side has in order.
const MaxAhead = 8192

// ErrMalformed is what all errors of this package wrap that are the sender's fault.
var ErrMalformed = errors.New("malformed frame")

func malformed(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, a...))
}

// PutHeader writes the header of a frame whose body has so many bytes.
func PutHeader(b []byte, kind Kind, body int) {
	b[0], b[1], b[2], b[3] = byte(kind), byte(body>>16), byte(body>>8), byte(body)
}

func appendHeader(b []byte, kind Kind, body int) []byte {
	b = append(b, make([]byte, HeaderSize)...)
	PutHeader(b[len(b)-HeaderSize:], kind, body)
	return b
}

// ParseHeader reads the header of a frame.
func ParseHeader(b [HeaderSize]byte) (kind Kind, body int, err error) {
	kind, body = Kind(b[0]), int(b[1])<<16|int(b[2])<<8|int(b[3])
	most := MaxControl
	switch {
	case kind < KindHello || kind > KindClose:
		return 0, 0, malformed("no frame is of kind %d", b[0])
	case kind == KindData:
		most = MaxData
	}
	if body > most {
		return 0, 0, malformed("%d bytes in a frame of kind %d", body, kind)
	}
	return kind, body, nil
}

// Data is one segment, or one share of a unit of the stream.
type Data struct {
	// Frame counts the segments of this member, in one direction, over all its connections. Numbers may be left out.
	Frame uint64
	// Unit counts the units of the stream in one direction: segments, or pieces that were shared.
	Unit uint64
	// Offset is the place of the unit's first byte in the stream.
	Offset uint64
	// Size is the length of the unit in the stream; that of the payload, unless it is a share.
	Size uint32
}

// Put writes the frame's header and everything before the payload to b, which has [DataOverhead] bytes.
func (d Data) Put(b []byte, payload int) {
	PutHeader(b, KindData, dataHead+payload)
	binary.BigEndian.PutUint64(b[4:], d.Frame)
	binary.BigEndian.PutUint64(b[12:], d.Unit)
	binary.BigEndian.PutUint64(b[20:], d.Offset)
	binary.BigEndian.PutUint32(b[28:], d.Size)
}

// SetFrame changes the number of a frame that Put wrote.
func SetFrame(b []byte, number uint64) { binary.BigEndian.PutUint64(b[4:], number) }

// ParseData reads the body of a data frame.
func ParseData(body []byte) (d Data, payload []byte, err error) {
	if len(body) < dataHead {
		return d, nil, malformed("a segment of %d bytes", len(body))
	}
	d = Data{Frame: binary.BigEndian.Uint64(body), Unit: binary.BigEndian.Uint64(body[8:]),
		Offset: binary.BigEndian.Uint64(body[16:]), Size: binary.BigEndian.Uint32(body[24:])}
	const most = 1 << 62 // sums of two stay positive
	if d.Frame > most || d.Unit > most || d.Offset > most {
		return d, nil, malformed("a segment beyond the end of numbers")
	}
	return d, body[dataHead:], nil
}

// Ack says what arrived, and how much more may come.
type Ack struct {
	Units uint64 // all units before this one arrived; the end of the stream counts as one
	Limit uint64 // the offset that the stream may reach
}

// Append appends the frame to b.
func (a Ack) Append(b []byte) []byte { return pair(b, KindAck, a.Units, a.Limit) }

// ParseAck reads the body of an ack.
func ParseAck(body []byte) (a Ack, err error) {
	a.Units, a.Limit, err = parsePair(body)
	return a, err
}

// Fin ends the stream in one direction.
type Fin struct {
	Unit   uint64 // the number after that of the last unit
	Offset uint64 // the length of the stream
}

// Append appends the frame to b.
func (f Fin) Append(b []byte) []byte { return pair(b, KindFin, f.Unit, f.Offset) }

// ParseFin reads the body of a fin.
func ParseFin(body []byte) (f Fin, err error) {
	f.Unit, f.Offset, err = parsePair(body)
	return f, err
}

func pair(b []byte, kind Kind, first, second uint64) []byte {
	b = appendHeader(b, kind, 16)
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, first), second)
}

func parsePair(body []byte) (first, second uint64, err error) {
	if len(body) != 16 {
		return 0, 0, malformed("%d bytes where there should be 16", len(body))
	}
	return binary.BigEndian.Uint64(body), binary.BigEndian.Uint64(body[8:]), nil
}

// AppendPing appends a ping, or the pong to one, which has the same number.
func AppendPing(b []byte, kind Kind, number uint64) []byte {
	return binary.BigEndian.AppendUint64(appendHeader(b, kind, pingSize), number)
}

// ParsePing reads the body of a ping or pong.
func ParsePing(body []byte) (uint64, error) {
	if len(body) != pingSize {
		return 0, malformed("a ping of %d bytes", len(body))
	}
	return binary.BigEndian.Uint64(body), nil
}

// Code says why a session ends.
type Code byte

// The codes of a close.
const (
	// Complete: both streams ended, and all of both arrived.
	Complete Code = 0
	// Closed: who says it wants nothing more, and has all of its own stream confirmed.
	Closed Code = 1
	// Failed: the session broke off.
	Failed Code = 2
	// Refused: the member or the session is not let in.
	Refused Code = 3
)

// Close ends a session.
type Close struct {
	Code Code
	Why  string // for people, up to 256 bytes
}

const maxWhy = 256

// Append appends the frame to b.
func (y Close) Append(b []byte) []byte {
	why := strings.ToValidUTF8(y.Why[:min(len(y.Why), maxWhy)], "")
	return append(append(appendHeader(b, KindClose, 1+len(why)), byte(y.Code)), why...)
}

// ParseClose reads the body of a close. What is not printable in its text is replaced, since people will see it.
func ParseClose(body []byte) (Close, error) {
	if len(body) < 1 || len(body) > 1+maxWhy || body[0] > byte(Refused) {
		return Close{}, malformed("a close of %d bytes", len(body))
	}
	return Close{Code: Code(body[0]), Why: text.Printable(string(body[1:]))}, nil
}
