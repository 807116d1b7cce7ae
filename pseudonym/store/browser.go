package store

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/base32"
	"strings"

	"software.sslmate.com/src/go-pkcs12"

	"heddle/pseudonym"
	"heddle/pseudonym/ca"
)

const passphraseBytes = 10 // of randomness, 16 letters and digits

// newPassphrase draws a passphrase that people can type.
func newPassphrase() string {
	var b [passphraseBytes]byte
	_, _ = rand.Read(b[:]) // it never fails
	text := strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
	return strings.Join([]string{text[:4], text[4:8], text[8:12], text[12:]}, "-")
}

// registerBrowser registers for a browser, which makes no keys of its own without scripts. It returns what the browser imports: a key and
// its certificate (PKCS #12). The store forgets the key.
func (s *Store) registerBrowser(ctx context.Context, site string, owner pseudonym.Owner, passphrase string) (r Registration, file []byte, err error) {
	key, err := ca.NewKey()
	if err != nil {
		return r, nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return r, nil, err
	}
	if r, err = s.Register(ctx, site, ca.KeyOfPublic(public), owner); err != nil {
		return r, nil, err
	}
	issuer := r.Name
	if r.Site == s.o.Zone.Store() {
		issuer = string(s.o.Zone) // the linker asks for it too
	}
	now := s.now()
	cert, err := ca.Browser(r.Site, issuer, key, now, now.Add(ca.BrowserLife))
	if err != nil {
		return r, nil, err
	}
	file, err = pkcs12.Modern.Encode(key, cert, nil, passphrase)
	return r, file, err
}
