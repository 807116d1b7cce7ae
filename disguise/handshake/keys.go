// Package handshake begins disguised links: it agrees on keys in messages that look like random bytes to everybody without
// the bridge's public key, and recognises strangers, who get no answer. It also agrees on the keys of later epochs. See
// docs/disguise-wire.md. It moves no bytes: callers send what it makes, and give it what arrives.
package handshake

import (
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	random "math/rand/v2"

	"heddle/disguise/block"
)

// Version is the first byte of a hello.
const Version = 1

// MaxPadding is the most padding of a hello or an answer, which bounds what a bridge holds of one that is not whole.
const MaxPadding = 8192

const (
	labelHello = "heddle disguise 1 hello"
	labelLink  = "heddle disguise 1 link"
	labelJoin  = "heddle disguise 1 join"
	labelRekey = "heddle disguise 1 rekey"
	labelDraw  = "heddle disguise 1 draw "
)

var (
	// ErrShort says that the message is not whole yet. The number of bytes that came with it are needed at least.
	ErrShort = errors.New("the message is not whole yet")
	// ErrAnswer says that the bytes are no answer to this hello.
	ErrAnswer = errors.New("the answer is not of the bridge that has this key")
	// ErrStranger says that the bytes come from nobody who should get an answer. The error is a [*Refusal].
	ErrStranger = errors.New("a stranger")
)

// PublicKey is the X25519 key of a bridge.
type PublicKey [32]byte

// String returns the key in base64url.
func (k PublicKey) String() string { return base64.RawURLEncoding.EncodeToString(k[:]) }

// Draw returns a stream of random numbers that all users of a bridge share and nobody else can compute. It is for the shape of
// covers, which should differ between bridges, and not for secrets.
func (k PublicKey) Draw(label string) *random.ChaCha8 {
	return random.NewChaCha8([32]byte(derive(k[:], nil, labelDraw+label, 32)))
}

// Padding returns a random length of padding for a hello or an answer. The label and the key choose the distribution: two to
// five ranges of lengths with their weights.
func (k PublicKey) Padding(label string) int {
	shape := random.New(k.Draw("padding " + label))
	dice := random.New(systemSource{})
	at, total := dice.Float64(), 0.0
	count := 2 + shape.IntN(4)
	weights := make([]float64, count)
	for i := range weights {
		weights[i] = 0.1 + shape.Float64()
		total += weights[i]
	}
	length := 0
	for _, weight := range weights {
		low, width := shape.IntN(900), 20+shape.IntN(400)
		length = low + dice.IntN(width)
		if at -= weight / total; at < 0 {
			break
		}
	}
	return length
}

// systemSource is crypto/rand as a source for math/rand.
type systemSource struct{}

func (systemSource) Uint64() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return binary.NativeEndian.Uint64(b[:])
}

// Secrets are what one end of a link knows in one epoch. Formatting never shows them.
type Secrets struct {
	Out, In block.Keys
	Epoch   byte // modulo 256

	chain, join [32]byte
	client      bool
}

// Format hides the secrets for all verbs.
func (Secrets) Format(f fmt.State, _ rune) { fmt.Fprint(f, "(secrets)") }

// LogValue hides the secrets.
func (Secrets) LogValue() slog.Value { return slog.StringValue("(secrets)") }

// MarshalText hides the secrets.
func (Secrets) MarshalText() ([]byte, error) { return []byte("(secrets)"), nil }

const materialSize = 320 // bytes; the last 128 are reserved

// secretsOf splits key material.
func secretsOf(material []byte, client bool) Secrets {
	s := Secrets{Out: block.KeysOf(material), In: block.KeysOf(material[block.KeysSize:]), client: client}
	if !client {
		s.Out, s.In = s.In, s.Out
	}
	copy(s.chain[:], material[128:160])
	copy(s.join[:], material[160:192])
	return s
}

// helloKeys are the keys of the first block that follows a representative.
func helloKeys(es []byte, to PublicKey, r Representative) block.Keys {
	return block.KeysOf(derive(es, to[:], labelHello+string(r[:]), block.KeysSize))
}

// linkSecrets are those of epoch 0.
func linkSecrets(es, ee []byte, to PublicKey, hello, answer Representative, client bool) Secrets {
	secret := append(append(make([]byte, 0, 64), es...), ee...)
	return secretsOf(derive(secret, to[:], labelLink+string(hello[:])+string(answer[:]), materialSize), client)
}

// proof shows that who sends the representative in an rc knows the link.
func (s Secrets) proof(r Representative) []byte {
	mac := hmac.New(sha256.New, s.join[:])
	mac.Write([]byte(labelJoin))
	mac.Write(r[:])
	return mac.Sum(nil)[:proofSize]
}

// derive is HKDF-SHA256.
func derive(secret, salt []byte, info string, size int) []byte {
	key, err := hkdf.Key(sha256.New, secret, salt, info, size)
	if err != nil {
		panic(err) // the size is a constant that fits
	}
	return key
}

// public gives the key for X25519.
func (k PublicKey) public() (*ecdh.PublicKey, error) { return ecdh.X25519().NewPublicKey(k[:]) }
