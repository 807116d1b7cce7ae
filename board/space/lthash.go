package space

import (
	"crypto/sha3"
	"encoding/binary"
)

// ltHash is an incremental hash of a set: the lane-wise sum of a long hash of each element (LtHash with 1,024 lanes of 16
// bits: Lewi, Kim, Maykov, Weis, "Securing Update Propagation with Homomorphic Hashing", 2019). A collision is as hard as a
// short-vector problem of about 200 bits.
type ltHash [1024]uint16

func ltElement(key, value []byte) (lanes ltHash) {
	h := sha3.NewSHAKE256()
	var n [4]byte
	binary.BigEndian.PutUint32(n[:], uint32(len(key)))
	_, _ = h.Write(n[:])
	_, _ = h.Write(key)
	_, _ = h.Write(value)
	var out [2 * len(lanes)]byte
	_, _ = h.Read(out[:])
	for i := range lanes {
		lanes[i] = binary.BigEndian.Uint16(out[2*i:])
	}
	return lanes
}

func (s *ltHash) add(key, value []byte) {
	e := ltElement(key, value)
	for i := range s {
		s[i] += e[i]
	}
}

func (s *ltHash) remove(key, value []byte) {
	e := ltElement(key, value)
	for i := range s {
		s[i] -= e[i]
	}
}

func (s *ltHash) bytes() []byte {
	b := make([]byte, 0, 2*len(s))
	for _, lane := range s {
		b = binary.BigEndian.AppendUint16(b, lane)
	}
	return b
}
