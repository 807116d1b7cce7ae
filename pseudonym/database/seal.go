package database

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"

	"heddle/pseudonym"
)

// SealKeySize is the length of the key of a [Seal] in bytes.
const SealKeySize = 32

// Seal enciphers the servers' keys in the database (AES-256-GCM), so that a copy of it, or its backup, holds none in clear.
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

// close seals a key for one label, so that it cannot be moved to another one.
func (s *Seal) close(key []byte, l pseudonym.Label) []byte {
	return s.aead.Seal(nil, nil, key, []byte(l))
}

func (s *Seal) open(sealed []byte, l pseudonym.Label) ([]byte, error) {
	key, err := s.aead.Open(nil, nil, sealed, []byte(l))
	if err != nil {
		return nil, errors.New("a key in the database is not sealed with this database.key")
	}
	return key, nil
}
