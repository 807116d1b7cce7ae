package identity

import (
	"cmp"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
)

// Key is the public key of an [Identity], and its name. Keys compare with ==. The zero value is nobody's.
type Key struct{ bytes [ed25519.PublicKeySize]byte }

const keyPrefix = "ed25519:"

// NewKey returns the key with the 32 bytes of an Ed25519 public key.
func NewKey(raw []byte) (Key, error) {
	if len(raw) != ed25519.PublicKeySize {
		return Key{}, fmt.Errorf("an Ed25519 key has %d bytes, not %d", ed25519.PublicKeySize, len(raw))
	}
	return Key{[ed25519.PublicKeySize]byte(raw)}, nil
}

// ParseKey parses the format of [Key.String]: ed25519: and 43 characters of base64url.
func ParseKey(text string) (Key, error) {
	rest, ok := strings.CutPrefix(text, keyPrefix)
	if !ok {
		return Key{}, fmt.Errorf("%.80q is no key: it does not start with %s", text, keyPrefix)
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(rest)
	if err != nil || len(raw) != ed25519.PublicKeySize || strings.ContainsAny(rest, "\r\n") { // base64 ignores line breaks
		return Key{}, fmt.Errorf("%.80q is no key: after %s come 43 letters, digits, '-' and '_'", text, keyPrefix)
	}
	return NewKey(raw)
}

// Bytes returns the 32 bytes of the key.
func (k Key) Bytes() []byte { return slices.Clone(k.bytes[:]) }

func (k Key) IsZero() bool { return k == Key{} }

// String returns ed25519: and the key in base64url, or "" for the zero key.
func (k Key) String() string {
	if k.IsZero() {
		return ""
	}
	return keyPrefix + base64.RawURLEncoding.EncodeToString(k.bytes[:])
}

// Short returns the first characters of the key, to tell keys apart in a table. It proves nothing.
func (k Key) Short() string {
	text := strings.TrimPrefix(k.String(), keyPrefix)
	return text[:min(8, len(text))]
}

func (k Key) Compare(other Key) int { return cmp.Compare(string(k.bytes[:]), string(other.bytes[:])) }

// Verify reports whether the owner of k signed message for the purpose; see [Identity.Sign].
func (k Key) Verify(purpose string, message, signature []byte) bool {
	return ed25519.VerifyWithOptions(k.bytes[:], message, signature, &ed25519.Options{Context: purpose}) == nil
}

// MarshalText is [Key.String].
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText is [ParseKey], and accepts "".
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
