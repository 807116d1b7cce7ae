package web

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
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

// heads enciphers the heads of one connection. Each answer with a payload has another number, so no two are enciphered alike. The number of the
// object counts too, so nobody can move a payload to another object's answer.
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

// mask returns what enciphers the next head, in an answer with an object. Inside TLS, where no head is enciphered, the first three of object 0
// are marks.
func (h *heads) mask(object int) [headSize]byte {
	var b [aes.BlockSize]byte
	binary.BigEndian.PutUint64(b[:], uint64(object))
	binary.BigEndian.PutUint64(b[8:], h.next)
	h.next++
	h.block.Encrypt(b[:], b[:])
	return [headSize]byte(b[:headSize])
}

// seal writes a head into b, which begins the payload of an object.
func (h *heads) seal(object int, b []byte, said head) {
	m := h.mask(object)
	binary.BigEndian.PutUint32(b, said.held)
	b[4], b[5], b[6], b[7] = 0, 0, 0, 0
	if said.useful {
		b[4] = 1
	}
	for i := range m {
		b[i] ^= m[i]
	}
}

// open reads the head of the payload of an object. It reports whether there is one: for strangers the bridge hides random bytes.
func (h *heads) open(object int, b []byte) (said head, ok bool) {
	m := h.mask(object)
	for i := range m {
		m[i] ^= b[i]
	}
	return head{binary.BigEndian.Uint32(m[:]), m[4] == 1}, m[4] <= 1 && m[5]|m[6]|m[7] == 0
}

// binding ties what a request hides to the object that it is for. If somebody without the bridge line moves the hidden bytes to another request, the
// bridge reads other bytes, which are no block.
type binding struct{ block cipher.Block }

// newBinding returns the binding of all requests to a bridge. The hello's are bound too, so no secret of a connection can be its key.
func newBinding(seed []byte) binding {
	key := sha256.Sum256(append([]byte("heddle disguise 1 cover http request"), seed...))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // another length
	}
	return binding{block}
}

// apply binds the bytes that a request for an object hides, or takes the binding away. All of them are uniform random, so a mask for each
// object will do for all requests.
func (b binding) apply(object int, hidden []byte) {
	var first [aes.BlockSize]byte
	binary.BigEndian.PutUint64(first[:], uint64(object))
	cipher.NewCTR(b.block, first[:]).XORKeyStream(hidden, hidden)
}
