package web

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
)

// head is what the bridge tells about its link at the beginning of each payload.
type head struct {
	held   uint32 // bytes that waited for the client when the payload was full
	useful bool   // the payload is not only padding
}

const (
	headSize = 8  // bytes: held (4), useful (1), zeros (3)
	headKey  = 16 // bytes
)

// heads enciphers the heads of one connection. Each answer with a payload has another number, so no two are enciphered alike.
type heads struct {
	block cipher.Block
	next  uint64 // number of the next answer with a payload, of whoever it is for
}

func newHeads(key []byte) *heads {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // another length
	}
	return &heads{block: block}
}

// mask returns what enciphers the next head. Inside TLS, where no head is enciphered, the first three are marks.
func (h *heads) mask() [headSize]byte {
	var b [aes.BlockSize]byte
	binary.BigEndian.PutUint64(b[8:], h.next)
	h.next++
	h.block.Encrypt(b[:], b[:])
	return [headSize]byte(b[:headSize])
}

// seal writes a head into b.
func (h *heads) seal(b []byte, said head) {
	m := h.mask()
	binary.BigEndian.PutUint32(b, said.held)
	b[4], b[5], b[6], b[7] = 0, 0, 0, 0
	if said.useful {
		b[4] = 1
	}
	for i := range m {
		b[i] ^= m[i]
	}
}

// open reads the head of a payload. It reports whether there is one: for strangers the bridge hides random bytes.
func (h *heads) open(b []byte) (said head, ok bool) {
	m := h.mask()
	for i := range m {
		m[i] ^= b[i]
	}
	return head{binary.BigEndian.Uint32(m[:]), m[4] == 1}, m[4] <= 1 && m[5]|m[6]|m[7] == 0
}
