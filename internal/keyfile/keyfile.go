// Package keyfile keeps a private key in a file: PKCS #8 in PEM, as other programs write it, readable only by its owner.
package keyfile

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"heddle/internal/atomicfile"
)

const pemType = "PRIVATE KEY" // PKCS #8 (RFC 5958)

// Problem is why a file holds no usable key. It never repeats the file's content.
type Problem struct {
	Why  string
	Hint string // empty where only the caller knows one
	Err  error
}

// Load reads the key of a file. It refuses a file that other users may read.
func Load[K any](file string) (K, *Problem) {
	var none K
	info, err := os.Stat(file)
	if err != nil {
		return none, &Problem{Why: "cannot be read", Err: err}
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" { // which has no permission bits
		return none, &Problem{Why: fmt.Sprintf("others may read it (mode %o)", mode), Hint: "chmod 600 " + file}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return none, &Problem{Why: "cannot be read", Err: err}
	}
	key, err := Parse[K](text)
	if err != nil {
		return none, &Problem{Why: err.Error()}
	}
	return key, nil
}

// Parse reads the text of a file. Its errors never repeat the text.
func Parse[K any](text []byte) (key K, err error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != pemType || len(bytes.TrimSpace(rest)) > 0 {
		return key, errors.New("it is not one private key in PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return key, errors.New("its PEM holds no key that can be read")
	}
	key, ok := parsed.(K)
	if !ok {
		return key, fmt.Errorf("it is a key of another kind, %T", parsed)
	}
	return key, nil
}

// Create writes a new file atomically. The error is [fs.ErrExist] if there is one.
func Create(file string, key any) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return atomicfile.CreatePrivate(file, pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der}))
}

// LoadOrCreate loads what a file holds, or creates the file. Another process may do the same at the same time.
func LoadOrCreate[T any](file string, load, create func(file string) (T, error)) (t T, created bool, err error) {
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t, err := load(file)
		return t, false, err
	}
	if t, err = create(file); errors.Is(err, fs.ErrExist) {
		t, err = load(file)
		return t, false, err
	}
	return t, err == nil, err
}
