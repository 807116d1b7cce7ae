package ca

import (
	"crypto"
	"crypto/x509"
	"net"
	"time"

	"heddle/internal/errhint"
)

// outside are names and addresses that no cloud's CA may vouch for, so one that can sign for them can sign for anything.
var (
	outside   = "outside.example"
	addresses = []net.IP{net.IPv4(192, 0, 2, 1), net.ParseIP("2001:db8::1")} // for documentation (RFC 5737, RFC 3849)
)

// CheckImport looks at an intermediate of the operator's own CA before it becomes the issuing certificate. The chain leads from it to the
// root, which is the last. It signs certificates on trial and verifies them as a browser does, so that what it says is how it is.
func CheckImport(zone string, key crypto.Signer, chain []*x509.Certificate, now time.Time) error {
	refuse := func(why, hint string) error {
		return &errhint.Error{What: "the intermediate", Why: why, Hint: hint}
	}
	issuer, err := NewIssuer(zone, key, chain, now)
	if err != nil {
		return err
	}
	for i, c := range chain[1:] {
		if chain[i].CheckSignatureFrom(c) != nil {
			return refuse("the certificate "+c.Subject.String()+" did not sign the one before it", "give the chain from the intermediate to the root, in this order")
		}
	}
	if root := chain[len(chain)-1]; len(chain) < 2 || root.CheckSignatureFrom(root) != nil {
		return refuse("its chain has no root, which users have to trust", "add the certificates up to the root")
	}
	if err := issuer.try(now, []string{"trial." + zone}, nil); err != nil {
		return refuse("browsers would not take what it signs for "+zone+": "+err.Error(), "ask its CA for an intermediate that may sign for servers in "+zone)
	}
	if issuer.try(now, []string{outside}, nil) == nil {
		return refuse("it may sign for more than "+zone, "ask its CA for an intermediate with the name constraint permitted;DNS:"+zone)
	}
	for _, ip := range addresses {
		if issuer.try(now, nil, []net.IP{ip}) == nil {
			return refuse("it may sign for addresses such as "+ip.String(), "ask its CA for an intermediate that excludes all, with the name constraints excluded;IP:0.0.0.0/0.0.0.0 and excluded;IP:::/::")
		}
	}
	return nil
}

// try signs a certificate for an hour and verifies it.
func (i *Issuer) try(now time.Time, names []string, ips []net.IP) error {
	key, err := NewKey()
	if err != nil {
		return err
	}
	c := template("trial", now, now.Add(time.Hour))
	c.DNSNames, c.IPAddresses = names, ips
	c.KeyUsage, c.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	leaf, err := sign(c, i.chain[0], key.Public(), i.key)
	if err != nil {
		return err
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(i.chain[len(i.chain)-1])
	for _, one := range i.chain[:len(i.chain)-1] {
		between.AddCert(one)
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return err
}

// Limited reports whether a root can vouch for names of a zone only, as those that [NewRoot] makes.
func Limited(root *x509.Certificate, zone string) bool { return constrained(root, zone) }
