package keyfile

import (
	"crypto/ecdh"
	"testing"
)

func FuzzParse(f *testing.F) {
	f.Add([]byte("-----BEGIN PRIVATE " + "KEY-----\neHl6enk=\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if key, err := Parse[*ecdh.PrivateKey](text); err == nil && key == nil {
			t.Error("no key, and no error")
		}
	})
}
