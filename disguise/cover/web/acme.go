package web

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"

	"heddle/disguise/cover"
	"heddle/path"
)

// acmeRetry is the time between two attempts. Let's Encrypt takes five failed ones an hour.
const acmeRetry = 15 * time.Minute

// authority keeps the website's certificate, which an ACME authority gives for the answer to a challenge inside TLS (RFC 8737).
type authority struct {
	name    string
	manager autocert.Manager
	reasons reasons
	have    atomic.Bool // a certificate; before, visitors cause no attempts
}

func newAuthority(name string, o *cover.ACME) (*authority, error) {
	if _, err := netip.ParseAddr(name); err == nil || !strings.Contains(strings.Trim(name, "."), ".") {
		return nil, &path.Error{What: "cover " + NameTLS, Why: fmt.Sprintf("an authority gives no certificate for %q, where the site was recorded", name),
			Hint: "record a site with a public name, or set certificate= and key="}
	}
	a := &authority{name: name}
	a.manager = autocert.Manager{Prompt: autocert.AcceptTOS, Cache: autocert.DirCache(o.Dir), HostPolicy: autocert.HostWhitelist(name),
		Client: &acme.Client{DirectoryURL: o.Authority, UserAgent: "heddle", HTTPClient: &http.Client{Transport: &a.reasons}}}
	return a, nil
}

// reasons remembers why the authority did not take the answer to a challenge. The manager reads that and does not tell.
type reasons struct{ last atomic.Pointer[string] }

// mostAnswer bounds an answer of the authority, which has some KiB.
const mostAnswer = 1 << 20

// RoundTrip implements [http.RoundTripper].
func (r *reasons) RoundTrip(q *http.Request) (*http.Response, error) {
	got, err := http.DefaultTransport.RoundTrip(q)
	if err != nil {
		return got, err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(io.LimitReader(got.Body, mostAnswer))
	if err != nil {
		return nil, err
	}
	got.Body = io.NopCloser(bytes.NewReader(text))
	var authorization struct {
		Challenges []struct{ Error struct{ Detail string } }
	}
	if json.Unmarshal(text, &authorization) == nil {
		for _, c := range authorization.Challenges {
			if reason := c.Error.Detail; reason != "" {
				r.last.Store(&reason)
			}
		}
	}
	return got, nil
}

// anyHello asks for the one certificate that all visitors get. It has a key of ECDSA, whatever their programs can.
func (a *authority) anyHello() *tls.ClientHelloInfo {
	return &tls.ClientHelloInfo{ServerName: a.name, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}
}

func (a *authority) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if !a.have.Load() {
		return nil, fmt.Errorf("%s has no certificate yet", a.name)
	}
	return a.manager.GetCertificate(a.anyHello())
}

// challenged returns the configuration for the authority's own connections. Without a challenge there is none, so that the bridge answers a
// stranger who offers the protocol of challenges as a server without ACME does.
func (a *authority) challenged(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	if !slices.Equal(hello.SupportedProtos, []string{acme.ALPNProto}) || !strings.EqualFold(hello.ServerName, a.name) {
		return nil, nil
	}
	answer, err := a.manager.GetCertificate(hello)
	if err != nil {
		return nil, nil
	}
	return &tls.Config{Certificates: []tls.Certificate{*answer}, NextProtos: []string{acme.ALPNProto}}, nil
}

// work gets the first certificate, and watches that it is renewed, which the manager does.
func (a *authority) work(ctx context.Context) {
	for wait := time.Duration(0); ; wait = acmeRetry {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		done := make(chan struct{})
		go func() { // an attempt takes no context, and may take minutes
			defer close(done)
			a.attempt()
		}()
		select {
		case <-ctx.Done():
			return
		case <-done:
		}
	}
}

func (a *authority) attempt() {
	hint := fmt.Sprintf("%s has to lead to this machine, and port 443 there to the bridge", a.name)
	got, err := a.manager.GetCertificate(a.anyHello())
	if err != nil {
		if reason := a.reasons.last.Swap(nil); reason != nil {
			err = fmt.Errorf("%.500s", *reason)
		}
		slog.Warn("the authority gave the website no certificate", "error", err, "hint", hint, "again in", acmeRetry)
		return
	}
	if !a.have.Swap(true) {
		slog.Info("the website has a certificate of the authority", "name", a.name, "until", got.Leaf.NotAfter.Format(time.DateOnly))
	}
	// The manager renews after two thirds of the time, and says nothing when that fails.
	if left, all := time.Until(got.Leaf.NotAfter), got.Leaf.NotAfter.Sub(got.Leaf.NotBefore); left < all/6 {
		slog.Warn("the certificate of the website was not renewed", "until", got.Leaf.NotAfter, "hint", hint)
	}
}
