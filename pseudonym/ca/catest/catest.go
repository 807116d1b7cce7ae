// Package catest makes the CA of a cloud for tests. Do not import it outside tests.
package catest

import (
	"crypto/ecdsa"
	"crypto/x509"
	"testing"
	"time"

	"heddle/pseudonym/ca"
)

// NewKey draws a key.
func NewKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ca.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// NewIssuer makes the issuer of a zone and its root.
func NewIssuer(t testing.TB, zone string) (issuer *ca.Issuer, root *x509.Certificate) {
	t.Helper()
	rootKey, key, now := NewKey(t), NewKey(t), time.Now()
	root, err := ca.NewRoot(rootKey, zone, now)
	if err != nil {
		t.Fatal(err)
	}
	issuing, err := ca.NewIssuing(key.Public(), root, rootKey, zone, now)
	if err != nil {
		t.Fatal(err)
	}
	issuer, err = ca.NewIssuer(zone, key, []*x509.Certificate{issuing, root}, now)
	if err != nil {
		t.Fatal(err)
	}
	return issuer, root
}
