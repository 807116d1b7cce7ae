// Package ca issues the certificates of a cloud. A root that stays offline permits an issuing key for the zone, which signs a
// certificate for each pseudonym. Clients sign their own certificates, and servers know them by their keys.
package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"time"

	"heddle/internal/errhint"
)

// Lives of certificates. Those of pseudonyms end with the pseudonym.
const (
	rootLife    = 10 * 365 * 24 * time.Hour
	issuingLife = 2 * 365 * 24 * time.Hour
	clockSkew   = time.Hour            // by which a client's clock may be slow
	mostServer  = 825 * 24 * time.Hour // from begin to end of a server's certificate that iOS and macOS take (Apple, HT210176)
)

// ErrClock says that a clock is outside the time of the issuing certificate.
var ErrClock = errors.New("the clock is wrong, or the issuing certificate is not valid now")

// NewKey draws a key of the one kind that all browsers take: ECDSA on P-256.
func NewKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// template is what all certificates have in common.
func template(subject string, now, until time.Time) *x509.Certificate {
	// All serial numbers have 16 bytes, so that the length of a certificate tells nothing.
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[0] = b[0]&0x3f | 0x40
	return &x509.Certificate{SerialNumber: new(big.Int).SetBytes(b[:]), Subject: pkix.Name{CommonName: subject},
		NotBefore: now.Add(-clockSkew).Truncate(time.Minute), NotAfter: until.Truncate(time.Second), BasicConstraintsValid: true}
}

// authority adds what a CA of the zone has: it can sign for names of the zone and for nothing else, so that a stolen key opens no
// other site to an attacker.
func authority(c *x509.Certificate, zone string) {
	c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	c.PermittedDNSDomainsCritical, c.PermittedDNSDomains = true, []string{zone}
	c.ExcludedIPRanges = []*net.IPNet{{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}}
}

// NewRoot makes the certificate of a root.
func NewRoot(key crypto.Signer, zone string, now time.Time) (*x509.Certificate, error) {
	c := template("Pseudonyms of "+zone, now, now.Add(rootLife))
	authority(c, zone)
	c.MaxPathLen = 1
	return sign(c, c, key.Public(), key)
}

// NewIssuing makes the certificate of an issuing key, by the root.
func NewIssuing(public crypto.PublicKey, root *x509.Certificate, rootKey crypto.Signer, zone string, now time.Time) (*x509.Certificate, error) {
	until := now.Add(issuingLife)
	if until.After(root.NotAfter) {
		until = root.NotAfter
	}
	c := template("Pseudonyms of "+zone+", issuing", now, until)
	authority(c, zone)
	c.MaxPathLenZero = true
	return sign(c, root, public, rootKey)
}

func sign(c, by *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, c, by, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// Issuer signs the certificates of pseudonyms.
type Issuer struct {
	zone  string
	key   crypto.Signer
	chain []*x509.Certificate // the issuing certificate, and what leads to a root that clients know
}

// NewIssuer takes an issuing key and its chain, the issuing certificate first. An operator may bring one of another CA.
func NewIssuer(zone string, key crypto.Signer, chain []*x509.Certificate, now time.Time) (*Issuer, error) {
	refuse := func(why, hint string) (*Issuer, error) {
		return nil, &errhint.Error{What: "the issuing certificate", Why: why, Hint: hint}
	}
	if len(chain) == 0 {
		return refuse("there is none", "heddle pseudonym init makes one")
	}
	c := chain[0]
	public, ok := c.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	switch {
	case !ok || !public.Equal(key.Public()):
		return refuse("it is not that of the key", "give both files of the same CA")
	case !c.IsCA || c.KeyUsage&x509.KeyUsageCertSign == 0:
		return refuse("it may not sign certificates", "ask its CA for an intermediate with basicConstraints CA:TRUE")
	case now.After(c.NotAfter):
		return refuse("it ended on "+c.NotAfter.Format(time.DateOnly), "sign a new one with the root: heddle pseudonym init --renew")
	case !constrained(c, zone):
		return refuse("it may sign for more than "+zone, "ask its CA for an intermediate with the name constraint permitted;DNS:"+zone)
	}
	return &Issuer{zone: zone, key: key, chain: chain}, nil
}

// constrained reports whether a CA may sign for the zone, or parts of it, only.
func constrained(c *x509.Certificate, zone string) bool {
	for _, domain := range c.PermittedDNSDomains {
		if domain != zone && !strings.HasSuffix(domain, "."+zone) {
			return false
		}
	}
	return len(c.PermittedDNSDomains) > 0
}

// Server signs the certificate of a server that has a name in the zone. It ends with the issuing certificate at the latest, and begins
// with it as far as browsers allow: what was signed while the clock was ahead is good when the clock is right again. It fails with
// [ErrClock] if the issuing certificate is not valid now.
func (i *Issuer) Server(name string, public crypto.PublicKey, now, until time.Time) (*x509.Certificate, error) {
	if name != i.zone && !strings.HasSuffix(name, "."+i.zone) {
		return nil, fmt.Errorf("%s is not in the zone %s", name, i.zone)
	}
	if now.Before(i.From()) || !now.Before(i.Until()) {
		return nil, ErrClock
	}
	if last := i.Until(); until.After(last) {
		until = last
	}
	if !until.After(now) {
		return nil, errors.New("the certificate would have ended already")
	}
	c := template(name, now, until)
	if begin := later(i.From(), c.NotAfter.Add(-mostServer)); begin.Before(c.NotBefore) {
		c.NotBefore = begin
	}
	c.DNSNames = []string{name}
	c.KeyUsage, c.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return sign(c, i.chain[0], public, i.key)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// From returns when the issuing certificate begins.
func (i *Issuer) From() time.Time { return i.chain[0].NotBefore }

// Until returns when the issuing certificate ends, and with it all that it signed.
func (i *Issuer) Until() time.Time { return i.chain[0].NotAfter }

// Chain returns what a server sends after its own certificate, in DER: without the root, which clients have.
func (i *Issuer) Chain() (der [][]byte) {
	for _, c := range i.chain {
		if c.CheckSignatureFrom(c) != nil {
			der = append(der, c.Raw)
		}
	}
	return der
}

// Client makes the certificate of a client for a pseudonym, signed by its own key: a server knows it by the key. Its issuer is the
// name of the pseudonym, which the server asks for, so that a browser offers this certificate and no other one.
func Client(name string, key crypto.Signer, now, until time.Time) (*x509.Certificate, error) {
	return Browser(name, name, key, now, until)
}

// BrowserLife is how long the certificate of a browser lasts. It is long, since a browser cannot renew it, and offers none that ended: the
// store decides when the pseudonym ends.
const BrowserLife = 10 * 365 * 24 * time.Hour

// Browser makes the certificate of a client as [Client] does, with an issuer that the server asks for and a subject that a person
// recognises when her browser lets her choose. TLS 1.3 shows neither to a network.
func Browser(subject, issuer string, key crypto.Signer, now, until time.Time) (*x509.Certificate, error) {
	c := template(subject, now, until)
	c.KeyUsage, c.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	by := *c
	by.Subject = pkix.Name{CommonName: issuer}
	return sign(c, &by, key.Public(), key)
}

// KeyID identifies the key of a client: the SHA-256 of its SubjectPublicKeyInfo.
type KeyID [sha256.Size]byte

// KeyOf returns the identifier of a certificate's key.
func KeyOf(c *x509.Certificate) KeyID { return KeyOfPublic(c.RawSubjectPublicKeyInfo) }

// KeyOfPublic returns the identifier of a SubjectPublicKeyInfo, in DER.
func KeyOfPublic(der []byte) KeyID { return sha256.Sum256(der) }

const keyPrefix = "sha256:"

// String returns the identifier as text, sha256:HEX.
func (id KeyID) String() string { return keyPrefix + hex.EncodeToString(id[:]) }

// MarshalText implements [encoding.TextMarshaler].
func (id KeyID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (id *KeyID) UnmarshalText(text []byte) error {
	digits, ok := strings.CutPrefix(string(text), keyPrefix)
	b, err := hex.DecodeString(digits)
	if !ok || err != nil || len(b) != len(id) {
		return &errhint.Error{What: "the key", Why: "it is not " + keyPrefix + "HEX", Hint: "heddle pseudonym tenant key prints it"}
	}
	copy(id[:], b)
	return nil
}
