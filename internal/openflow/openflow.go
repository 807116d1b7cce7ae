// Package openflow is the part of OpenFlow 1.4 (ONF TS-012) by which a program changes the flows of a bridge of Open vSwitch, is handed packets, and
// sends some. Sections are those of that document; what begins with NX is an extension of Open vSwitch (ovs-actions(7), ovs-fields(7)).
package openflow

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// version is OpenFlow 1.4 on the wire.
const version = 5

// kind is that of a message (section 7.1).
type kind uint8

const (
	kindHello            kind = 0
	kindError            kind = 1
	kindEchoRequest      kind = 2
	kindEchoReply        kind = 3
	kindSetConfig        kind = 9
	kindPacketIn         kind = 10
	kindFlowRemoved      kind = 11
	kindPacketOut        kind = 13
	kindFlowMod          kind = 14
	kindMultipartRequest kind = 18
	kindMultipartReply   kind = 19
	kindBundleControl    kind = 33
	kindBundleAdd        kind = 34
)

const headerSize = 8 // bytes

// most is the most bytes of a message, whose size has 16 bits.
const most = 1<<16 - 1

var (
	errShort    = errors.New("a message of OpenFlow ends early")
	errTooLarge = errors.New("a message of OpenFlow is too large")
)

// message is one of OpenFlow without its header.
type message struct {
	version byte // of one that was read
	kind    kind
	id      uint32 // of the request and its answers
	body    []byte
}

// append appends a message to b.
func (m message) append(b []byte) ([]byte, error) {
	n := headerSize + len(m.body)
	if n > most {
		return nil, errTooLarge
	}
	b = binary.BigEndian.AppendUint16(append(b, version, byte(m.kind)), uint16(n))
	return append(binary.BigEndian.AppendUint32(b, m.id), m.body...), nil
}

// Error is what a switch says of a request (section 7.5.4).
type Error struct{ Type, Code uint16 }

func (e *Error) Error() string {
	if e.Type == 0 {
		return "the bridge does not speak OpenFlow 1.4"
	}
	return fmt.Sprintf("the bridge refuses a request: OpenFlow error %d, %d", e.Type, e.Code)
}

func parseError(b []byte) error {
	if len(b) < 4 {
		return errShort
	}
	return &Error{binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])}
}

// pad appends zeros until b has a multiple of eight bytes from its byte at on.
func pad(b []byte, at int) []byte {
	for (len(b)-at)%8 != 0 {
		b = append(b, 0)
	}
	return b
}

func padded(n int) int { return (n + 7) &^ 7 }
