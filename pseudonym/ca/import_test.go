package ca

import (
	"crypto"
	"crypto/x509"
	"net"
	"strings"
	"testing"
	"time"
)

// own is an operator's CA that signs an intermediate.
func own(t *testing.T, change func(root, intermediate *x509.Certificate)) (crypto.Signer, []*x509.Certificate) {
	t.Helper()
	rootKey, k := key(t), key(t)
	root := template("Operator", now, now.Add(100*time.Hour))
	root.IsCA, root.KeyUsage = true, x509.KeyUsageCertSign
	c := template("Operator, pseudonyms", now, now.Add(50*time.Hour))
	authority(c, zone)
	change(root, c)
	signedRoot, err := sign(root, root, rootKey.Public(), rootKey)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := sign(c, signedRoot, k.Public(), rootKey)
	if err != nil {
		t.Fatal(err)
	}
	return k, []*x509.Certificate{signed, signedRoot}
}

func TestCheckImport(t *testing.T) {
	none := func(_, _ *x509.Certificate) {}
	k, good := own(t, none)
	if err := CheckImport(zone, k, good, now); err != nil {
		t.Fatal(err)
	}
	if Limited(good[1], zone) || !Limited(good[0], zone) {
		t.Error("what the root can vouch for")
	}
	_, other := own(t, none)
	if err := CheckImport(zone, k, good[:1], now); err == nil || !strings.Contains(err.Error(), "has no root") {
		t.Errorf("without its root: %v", err)
	}
	if err := CheckImport(zone, k, []*x509.Certificate{good[0], other[1]}, now); err == nil || !strings.Contains(err.Error(), "did not sign") {
		t.Errorf("with another root: %v", err)
	}
	for why, change := range map[string]func(root, c *x509.Certificate){
		"may sign for more than":                         func(_, c *x509.Certificate) { c.PermittedDNSDomains = []string{zone, "other.example"} },
		"addresses such as 192":                          func(_, c *x509.Certificate) { c.ExcludedIPRanges = c.ExcludedIPRanges[1:] },
		"addresses such as 2001":                         func(_, c *x509.Certificate) { c.ExcludedIPRanges = c.ExcludedIPRanges[:1] },
		"may not sign":                                   func(_, c *x509.Certificate) { c.IsCA, c.MaxPathLen = false, 0 },
		"would not take what it signs for cloud.example": func(root, _ *x509.Certificate) { root.PermittedDNSDomains = []string{"other.example"} },
		"browsers would not take":                        func(_, c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} },
		"would not take what":                            func(_, c *x509.Certificate) { c.ExcludedDNSDomains = []string{"trial." + zone} },
		"it ended on":                                    func(_, c *x509.Certificate) { c.NotAfter = now.Add(-time.Hour) },
	} {
		k, chain := own(t, change)
		if err := CheckImport(zone, k, chain, now); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", why, err)
		}
	}
	// A root with a limit of its own serves too.
	k, chain := own(t, func(root, c *x509.Certificate) {
		root.PermittedDNSDomains, c.ExcludedIPRanges = []string{"example"}, nil
		root.ExcludedIPRanges = []*net.IPNet{{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}}
	})
	if err := CheckImport(zone, k, chain, now); err != nil {
		t.Error(err)
	}
}
