// Package identity authenticates devices, overlay nodes and boards. Each has an Ed25519 key, which is also its name, and
// knows the keys of its peers: there are no authorities and no expiry. An [Identity] signs, and configures TLS 1.3
// connections in which both sides prove their keys. Do not use it for servers with domain names; those have certificates.
package identity

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"heddle/internal/keyfile"
	"heddle/path"
)

// Identity is a private key. Formatting never shows it. The zero value is no identity.
type Identity struct{ private ed25519.PrivateKey }

// New returns a new identity from crypto/rand.
func New() (Identity, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	return Identity{private}, err
}

// DefaultFile returns the file of this user's identity: identity.pem in Heddle's configuration directory.
func DefaultFile() (string, error) {
	if dir := os.Getenv("HEDDLE_HOME"); dir != "" {
		return filepath.Join(dir, "identity.pem"), nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", &path.Error{What: "identity", Why: "this user has no directory of settings", Err: err, Hint: "set HEDDLE_HOME to a directory"}
	}
	return filepath.Join(dir, "heddle", "identity.pem"), nil
}

// FileOr returns the named file, or [DefaultFile] if named is "".
func FileOr(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	return DefaultFile()
}

// LoadOr is [Load] of [FileOr].
func LoadOr(named string) (Identity, error) {
	file, err := FileOr(named)
	if err != nil {
		return Identity{}, err
	}
	return Load(file)
}

// Load reads an identity from a PEM file (PKCS #8). It refuses a file that other users may read.
func Load(file string) (Identity, error) {
	key, p := keyfile.Load[ed25519.PrivateKey](file)
	if p == nil {
		return Identity{key}, nil
	}
	hint := "it must be an Ed25519 key, PKCS #8 in PEM"
	if p.Err != nil {
		hint = "`heddle node key --identity " + file + "` makes one"
	}
	return Identity{}, &path.Error{What: "identity " + file, Why: p.Why, Err: p.Err, Hint: cmp.Or(p.Hint, hint)}
}

// LoadOrCreate loads the identity of a file, or creates the file, readable only by its owner.
func LoadOrCreate(file string) (id Identity, created bool, err error) {
	return keyfile.LoadOrCreate(file, Load, func(file string) (Identity, error) {
		id, err := New()
		if err != nil {
			return Identity{}, err
		}
		if err := keyfile.Create(file, id.private); err != nil {
			return Identity{}, &path.Error{What: "identity " + file, Why: "cannot be written", Err: err}
		}
		return id, nil
	})
}

func (id Identity) IsZero() bool { return id.private == nil }

// Key returns the public key.
func (id Identity) Key() Key {
	var k Key
	copy(k.bytes[:], id.private.Public().(ed25519.PublicKey))
	return k
}

// Sign signs message for one purpose (Ed25519ctx, RFC 8032, section 5.1). The signature does not verify for other purposes.
// The purpose has 1 to 255 bytes, such as "heddle grant 1".
func (id Identity) Sign(purpose string, message []byte) ([]byte, error) {
	return id.private.Sign(nil, message, &ed25519.Options{Context: purpose})
}

// Format hides the key for all verbs.
func (Identity) Format(f fmt.State, _ rune) { fmt.Fprint(f, "(identity)") }

// LogValue hides the key.
func (Identity) LogValue() slog.Value { return slog.StringValue("(identity)") }

// MarshalText hides the key.
func (Identity) MarshalText() ([]byte, error) { return []byte("(identity)"), nil }
