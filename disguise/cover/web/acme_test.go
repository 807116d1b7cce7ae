package web

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/crypto/acme"

	"heddle/disguise/cover"
	"heddle/internal/errhint"
)

// An authority gives certificates for public names alone, so a bridge asks for no others.
func TestNamesForAnAuthority(t *testing.T) {
	for name, good := range map[string]bool{"www.example": true, "localhost": false, "example.": false, "192.0.2.1": false, "2001:db8::1": false} {
		if _, err := newAuthority(name, &cover.ACME{Dir: t.TempDir()}); (err == nil) != good || !good && errhint.Of(err) == "" {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Without a certificate, and without a challenge, strangers learn nothing of the authority, and cause no question to it.
func TestStrangersCauseNoQuestions(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer s.Close()
	a, err := newAuthority("www.example", &cover.ACME{Dir: t.TempDir(), Authority: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.get(nil); err == nil {
		t.Error("there is a certificate")
	}
	for _, name := range []string{"www.example", "WWW.EXAMPLE", "other.example", ""} {
		for _, protocols := range [][]string{nil, {"h2"}, {acme.ALPNProto}, {acme.ALPNProto, "h2"}} {
			if c, err := a.challenged(&tls.ClientHelloInfo{ServerName: name, SupportedProtos: protocols}); c != nil || err != nil {
				t.Errorf("%q, %q: %v, %v", name, protocols, c, err)
			}
		}
	}
	if asked > 0 {
		t.Errorf("the authority is asked %d times", asked)
	}
}

// What the authority says of an answer to a challenge is remembered, and its answers arrive as they were.
func TestReasons(t *testing.T) {
	const refused = `{"status":"invalid","challenges":[{"type":"http-01"},{"type":"tls-alpn-01","error":{"type":"urn:ietf:params:acme:error:connection","detail":"no route"}}]}`
	says := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, says) }))
	defer s.Close()
	var r reasons
	for _, c := range []struct{ says, reason string }{{"", ""}, {`{"challenges":[{"type":"tls-alpn-01"}]}`, ""}, {"<html>", ""}, {refused, "no route"}} {
		says = c.says
		got, err := (&http.Client{Transport: &r}).Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(got.Body)
		got.Body.Close()
		if err != nil || string(text) != c.says {
			t.Errorf("%q arrives, %v", text, err)
		}
		reason := ""
		if last := r.last.Swap(nil); last != nil {
			reason = *last
		}
		if reason != c.reason {
			t.Errorf("%q: the reason is %q", c.says, reason)
		}
	}
	s.Close()
	if got, err := r.RoundTrip(httptest.NewRequest(http.MethodGet, s.URL, strings.NewReader(""))); got != nil || err == nil {
		t.Errorf("an authority that is away: %v, %v", got, err)
	}
}
