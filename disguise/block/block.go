// Package block is the unit that a disguised link sends: a header, data and padding, all enciphered so that each byte is uniform
// random without the key. See docs/disguise-wire.md. The package does no I/O, and keeps no state but the window of numbers.
package block

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"math"
)

const (
	HeaderSize = 16                   // bytes of an enciphered header
	Overhead   = HeaderSize + 16      // bytes of the smallest block: header and tag
	MaxSize    = Overhead + 2*MaxData // bytes of the largest block
	MaxData    = math.MaxUint16       // bytes of data, and of padding, in one block
	KeysSize   = 2 * 32               // bytes of [Keys] in key material
)

// Function says what the data of a block is.
type Function uint8

const (
	Data      Function = 0
	Fin       Function = 1
	Rst       Function = 2
	Reconnect Function = 3 // rc
	NewClient Function = 4 // nc
	NewServer Function = 5 // ns
	RekeyInit Function = 6 // rki
	RekeyDone Function = 7 // rkr
	Ack       Function = 128
	Datagram  Function = 129
)

// Header is the header of a block in clear.
type Header struct {
	Number   uint32
	Data     int // bytes, at most MaxData
	Padding  int // bytes, at most MaxData
	Function Function
}

// Size returns the bytes of the whole block.
func (h Header) Size() int { return Overhead + h.Data + h.Padding }

// Keys are the keys of one direction in one epoch.
type Keys struct {
	Header, Body [32]byte
}

// KeysOf splits [KeysSize] bytes of key material.
func KeysOf(material []byte) (k Keys) {
	copy(k.Header[:], material[:32])
	copy(k.Body[:], material[32:KeysSize])
	return k
}

// Codec seals or opens the blocks of one direction in one epoch. Its methods may run concurrently.
type Codec struct {
	header cipher.Block
	body   cipher.AEAD
}

func NewCodec(k Keys) *Codec {
	header, err := aes.NewCipher(k.Header[:])
	if err != nil {
		panic(err) // the key has the right length
	}
	inner, err := aes.NewCipher(k.Body[:])
	if err != nil {
		panic(err)
	}
	body, err := cipher.NewGCMWithNonceSize(inner, HeaderSize)
	if err != nil {
		panic(err)
	}
	return &Codec{header, body}
}

// Seal appends a block to dst. h.Data must be len(data). The number must never have been used with these keys. dst must
// have room if data overlaps it.
func (c *Codec) Seal(dst []byte, h Header, data []byte) []byte {
	var clear [HeaderSize]byte
	binary.BigEndian.PutUint32(clear[0:], h.Number)
	binary.BigEndian.PutUint16(clear[4:], uint16(h.Data))
	binary.BigEndian.PutUint16(clear[6:], uint16(h.Padding))
	clear[8] = byte(h.Function)
	at := len(dst)
	dst = append(dst, clear[:]...)
	header := dst[at:]
	c.header.Encrypt(header, header)
	dst = append(dst, data...)
	dst = append(dst, make([]byte, h.Padding)...)
	return c.body.Seal(dst[:at+HeaderSize], header, dst[at+HeaderSize:], nil)
}

// Header deciphers the first [HeaderSize] bytes of a block. It returns false if these are no header under the keys. The caller
// checks the number.
func (c *Codec) Header(b []byte) (h Header, ok bool) {
	var clear [HeaderSize]byte
	c.header.Decrypt(clear[:], b[:HeaderSize])
	h = Header{Number: binary.BigEndian.Uint32(clear[0:]), Data: int(binary.BigEndian.Uint16(clear[4:])),
		Padding: int(binary.BigEndian.Uint16(clear[6:])), Function: Function(clear[8])}
	return h, [7]byte(clear[9:]) == [7]byte{}
}

// ErrForged says that a block was changed on its way.
var ErrForged = errors.New("a block is not what its sender sealed")

// Open deciphers a whole block in place, whose header is h, and returns its data.
func (c *Codec) Open(b []byte, h Header) ([]byte, error) {
	if len(b) != h.Size() {
		return nil, ErrForged
	}
	clear, err := c.body.Open(b[HeaderSize:HeaderSize], b[:HeaderSize], b[HeaderSize:], nil)
	if err != nil {
		return nil, ErrForged
	}
	for _, one := range clear[h.Data:] {
		if one != 0 {
			return nil, ErrForged
		}
	}
	return clear[:h.Data:h.Data], nil
}
