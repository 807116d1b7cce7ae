package handshake

import (
	"cmp"
	"crypto/ecdh"
	"crypto/rand"
	"fmt"
	"log/slog"

	"heddle/internal/keyfile"
	"heddle/path"
)

// Identity is the private key of a bridge. Formatting never shows it. The zero value is no identity.
type Identity struct{ key *ecdh.PrivateKey }

// NewIdentity returns a new identity from crypto/rand.
func NewIdentity() (Identity, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	return Identity{key}, err
}

// Public returns the key that the bridge line shows.
func (id Identity) Public() PublicKey { return PublicKey(id.key.PublicKey().Bytes()) }

// LoadIdentity reads an identity from a PEM file (PKCS #8, with X25519 as RFC 8410 says). It refuses a file that other users may
// read.
func LoadIdentity(file string) (Identity, error) {
	key, p := keyfile.Load[*ecdh.PrivateKey](file)
	if p == nil {
		return Identity{key}, nil
	}
	hint := "it must be an X25519 key, PKCS #8 in PEM; `heddle disguise keys` makes one in a new file"
	if p.Err != nil {
		hint = "`heddle disguise keys` makes one"
	}
	return Identity{}, &path.Error{What: "bridge key " + file, Why: p.Why, Err: p.Err, Hint: cmp.Or(p.Hint, hint)}
}

// LoadOrCreateIdentity loads the identity of a file, or creates the file, readable only by its owner.
func LoadOrCreateIdentity(file string) (id Identity, created bool, err error) {
	return keyfile.LoadOrCreate(file, LoadIdentity, func(file string) (Identity, error) {
		id, err := NewIdentity()
		if err != nil {
			return Identity{}, err
		}
		if err := keyfile.Create(file, id.key); err != nil {
			return Identity{}, &path.Error{What: "bridge key " + file, Why: "cannot be written", Err: err, Hint: "make its directory writable, or name another file"}
		}
		return id, nil
	})
}

// Format hides the key for all verbs.
func (Identity) Format(f fmt.State, _ rune) { fmt.Fprint(f, "(bridge key)") }

// LogValue hides the key.
func (Identity) LogValue() slog.Value { return slog.StringValue("(bridge key)") }

// MarshalText hides the key.
func (Identity) MarshalText() ([]byte, error) { return []byte("(bridge key)"), nil }
