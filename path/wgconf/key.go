package wgconf

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
)

// Key is a Curve25519 key or a preshared key. fmt, encoding/json and log/slog never show it; see [Key.Bytes] and [Key.Hex].
type Key struct{ bytes [32]byte }

const redacted = "(hidden)"

// ParseKey parses base64 of 32 bytes, as wg(8) writes it. The error never repeats the text.
func ParseKey(text string) (Key, error) {
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return Key{}, fmt.Errorf("it is not base64 (%d characters given, a key has 44)", len(text))
	}
	var k Key
	if len(raw) != len(k.bytes) {
		return Key{}, fmt.Errorf("it is %d bytes long, a key has 32", len(raw))
	}
	copy(k.bytes[:], raw)
	return k, nil
}

func (k Key) Bytes() [32]byte { return k.bytes }

// Hex returns the key for WireGuard's configuration protocol: 64 hexadecimal digits.
func (k Key) Hex() string { return hex.EncodeToString(k.bytes[:]) }

// IsZero reports whether no key was given.
func (k Key) IsZero() bool { return k == Key{} }

// Format hides the key for all verbs.
func (k Key) Format(f fmt.State, _ rune) { fmt.Fprint(f, redacted) }

// MarshalText hides the key, also from encoding/json and log/slog.
func (k Key) MarshalText() ([]byte, error) { return []byte(redacted), nil }

var keyRun = regexp.MustCompile(`[A-Za-z0-9+/]{30,}`)

// looksLikeKey reports whether text may hold most of a key, so that errors do not repeat it.
func looksLikeKey(text string) bool { return keyRun.MatchString(text) }
