package login

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
)

// KeySize is the size of the key of a login in bytes.
const KeySize = 32

// box seals what others carry for the store (AES-256-GCM).
type box struct{ aead cipher.AEAD }

func newBox(key []byte) (*box, error) {
	if len(key) != KeySize {
		return nil, errors.New("the key of the login has a wrong length")
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return &box{aead}, err
}

type content struct {
	Until int64
	Value json.RawMessage
}

// seal seals a value for one purpose until a time.
func (b *box) seal(purpose string, value any, until time.Time) string {
	inner, err := json.Marshal(value)
	if err != nil {
		panic(err) // of a type that has no JSON
	}
	text, err := json.Marshal(content{until.Unix(), inner})
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(b.aead.Seal(nil, nil, text, []byte(purpose)))
}

// open reads a value that was sealed for the same purpose, before it is too late.
func (b *box) open(purpose, sealed string, value any, now time.Time) bool {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return false
	}
	text, err := b.aead.Open(nil, nil, raw, []byte(purpose))
	if err != nil {
		return false
	}
	var c content
	return json.Unmarshal(text, &c) == nil && now.Unix() < c.Until && json.Unmarshal(c.Value, value) == nil
}

// bearer returns the code that a program shows (RFC 6750).
func bearer(r *http.Request) (string, bool) {
	return strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
}
