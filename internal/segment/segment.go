// Package segment is the wire format of one member of a striped session, inside its TLS: frames with segments of the stream,
// and control frames. See docs/wire.md. Package observe also uses it, to show what an attacker who broke the TLS of a member
// would see. It does not send, and handles neither order nor windows.
package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"heddle/internal/text"
)

type Kind byte

const (
	KindHello   Kind = 1 // first on each member, from the side that dials
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
	HeaderSize   = 4                     // kind (1 byte) and length of the body (3 bytes)
	DataOverhead = HeaderSize + dataHead // bytes of a data frame before its payload
	dataHead     = 28

	// MaxData limits the body of a data frame, MaxControl that of other frames.
	MaxData    = 64 << 10
	MaxControl = 2 << 10

	pingSize = 8
)

// MaxAhead limits how many units a sender may be ahead of the units that the other side has in order.
const MaxAhead = 8192

// ErrMalformed matches all errors that are the sender's fault.
var ErrMalformed = errors.New("malformed frame")

func malformed(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, a...))
}

// PutHeader writes the header of a frame; body is the length of its body.
func PutHeader(b []byte, kind Kind, body int) {
	b[0], b[1], b[2], b[3] = byte(kind), byte(body>>16), byte(body>>8), byte(body)
}

func appendHeader(b []byte, kind Kind, body int) []byte {
	b = append(b, make([]byte, HeaderSize)...)
	PutHeader(b[len(b)-HeaderSize:], kind, body)
	return b
}

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

// Data is the header of one segment, or of one share of a unit.
type Data struct {
	// Frame numbers the segments of this member in one direction, over all its connections. It may skip numbers.
	Frame uint64
	// Unit numbers the units of the stream in one direction: segments, or shared pieces.
	Unit   uint64
	Offset uint64 // of the unit's first byte in the stream
	Size   uint32 // of the unit in the stream; the length of the payload, unless it is a share
}

// Put writes the frame's header and the fields of d to b, which has [DataOverhead] bytes.
func (d Data) Put(b []byte, payload int) {
	PutHeader(b, KindData, dataHead+payload)
	binary.BigEndian.PutUint64(b[4:], d.Frame)
	binary.BigEndian.PutUint64(b[12:], d.Unit)
	binary.BigEndian.PutUint64(b[20:], d.Offset)
	binary.BigEndian.PutUint32(b[28:], d.Size)
}

// SetFrame changes the Frame of a header that [Data.Put] wrote.
func SetFrame(b []byte, number uint64) { binary.BigEndian.PutUint64(b[4:], number) }

func ParseData(body []byte) (d Data, payload []byte, err error) {
	if len(body) < dataHead {
		return d, nil, malformed("a segment of %d bytes", len(body))
	}
	d = Data{Frame: binary.BigEndian.Uint64(body), Unit: binary.BigEndian.Uint64(body[8:]),
		Offset: binary.BigEndian.Uint64(body[16:]), Size: binary.BigEndian.Uint32(body[24:])}
	const most = 1 << 62 // the sum of two stays positive
	if d.Frame > most || d.Unit > most || d.Offset > most {
		return d, nil, malformed("a segment beyond the end of numbers")
	}
	return d, body[dataHead:], nil
}

// Ack acknowledges units and extends the limit.
type Ack struct {
	Units uint64 // all units before this one arrived; the end of the stream counts as a unit
	Limit uint64 // offset that the stream may reach
}

func (a Ack) Append(b []byte) []byte { return pair(b, KindAck, a.Units, a.Limit) }

func ParseAck(body []byte) (a Ack, err error) {
	a.Units, a.Limit, err = parsePair(body)
	return a, err
}

// Fin ends the stream in one direction.
type Fin struct {
	Unit   uint64 // the number after the last unit
	Offset uint64 // the length of the stream
}

func (f Fin) Append(b []byte) []byte { return pair(b, KindFin, f.Unit, f.Offset) }

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

// AppendPing appends a ping, or a pong with the number of its ping.
func AppendPing(b []byte, kind Kind, number uint64) []byte {
	return binary.BigEndian.AppendUint64(appendHeader(b, kind, pingSize), number)
}

func ParsePing(body []byte) (uint64, error) {
	if len(body) != pingSize {
		return 0, malformed("a ping of %d bytes", len(body))
	}
	return binary.BigEndian.Uint64(body), nil
}

// Code is the reason for the end of a session.
type Code byte

const (
	Complete Code = 0 // both streams ended and arrived completely
	Closed   Code = 1 // the sender expects nothing more, and all of its own stream is acknowledged
	Failed   Code = 2 // the session broke off
	Refused  Code = 3 // the member or the session is not admitted
)

type Close struct {
	Code Code
	Why  string // for people, up to 256 bytes
}

const maxWhy = 256

func (y Close) Append(b []byte) []byte {
	why := strings.ToValidUTF8(y.Why[:min(len(y.Why), maxWhy)], "")
	return append(append(appendHeader(b, KindClose, 1+len(why)), byte(y.Code)), why...)
}

// ParseClose reads the body of a close. It replaces unprintable characters of the text, since people will see it.
func ParseClose(body []byte) (Close, error) {
	if len(body) < 1 || len(body) > 1+maxWhy || body[0] > byte(Refused) {
		return Close{}, malformed("a close of %d bytes", len(body))
	}
	return Close{Code: Code(body[0]), Why: text.Printable(string(body[1:]))}, nil
}
