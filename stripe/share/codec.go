package share

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/klauspost/reedsolomon"
)

// Codec makes and joins shares. It reuses its buffers, so only one goroutine may use it at a time.
type Codec struct {
	scheme Scheme
	code   reedsolomon.Encoder // of the ciphertext; nil if the scheme has none
	sealed []byte              // the ciphertext or the secret
	other  []byte              // random coefficients and scratch space
	shards [][]byte
	plain  []byte
}

// NewCodec returns a codec. It fails for the scheme none.
func (s Scheme) NewCodec() (*Codec, error) {
	c := &Codec{scheme: s, shards: make([][]byte, s.N)}
	var err error
	switch s.kind {
	case none:
		return nil, errors.New("nothing is shared")
	case short:
		c.code, err = reedsolomon.New(s.K, s.N-s.K, reedsolomon.WithMaxGoroutines(1))
	}
	return c, err
}

// bound is the context that a share is bound to, so that shares of one place in the stream fit no other.
func bound(number uint64, size int) [12]byte {
	var b [12]byte
	binary.BigEndian.PutUint64(b[:], number)
	binary.BigEndian.PutUint32(b[8:], uint32(size))
	return b
}

func resize(b []byte, n int) []byte { return slices.Grow(b[:0], n)[:n] }

// Split makes the shares of a piece with a public, unique number. Each of the N elements of into has Size(len(piece)) bytes.
func (c *Codec) Split(number uint64, piece []byte, into [][]byte) error {
	want := c.scheme.Size(len(piece))
	if len(into) != c.scheme.N {
		return fmt.Errorf("room for %d shares, not for %d", len(into), c.scheme.N)
	}
	for _, b := range into {
		if len(b) != want {
			return fmt.Errorf("room for %d bytes a share, not for %d", len(b), want)
		}
	}
	switch c.scheme.kind {
	case short:
		return c.splitShort(number, piece, into)
	case shamir:
		c.splitSecret(c.secret(number, piece), into)
	default:
		secret := c.secret(number, piece)
		last := into[len(into)-1]
		copy(last, secret)
		for _, b := range into[:len(into)-1] {
			rand.Read(b)
			subtle.XORBytes(last, last, b)
		}
	}
	return nil
}

// secret puts a salt and a check before the piece. Both are shared with it. Without the salt, an attacker who changes a
// share cannot compute how the check changes.
func (c *Codec) secret(number uint64, piece []byte) []byte {
	c.sealed = resize(c.sealed, saltSize+checkSize+len(piece))
	rand.Read(c.sealed[:saltSize])
	copy(c.sealed[saltSize+checkSize:], piece)
	sum := check(c.sealed[:saltSize], number, piece)
	copy(c.sealed[saltSize:], sum[:checkSize])
	return c.sealed
}

func check(salt []byte, number uint64, piece []byte) [sha256.Size]byte {
	where := bound(number, len(piece))
	h := sha256.New()
	h.Write(salt)
	h.Write(where[:])
	h.Write(piece)
	return [sha256.Size]byte(h.Sum(nil))
}

// splitSecret is Shamir's scheme. The elements of into are at least as long as the secret.
func (c *Codec) splitSecret(secret []byte, into [][]byte) {
	n := len(secret)
	c.other = resize(c.other, c.scheme.K*n)
	rand.Read(c.other[n:])
	coefficients := make([][]byte, c.scheme.K)
	coefficients[0] = secret
	for i := 1; i < c.scheme.K; i++ {
		coefficients[i] = c.other[i*n : (i+1)*n]
	}
	for i, b := range into {
		evaluate(coefficients, byte(i+1), b[:n], c.other[:n])
	}
}

func aead(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// nonce is constant, since each key encrypts one piece.
var nonce [12]byte

func (c *Codec) splitShort(number uint64, piece []byte, into [][]byte) error {
	var key [keySize]byte
	rand.Read(key[:])
	c.splitSecret(key[:], into)
	seal, err := aead(key[:])
	if err != nil {
		return err
	}
	part := len(into[0]) - keySize
	where := bound(number, len(piece))
	c.sealed = resize(c.sealed, part*c.scheme.K)
	used := len(seal.Seal(c.sealed[:0], nonce[:], piece, where[:]))
	clear(c.sealed[used:])
	for i, b := range into {
		c.shards[i] = b[keySize:]
		if i < c.scheme.K {
			copy(c.shards[i], c.sealed[i*part:])
		}
	}
	if c.scheme.K == c.scheme.N {
		return nil
	}
	return c.code.Encode(c.shards)
}
