package ca

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const zone = "cloud.example"

var now = time.Now()

func key(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func issuer(t *testing.T) (*Issuer, *x509.Certificate) {
	t.Helper()
	rootKey, issuing := key(t), key(t)
	root, err := NewRoot(rootKey, zone, now)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewIssuing(issuing.Public(), root, rootKey, zone, now)
	if err != nil {
		t.Fatal(err)
	}
	i, err := NewIssuer(zone, issuing, []*x509.Certificate{c, root}, now)
	if err != nil {
		t.Fatal(err)
	}
	if len(i.Chain()) != 1 {
		t.Errorf("servers send %d certificates besides their own", len(i.Chain()))
	}
	return i, root
}

// A stolen issuing key is good for the zone only: Go and OpenSSL refuse what it signs for other sites.
func TestIssuingKeyIsGoodForTheZoneOnly(t *testing.T) {
	i, root := issuer(t)
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(root)
	between.AddCert(i.chain[0])
	for name, good := range map[string]bool{"a." + zone: true, "bank.example": false, "evilcloud.example": false} {
		c := template(name, now, now.Add(time.Hour))
		c.DNSNames, c.ExtKeyUsage = []string{name}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		leaf, err := sign(c, i.chain[0], key(t).Public(), i.key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, Intermediates: between}); (err == nil) != good {
			t.Errorf("%s: Go says %v", name, err)
		}
		if out, err := verify(t, root, i.chain[0], leaf); (err == nil) != good {
			t.Errorf("%s: openssl says %v: %s", name, err, out)
		}
	}
	if _, err := i.Server("bank.example", key(t).Public(), now, now.Add(time.Hour)); err == nil {
		t.Error("it signs for another zone")
	}
}

func verify(t *testing.T, root, between, leaf *x509.Certificate) (string, error) {
	t.Helper()
	dir := t.TempDir()
	for name, c := range map[string]*x509.Certificate{"root": root, "between": between, "leaf": leaf} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("openssl", "verify", "-x509_strict", "-CAfile", "root", "-untrusted", "between", "leaf")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// The certificates of all pseudonyms have the same length, but for the two integers of their signature.
func TestCertificatesDoNotDifferInLength(t *testing.T) {
	i, _ := issuer(t)
	least, most := 1<<20, 0
	for range 200 {
		c, err := i.Server(strings.Repeat("a", 26)+"."+zone, key(t).Public(), now, now.Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		n := len(c.Raw) - len(c.Signature)
		least, most = min(least, n), max(most, n)
	}
	if least != most {
		t.Errorf("%d to %d bytes", least, most)
	}
}

func TestLivesEndWithTheIssuer(t *testing.T) {
	i, _ := issuer(t)
	c, err := i.Server("a."+zone, key(t).Public(), now, now.Add(100*365*24*time.Hour))
	if err != nil || c.NotAfter.After(i.chain[0].NotAfter) {
		t.Errorf("ends %v, %v", c.NotAfter, err)
	}
	if _, err := i.Server("a."+zone, key(t).Public(), now, now); err == nil {
		t.Error("a certificate that has ended")
	}
}

func TestNewIssuerRefuses(t *testing.T) {
	i, root := issuer(t)
	open := template("An intermediate", now, now.Add(time.Hour))
	open.IsCA, open.KeyUsage = true, x509.KeyUsageCertSign
	wide, err := sign(open, open, i.key.Public(), i.key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := i.Server("a."+zone, i.key.Public(), now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		chain []*x509.Certificate
		at    time.Time
		why   string
	}{
		{nil, now, "there is none"},
		{[]*x509.Certificate{root}, now, "not that of the key"},
		{[]*x509.Certificate{leaf}, now, "may not sign"},
		{i.chain, now.Add(3 * 365 * 24 * time.Hour), "it ended on"},
		{[]*x509.Certificate{wide}, now, "may sign for more"},
	} {
		if _, err := NewIssuer(zone, i.key, c.chain, c.at); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%q: %v", c.why, err)
		}
	}
	if _, err := NewIssuer("other.example", i.key, i.chain, now); err == nil {
		t.Error("the CA of another zone")
	}
}

func TestKeyIDs(t *testing.T) {
	id := KeyID{1, 0xab}
	var again KeyID
	if err := again.UnmarshalText([]byte(id.String())); err != nil || again != id {
		t.Errorf("%v, %v", again, err)
	}
	for _, text := range []string{"", "sha256:", id.String()[1:], id.String() + "00", strings.Repeat("x", 71), "sha256:" + strings.Repeat("x", 64)} {
		if err := again.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is a key", text)
		}
	}
}

// A TLS 1.3 handshake with both certificates.
func TestHandshake(t *testing.T) {
	i, root := issuer(t)
	const name = "a." + zone
	serverKey, clientKey := key(t), key(t)
	server, err := i.Server(name, serverKey.Public(), now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	client, err := Client(name, clientKey, now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(root)
	near, far := net.Pipe()
	got := make(chan KeyID, 1)
	go func() {
		s := tls.Server(far, &tls.Config{ClientAuth: tls.RequireAnyClientCert,
			Certificates: []tls.Certificate{{Certificate: append([][]byte{server.Raw}, i.Chain()...), PrivateKey: serverKey}}})
		_ = s.Handshake()
		got <- KeyOf(s.ConnectionState().PeerCertificates[0])
		s.Close()
	}()
	c := tls.Client(near, &tls.Config{ServerName: name, RootCAs: roots, Certificates: []tls.Certificate{{Certificate: [][]byte{client.Raw}, PrivateKey: clientKey}}})
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	go c.Read(make([]byte, 1)) // session tickets
	if <-got != KeyOf(client) {
		t.Error("the server saw another key")
	}
}
