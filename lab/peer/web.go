package peer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"heddle/lab"
)

// Web is a web server, on port 80 and with TLS on port 443.
type Web struct {
	Server      string // "nginx" or "net/http"
	Certificate string // PEM file that clients must trust
}

// WebServer serves a directory on a host until ctx ends, for the given names and all addresses of the host. It uses
// nginx if installed, otherwise net/http in this process. Its certificate and own files go to work, an existing
// directory.
func WebServer(ctx context.Context, host *lab.Host, root, work string, names ...string) (*Web, error) {
	certificate, key := filepath.Join(work, "certificate.pem"), filepath.Join(work, "key.pem")
	if err := SelfSigned(certificate, key, names, host.Addrs()); err != nil {
		return nil, err
	}
	if _, err := nginx(); err == nil {
		return &Web{"nginx", certificate}, serveNginx(ctx, host, root, work, "")
	}
	return &Web{"net/http", certificate}, serveHTTP(ctx, host, root, certificate, key)
}

// MutualPort is where [MutualWebServer] asks for a client's certificate.
const MutualPort = 444

// MutualWebServer is [WebServer] by nginx alone, with TLS 1.3 alone, also on MutualPort for clients with a certificate that clients, a PEM file, signed.
func MutualWebServer(ctx context.Context, host *lab.Host, root, work, clients string, names ...string) (*Web, error) {
	if _, err := nginx(); err != nil {
		return nil, missing("nginx", "apt-get install nginx")
	}
	certificate, key := filepath.Join(work, "certificate.pem"), filepath.Join(work, "key.pem")
	if err := SelfSigned(certificate, key, names, host.Addrs()); err != nil {
		return nil, err
	}
	return &Web{"nginx", certificate}, serveNginx(ctx, host, root, work, fmt.Sprintf(mutualServer, MutualPort, clients, work, root))
}

const mutualServer = `ssl_protocols TLSv1.3;
	server {
		listen %[1]d ssl http2;
		ssl_verify_client on;
		ssl_client_certificate %[2]s;
		ssl_certificate %[3]s/certificate.pem;
		ssl_certificate_key %[3]s/key.pem;
		root %[4]s;
	}
`

const webServers = `sendfile on;
	server {
		listen 80;
		listen [::]:80;
		listen 443 ssl http2;
		listen [::]:443 ssl http2;
		ssl_certificate %[1]s/certificate.pem;
		ssl_certificate_key %[1]s/key.pem;
		root %[2]s;
	}
	%[3]s`

func serveNginx(ctx context.Context, host *lab.Host, root, work, more string) error {
	if strings.ContainsAny(root+work, " \t\n;{}\"'$#") {
		return fmt.Errorf("nginx: %q or %q holds a character that its configuration cannot", root, work)
	}
	p, err := StartNginx(ctx, host, work, fmt.Sprintf(webServers, work, root, more))
	if err != nil {
		return err
	}
	_, err = listening(ctx, p, host, 443)
	return err
}

// listening waits until a program accepts connections to a port of its host.
func listening(ctx context.Context, p *Process, host *lab.Host, port uint16) (*Process, error) {
	return p.OrStop(p.Await(ctx, func() error {
		return host.Do(func() error { return connects(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)) })
	}))
}

// connects fails while nobody listens at an address.
func connects(at netip.AddrPort) error {
	c, err := net.DialTimeout("tcp", at.String(), time.Second)
	if err == nil {
		c.Close()
	}
	return err
}

// serveHTTP serves from this process: sockets opened inside the host stay there.
func serveHTTP(ctx context.Context, host *lab.Host, root, certificate, key string) error {
	var plain, secure net.Listener
	err := host.Do(func() (err error) {
		if plain, err = net.Listen("tcp", ":80"); err != nil {
			return err
		}
		if secure, err = net.Listen("tcp", ":443"); err != nil {
			plain.Close()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("web server on %s: %w", host.Name(), err)
	}
	server := &http.Server{Handler: http.FileServer(http.Dir(root)), ReadHeaderTimeout: 10 * time.Second}
	go server.Serve(plain)
	go server.ServeTLS(secure, certificate, key)
	context.AfterFunc(ctx, func() { server.Close() })
	return nil
}

// KeyHash is the SHA-256 of the public key of a certificate, a PEM file, by which clients pin it.
func KeyHash(certificate string) ([]byte, error) {
	text, err := os.ReadFile(certificate)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s holds no certificate", certificate)
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certificate, err)
	}
	sum := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
	return sum[:], nil
}

// SelfSigned writes a certificate for the names and addresses, and its key with access for the owner only.
func SelfSigned(certificate, key string, names []string, addrs []netip.Addr) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "heddle lab"}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	for _, a := range addrs {
		template.IPAddresses = append(template.IPAddresses, a.AsSlice())
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	if err := os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		return err
	}
	return os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600)
}
