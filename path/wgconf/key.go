package wgconf

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"
	"regexp"
)

// Key is a Curve25519 key or a preshared key. It never shows its bytes through fmt, encoding/json or log/slog; take
// them with [Key.Bytes] or [Key.Hex] where they are needed.
type Key struct{ bytes [32]byte }

const redacted = "(hidden)"

// NewKey wraps the 32 bytes of a key.
func NewKey(b [32]byte) Key { return Key{bytes: b} }

// ParseKey reads base64 of 32 bytes, as wg(8) writes it. The error never repeats the text.
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

// Bytes gives the key itself.
func (k Key) Bytes() [32]byte { return k.bytes }

// Hex gives the key as WireGuard's configuration protocol takes it: 64 hexadecimal digits.
func (k Key) Hex() string { return hex.EncodeToString(k.bytes[:]) }

// Base64 gives the key as wg(8) writes it.
func (k Key) Base64() string { return base64.StdEncoding.EncodeToString(k.bytes[:]) }

// IsZero reports whether no key was given.
func (k Key) IsZero() bool { return k == Key{} }

// String never shows the key.
func (k Key) String() string { return redacted }

// GoString never shows the key.
func (k Key) GoString() string { return "wgconf.Key" + redacted }

// Format never shows the key, whatever the verb.
func (k Key) Format(f fmt.State, _ rune) { fmt.Fprint(f, redacted) }

// MarshalJSON never shows the key.
func (k Key) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalText never shows the key.
func (k Key) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue never shows the key.
func (k Key) LogValue() slog.Value { return slog.StringValue(redacted) }

var keyRun = regexp.MustCompile(`[A-Za-z0-9+/]{30,}`)

// looksLikeKey tells text that could hold most of a key, so that an error does not repeat it.
func looksLikeKey(text string) bool { return keyRun.MatchString(text) }
