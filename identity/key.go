package identity

import (
	"cmp"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
)

// Key is the public half of an [Identity]: the name of who holds it. Keys compare with ==. The zero value is nobody.
type Key struct{ bytes [ed25519.PublicKeySize]byte }

const keyPrefix = "ed25519:"

// NewKey takes the 32 bytes of an Ed25519 public key.
func NewKey(raw []byte) (Key, error) {
	if len(raw) != ed25519.PublicKeySize {
		return Key{}, fmt.Errorf("an Ed25519 key has %d bytes, not %d", ed25519.PublicKeySize, len(raw))
	}
	return Key{[ed25519.PublicKeySize]byte(raw)}, nil
}

// ParseKey reads what [Key.String] writes: ed25519: and 43 characters of base64url.
func ParseKey(text string) (Key, error) {
	rest, ok := strings.CutPrefix(text, keyPrefix)
	if !ok {
		return Key{}, fmt.Errorf("%.80q is no key: it does not start with %s", text, keyPrefix)
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(rest)
	if err != nil || len(raw) != ed25519.PublicKeySize || strings.ContainsAny(rest, "\r\n") { // which base64 passes over
		return Key{}, fmt.Errorf("%.80q is no key: after %s come 43 letters, digits, '-' and '_'", text, keyPrefix)
	}
	return NewKey(raw)
}

// Bytes gives the 32 bytes of the key.
func (k Key) Bytes() []byte { return slices.Clone(k.bytes[:]) }

// IsZero reports whether this is nobody's key.
func (k Key) IsZero() bool { return k == Key{} }

// String gives ed25519: and the key in base64url, or nothing for nobody.
func (k Key) String() string {
	if k.IsZero() {
		return ""
	}
	return keyPrefix + base64.RawURLEncoding.EncodeToString(k.bytes[:])
}

// Short gives enough of the key for a person to tell it from others in a table. It proves nothing.
func (k Key) Short() string {
	text := strings.TrimPrefix(k.String(), keyPrefix)
	return text[:min(8, len(text))]
}

// Compare orders keys by their bytes.
func (k Key) Compare(other Key) int { return cmp.Compare(string(k.bytes[:]), string(other.bytes[:])) }

// Verify reports whether the holder of k signed message for the purpose; see [Identity.Sign].
func (k Key) Verify(purpose string, message, signature []byte) bool {
	return ed25519.VerifyWithOptions(k.bytes[:], message, signature, &ed25519.Options{Context: purpose}) == nil
}

// MarshalText gives what String does.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads what String gives.
func (k *Key) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*k = Key{}
		return nil
	}
	parsed, err := ParseKey(string(text))
	if err == nil {
		*k = parsed
	}
	return err
}
