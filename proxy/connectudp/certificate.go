package connectudp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"heddle/internal/atomicfile"
	"heddle/path"
)

const (
	selfSignedFor = 10 * 365 * 24 * time.Hour // the key is pinned, so the date does not matter
	checkFiles    = time.Minute
)

// Certificate is a certificate and key in PEM files, which are read again when they change.
type Certificate struct {
	certFile, keyFile string
	now               func() time.Time

	mu     sync.Mutex
	loaded *tls.Certificate
	stamp  time.Time
	looked time.Time
}

// LoadCertificate reads the two files. It fails if others than the owner may read the key.
func LoadCertificate(certFile, keyFile string) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, now: time.Now}
	info, err := os.Stat(keyFile)
	if err != nil {
		return nil, &path.Error{What: "key " + keyFile, Why: "it cannot be read", Err: err}
	}
	if info.Mode().Perm()&0o007 != 0 {
		return nil, &path.Error{What: "key " + keyFile, Why: "everybody can read it", Hint: "chmod o= " + keyFile}
	}
	if err := c.read(); err != nil {
		return nil, &path.Error{What: "certificate " + certFile, Why: "it cannot be used with " + keyFile, Err: err, Hint: "both are PEM files; the first holds the whole chain"}
	}
	return c, nil
}

func (c *Certificate) read() error {
	loaded, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return err
	}
	info, err := os.Stat(c.certFile)
	if err != nil {
		return err
	}
	c.loaded, c.stamp, c.looked = &loaded, info.ModTime(), c.now()
	return nil
}

// Get returns the current certificate, or the previous one if the files cannot be read.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); now.Sub(c.looked) >= checkFiles {
		c.looked = now
		if info, err := os.Stat(c.certFile); err == nil && !info.ModTime().Equal(c.stamp) {
			_ = c.read() // a renewal may be in progress; the next check retries
		}
	}
	return c.loaded, nil
}

// Leaf returns the proxy's own certificate.
func (c *Certificate) Leaf() *x509.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loaded.Leaf
}

// SelfSigned reads certificate.pem and key.pem in dir. If they do not exist, it creates them for these names.
func SelfSigned(dir string, names []string) (*Certificate, error) {
	certFile, keyFile := filepath.Join(dir, "certificate.pem"), filepath.Join(dir, "key.pem")
	_, err := os.Stat(keyFile)
	if errors.Is(err, fs.ErrNotExist) {
		err = makeSelfSigned(dir, certFile, keyFile, names)
	}
	if err != nil {
		return nil, &path.Error{What: "self-signed " + dir, Why: "no certificate can be made there", Err: err}
	}
	return LoadCertificate(certFile, keyFile)
}

func makeSelfSigned(dir, certFile, keyFile string, names []string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "proxy"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(selfSignedFor),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	certDER, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(atomicfile.Write(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certDER}), 0o600),
		atomicfile.Write(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
}
