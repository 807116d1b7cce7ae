package web

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"heddle/disguise/cover"
	"heddle/disguise/cover/web/browser"
	"heddle/internal/certfile"
	"heddle/internal/connlimit"
	"heddle/path"
)

// ClaimTLS is what the cover https hides and what it does not.
const ClaimTLS = "a website inside TLS 1.3 that anybody can browse: the network sees a browser's ClientHello, the site's name, and sizes, directions and times " +
	"of whole visits of recorded pages; filters for Tor's cells or for unusual ClientHellos do not tell it; hides neither how much is sent nor when, since visits follow each other " +
	"as your traffic needs, so a filter that learnt from such connections, or that looks for TLS inside TLS by sizes, tells them from visitors'; an authority that your system trusts could look inside, unless the bridge line has a pin"

func init() {
	cover.Register(cover.Kind{Name: NameTLS, Number: NumberTLS, Claim: ClaimTLS, Streams: true, Behind: true, Origin: true, ACME: true, New: NewTLS, Connections: 1,
		Local: []string{"site", "agent", "hello", "certificate", "key"}, Both: []string{"site"}, Offered: []string{"pin"},
		Args: map[string]string{
			"site":        "the file of the recorded site; both sides need the same one",
			"certificate": "at the bridge: the file of the certificate with its chain",
			"key":         "at the bridge: the file of the certificate's key",
			"pin":         "the key of the bridge's certificate, which then needs no authority",
			"hello":       "at the client: the ClientHello of chrome or firefox, or a file with one that was recorded (default: chrome)",
			"agent":       "the User-Agent of the client's requests (default: a Chromium on Linux)",
		}})
}

// secure is what a website inside TLS has. It is empty over plain HTTP.
type secure struct {
	tls    *tls.Config   // of the bridge
	acme   *authority    // that gives the bridge its certificate; may be nil
	hello  browser.Hello // of clients
	server browser.Server
}

// NewTLS returns the factory of the cover https.
func NewTLS(o cover.Options) (cover.Factory, error) {
	s, err := open(NameTLS, o)
	if err != nil {
		return nil, err
	}
	f, err := newFactory(s, o, NumberTLS)
	if err != nil {
		return nil, err
	}
	if f.server.Name, _, err = net.SplitHostPort(f.host); err != nil {
		f.server.Name = f.host // without a port
	}
	if f.hello, err = browser.HelloOf(o.Args["hello"]); err != nil {
		return nil, err
	}
	if text := o.Args["pin"]; text != "" {
		if f.server.Pin, err = pinOf(text); err != nil {
			return nil, err
		}
	}
	if err := f.certify(o); err != nil {
		return nil, err
	}
	return f, nil
}

func pinOf(text string) (*browser.Pin, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != len(browser.Pin{}) {
		return nil, &path.Error{What: "cover " + NameTLS, Why: fmt.Sprintf("pin=%.80s is no pin", text), Hint: "copy it again: it is the SHA-256 of a public key in base64url, of 43 characters"}
	}
	return (*browser.Pin)(raw), nil
}

func textOf(p browser.Pin) string { return base64.RawURLEncoding.EncodeToString(p[:]) }

// certify reads the certificate of a bridge.
func (s *secure) certify(o cover.Options) error {
	file, key := o.Args["certificate"], o.Args["key"]
	switch {
	case o.Front.ACME != nil && (o.Front.Behind || file+key+o.Args["pin"] != ""):
		return &path.Error{What: "cover " + NameTLS, Why: "the bridge has another certificate than one of an ACME authority", Hint: "leave out acme; or certificate=, key=, pin= and behind"}
	case o.Front.ACME != nil:
		a, err := newAuthority(s.server.Name, o.Front.ACME)
		if err != nil {
			return err
		}
		s.acme = a
		s.tls = configOf(a.get)
		s.tls.GetConfigForClient = a.challenged
		return nil
	case o.Front.Behind && file+key != "":
		return &path.Error{What: "cover " + NameTLS, Why: "the web server in front of the bridge has the certificate", Hint: "leave out certificate= and key="}
	case file == "" && key == "" && (!o.Bridge || o.Front.Behind):
		return nil
	case file == "" || key == "":
		return &path.Error{What: "cover " + NameTLS, Why: "the bridge has no certificate, or no key of it", Hint: "set acme to a directory; or certificate=FILE and key=FILE, such as an ACME client writes them"}
	}
	c, err := certfile.Load(file, key, s.check)
	if err != nil {
		return err
	}
	if o.Bridge {
		if err := s.judge(c); err != nil {
			return err
		}
	}
	c.Failed = func(err error) {
		slog.Warn("the renewed certificate of the website is not used", "certificate", file, "error", err)
	}
	var lines connlimit.Lines
	s.tls = configOf(func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		got, err := c.Get(hello)
		if err == nil && time.Now().After(got.Leaf.NotAfter) && lines.Take(time.Now()) {
			slog.Warn("the certificate of the website has expired, so browsers refuse it, and clients without a pin", "certificate", file, "hint", renew)
		}
		return got, err
	})
	return nil
}

// configOf is the TLS of a bridge with a certificate.
func configOf(get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: get,
		DynamicRecordSizingDisabled: true} // most web servers fill records from the first one on
}

// Work implements [cover.Worker].
func (f *factory) Work(ctx context.Context) {
	if f.acme != nil {
		f.acme.work(ctx)
	}
}

const renew = "renew it; the bridge reads the file again within a minute"

// check refuses certificates that no browser would take for the site.
func (s *secure) check(leaf *x509.Certificate) error {
	if now := time.Now(); now.After(leaf.NotAfter) {
		return &path.Error{What: "it", Why: "expired on " + leaf.NotAfter.Format(time.DateOnly), Hint: renew}
	}
	return leaf.VerifyHostname(s.server.Name)
}

// judge says whether clients take a certificate.
func (s *secure) judge(c *certfile.Certificate) error {
	leaf := c.Leaf()
	pin := textOf(browser.PinOf(leaf))
	if s.server.Pin != nil {
		if *s.server.Pin != browser.PinOf(leaf) {
			return &path.Error{What: "cover " + NameTLS, Why: "the pin is that of another key than the certificate's", Hint: "pin=" + pin}
		}
		return nil
	}
	chain, err := c.Get(nil)
	if err != nil {
		return err
	}
	between := x509.NewCertPool()
	for _, der := range chain.Certificate[1:] {
		if one, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(one)
		}
	}
	if _, err := leaf.Verify(x509.VerifyOptions{DNSName: s.server.Name, Intermediates: between}); err != nil {
		slog.Warn("clients and browsers refuse the certificate of the website", "error", err,
			"hint", "get one from an authority that systems trust; or add pin="+pin+" to the cover, in the bridge line too, although such a website is conspicuous")
	}
	return nil
}

// handshake begins TLS at a client.
func (s *secure) handshake(ctx context.Context, c net.Conn) (*browser.Client, error) {
	patient, cancel := context.WithTimeout(ctx, handshakePatience)
	defer cancel()
	client, err := s.hello.Dial(patient, c, s.server)
	if err == nil || ctx.Err() != nil {
		return client, err
	}
	failure := &path.Error{What: "cover " + NameTLS, Why: "no TLS with the bridge", Err: err}
	if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted || s.server.Pin != nil {
		failure.Hint = "the bridge's certificate may have expired; one without an authority needs pin= in the bridge line; or somebody on the way answers in its place"
	}
	return nil, failure
}

const handshakePatience = 30 * time.Second
