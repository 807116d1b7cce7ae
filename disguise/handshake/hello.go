package handshake

import (
	"encoding/binary"
	"fmt"
	"time"

	"heddle/disguise/block"
)

// Modes of a link.
const (
	OneTarget   = 0 // one stream to the bridge's target
	ManyStreams = 1 // streams and flows to destinations that the client asks for
)

// Hello is what a client says first on a connection.
type Hello struct {
	Mode    byte // nc: OneTarget or ManyStreams
	Time    time.Time
	Attempt [16]byte // nc: the same in each hello of one attempt
	Token   []byte   // nc: at most 255 bytes
	Cover   []byte   // parameters of the cover, at most 255 bytes
	Link    uint32   // rc: the link that this connection joins
}

const (
	reprSize   = 32
	proofSize  = 16
	attemptLen = 16
	leastHello = reprSize + block.HeaderSize // what it takes to recognise a stranger
	ncFixed    = 1 + 1 + 4 + attemptLen + 1 + 1
	rcFixed    = 1 + 4 + 4 + proofSize + 1
	nsSize     = 4 + 4
)

// AnswerSize is the length of an answer without padding.
const AnswerSize = reprSize + block.Overhead + nsSize

// Size returns the length of a hello without padding.
func (h Hello) Size() int { return reprSize + block.Overhead + ncFixed + len(h.Token) + len(h.Cover) }

// JoinSize returns the length of an rc without padding.
func JoinSize(cover []byte) int { return reprSize + block.Overhead + rcFixed + len(cover) }

// newClient gives the data of an nc block.
func (h Hello) newClient() ([]byte, error) {
	if len(h.Token) > 255 || len(h.Cover) > 255 {
		return nil, fmt.Errorf("a token of %d bytes, parameters of a cover of %d: at most 255 fit", len(h.Token), len(h.Cover))
	}
	b := binary.BigEndian.AppendUint32([]byte{Version, h.Mode}, uint32(h.Time.Unix()))
	b = append(b, h.Attempt[:]...)
	b = append(append(b, byte(len(h.Token))), h.Token...)
	return append(append(b, byte(len(h.Cover))), h.Cover...), nil
}

// reconnect gives the data of an rc block.
func (h Hello) reconnect(proof []byte) ([]byte, error) {
	if len(h.Cover) > 255 {
		return nil, fmt.Errorf("parameters of a cover of %d bytes: at most 255 fit", len(h.Cover))
	}
	b := binary.BigEndian.AppendUint32([]byte{Version}, uint32(h.Time.Unix()))
	b = binary.BigEndian.AppendUint32(b, h.Link)
	b = append(b, proof...)
	return append(append(b, byte(len(h.Cover))), h.Cover...), nil
}

// parseNewClient is the inverse of newClient. Token and Cover share memory with b.
func parseNewClient(b []byte) (h Hello, ok bool) {
	if len(b) < ncFixed || b[0] != Version {
		return h, false
	}
	h.Mode = b[1]
	h.Time = time.Unix(int64(binary.BigEndian.Uint32(b[2:])), 0)
	copy(h.Attempt[:], b[6:])
	b = b[6+attemptLen:]
	if h.Token, b, ok = sized(b); !ok {
		return h, false
	}
	h.Cover, b, ok = sized(b)
	return h, ok && len(b) == 0
}

// parseReconnect is the inverse of reconnect.
func parseReconnect(b []byte) (h Hello, proof []byte, ok bool) {
	if len(b) < rcFixed || b[0] != Version {
		return h, nil, false
	}
	h.Time = time.Unix(int64(binary.BigEndian.Uint32(b[1:])), 0)
	h.Link = binary.BigEndian.Uint32(b[5:])
	proof = b[9 : 9+proofSize]
	h.Cover, b, ok = sized(b[9+proofSize:])
	return h, proof, ok && len(b) == 0
}

// sized splits off a field that begins with its length.
func sized(b []byte) (field, rest []byte, ok bool) {
	if len(b) == 0 || len(b) <= int(b[0]) {
		return nil, nil, false
	}
	n := 1 + int(b[0])
	return b[1:n:n], b[n:], true
}

// seal gives a whole message: a representative, and block number 0 under the keys.
func seal(r Representative, k block.Keys, f block.Function, data []byte, padding int) ([]byte, error) {
	if padding < 0 || padding > MaxPadding {
		return nil, fmt.Errorf("a padding of %d bytes: it has 0 to %d", padding, MaxPadding)
	}
	h := block.Header{Data: len(data), Padding: padding, Function: f}
	b := append(make([]byte, 0, reprSize+h.Size()), r[:]...)
	return block.NewCodec(k).Seal(b, h, data), nil
}
