package database

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
)

// SealKeySize is the length of the key of a [Seal] in bytes.
const SealKeySize = 32

// Seal enciphers keys in the database (AES-256-GCM), so that a copy of it, or its backup, holds none in clear.
type Seal struct {
	aead cipher.AEAD
	key  []byte
}

// NewSeal takes a key of [SealKeySize] bytes.
func NewSeal(key []byte) (*Seal, error) {
	if len(key) != SealKeySize {
		return nil, errors.New("the key that seals the database has a wrong length")
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return &Seal{aead, key}, err
}

// Derive returns another key of [SealKeySize] bytes, for one purpose. All processes with the same seal get the same one.
func (s *Seal) Derive(purpose string) ([]byte, error) {
	return hkdf.Key(sha256.New, s.key, nil, "heddle "+purpose, SealKeySize)
}

// close seals a key for one label or other name, so that it cannot be moved to another one.
func (s *Seal) close(key []byte, name string) []byte {
	return s.aead.Seal(nil, nil, key, []byte(name))
}

// ErrSeal says that a key in the database was sealed by another [Seal].
var ErrSeal = errors.New("a key in the database is not sealed with the key of this machine")

func (s *Seal) open(sealed []byte, name string) ([]byte, error) {
	key, err := s.aead.Open(nil, nil, sealed, []byte(name))
	if err != nil {
		return nil, ErrSeal
	}
	return key, nil
}
