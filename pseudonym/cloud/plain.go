package cloud

import (
	"crypto/tls"
	"crypto/x509"

	"heddle/internal/certfile"
)

// plain returns what has the certificate of one of the cloud's own names that browsers come to: a public one from files that another
// program renews; or one of the cloud's own CA, which people have to trust first.
func (c *Cloud) plain(label string) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if c.o.Certificate == "" {
		own, err := c.named(label)
		return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &own, nil }, err
	}
	name := label + "." + string(c.o.Zone)
	public, err := certfile.Load(c.o.Certificate, c.o.Key, func(leaf *x509.Certificate) error { return leaf.VerifyHostname(name) })
	if err != nil {
		return nil, err
	}
	public.Failed = func(err error) {
		c.o.Log.Error("the new certificate is not used", "name", name, "file", c.o.Certificate, "error", err)
	}
	return public.Get, nil
}
