package address

import (
	"encoding/binary"
	"math/bits"
)

// Speck holds the round keys of SPECK64/128: blocks of 64 bits, a key of 128 bits (Beaulieu et al., "The SIMON and SPECK Families of
// Lightweight Block Ciphers", IACR ePrint 2013/404). It adds, rotates and xors words of 32 bits: it has no tables, so its time does not
// depend on key or data.
type Speck [rounds]uint32

const (
	rounds        = 27
	cipherKeySize = 16
)

// newSpeck expands a key. Its first word, in the order of the paper's test vectors, is the last that the schedule takes in.
func newSpeck(key [cipherKeySize]byte) *Speck {
	var s Speck
	l := [3]uint32{binary.BigEndian.Uint32(key[8:]), binary.BigEndian.Uint32(key[4:]), binary.BigEndian.Uint32(key[0:])}
	k := binary.BigEndian.Uint32(key[12:])
	for i := range s {
		s[i] = k
		l[i%3], k = round(l[i%3], k, uint32(i))
	}
	return &s
}

// String does not show the keys, so that no log does.
func (*Speck) String() string { return "[key]" }

func round(x, y, k uint32) (uint32, uint32) {
	x = (bits.RotateLeft32(x, -8) + y) ^ k
	return x, bits.RotateLeft32(y, 3) ^ x
}

func (s *Speck) encrypt(block uint64) uint64 {
	x, y := uint32(block>>32), uint32(block)
	for _, k := range s {
		x, y = round(x, y, k)
	}
	return uint64(x)<<32 | uint64(y)
}

func (s *Speck) decrypt(block uint64) uint64 {
	x, y := uint32(block>>32), uint32(block)
	for i := len(s) - 1; i >= 0; i-- {
		y = bits.RotateLeft32(x^y, -3)
		x = bits.RotateLeft32((x^s[i])-y, 8)
	}
	return uint64(x)<<32 | uint64(y)
}
