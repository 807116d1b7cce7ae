// Package certfile has the certificate of a server in files that another program renews, such as an ACME client.
package certfile

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"sync"
	"time"

	"heddle/internal/errhint"
)

// checkFiles is how often the files are looked at.
const checkFiles = time.Minute

// Certificate is a certificate and key in PEM files, which are read again when they change.
type Certificate struct {
	// Failed is told why changed files are not used; it may be nil.
	Failed func(error)

	certFile, keyFile string
	check             func(leaf *x509.Certificate) error
	now               func() time.Time

	mu     sync.Mutex
	loaded *tls.Certificate
	stamp  time.Time
	looked time.Time
}

// Load reads the two files. It fails if everybody may read the key, and for a certificate that check, if it is not nil, refuses.
func Load(certFile, keyFile string, check func(leaf *x509.Certificate) error) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, check: check, now: time.Now}
	info, err := os.Stat(keyFile)
	if err != nil {
		return nil, &errhint.Error{What: "key " + keyFile, Why: "it cannot be read", Err: err}
	}
	if info.Mode().Perm()&0o007 != 0 {
		return nil, &errhint.Error{What: "key " + keyFile, Why: "everybody can read it", Hint: "chmod o= " + keyFile}
	}
	if err := c.read(); err != nil {
		return nil, &errhint.Error{What: "certificate " + certFile, Why: "it cannot be used with " + keyFile, Err: err, Hint: "both are PEM files; the first holds the whole chain"}
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
	if c.check != nil {
		if err := c.check(loaded.Leaf); err != nil {
			return err
		}
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
			// A renewal may be in progress. The next check tries again.
			if err := c.read(); err != nil && c.Failed != nil {
				c.Failed(err)
			}
		}
	}
	return c.loaded, nil
}

// Leaf returns the server's own certificate.
func (c *Certificate) Leaf() *x509.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loaded.Leaf
}
