package zone

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"heddle/internal/tcptest"
	"heddle/pseudonym"
	"heddle/pseudonym/ech"
)

const secret = "c2VjcmV0IG9mIDI0IGJ5dGVzIGhlcmU="

// keyFile writes a key in a format.
func keyFile(t *testing.T, format string, args ...any) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, fmt.Appendf(nil, format, args...), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const bindKey = "key \"cloud\" {\n\talgorithm hmac-sha256;\n\tsecret \"%s\";\n};\n"

func TestReadKey(t *testing.T) {
	want := Key{"cloud.", dns.HmacSHA256, secret}
	for _, file := range []string{keyFile(t, bindKey, secret), keyFile(t, "hmac-sha256:Cloud.:%s\n", secret), keyFile(t, "# hmac-sha256:cloud:%s\nkey:\n  - id: cloud\n", secret)} {
		if k, err := ReadKey(file); err != nil || k != want {
			t.Errorf("%+v, %v", k, err)
		}
	}
	for why, file := range map[string]string{
		"cannot be read": filepath.Join(t.TempDir(), "none"),
		"no key of BIND": keyFile(t, "hello"),
		"algorithm":      keyFile(t, "hmac-md5:cloud:%s", secret),
		"damaged":        keyFile(t, "hmac-sha256:cloud:%s", secret[:9]),
		"shorter":        keyFile(t, "hmac-sha256:cloud:%s", secret[:8]),
	} {
		if k, err := ReadKey(file); err == nil || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), secret[:8]) {
			t.Errorf("%s: %+v, %v", why, k, err)
		}
	}
}

// Each nameserver answers as the own one does, after each change, and keeps what is its own.
func TestUpdate(t *testing.T) {
	const refused, unknown = "it answers REFUSED", "it takes no update"
	// What each says about a zone that nobody may update, and about one that is not there.
	for name, why := range map[string][2]string{"BIND": {refused, unknown}, "Knot": {unknown, "it answers NOTAUTH"}, "PowerDNS": {refused, unknown}} {
		t.Run(name, func(t *testing.T) {
			testUpdate(t, nameservers[name], map[pseudonym.Zone]string{"fixed.example": why[0], "other.example": why[1]})
		})
	}
}

func testUpdate(t *testing.T, start nameserver, refuses map[pseudonym.Zone]string) {
	at := start(t, otherZone)
	k, err := ReadKey(keyFile(t, bindKey, secret))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ech.NewKey(1, apex.Store(), 40)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Server{server(t), server(t, func(o *Options) { o.Gateways = o.Gateways[1:2] }), server(t)} {
		for _, list := range [][]byte{nil, ech.List(key.Config())} {
			if err := s.Publish(list, list); err != nil {
				t.Fatal(err)
			}
			if err := s.Update(t.Context(), at, k); err != nil {
				t.Fatal(err)
			}
			answersAs(t, at, s, dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS)
		}
	}
	m, err := dns.Exchange(new(dns.Msg).SetQuestion("cloud.example.", dns.TypeNS), at)
	if err != nil || len(m.Answer) != 1 || m.Answer[0].(*dns.NS).Ns != "ns1.example.net." {
		t.Errorf("%v, %v", m, err)
	}

	other, err := ReadKey(keyFile(t, bindKey, "YW5vdGhlciBzZWNyZXQgb2YgMjQgYnl0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := server(t).Update(t.Context(), at, other); err == nil || strings.Contains(err.Error(), "YW5v") {
		t.Errorf("another key: %v", err)
	}
	for other, why := range refuses {
		if err := server(t, func(o *Options) { o.Zone = other }).Update(t.Context(), at, k); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", other, err)
		}
	}
	if err := server(t).Update(t.Context(), tcptest.Nobody(t).String(), k); err == nil {
		t.Error("nobody is there")
	}
}

// Each nameserver takes the zone as a file, and answers as the own one does.
func TestOthersLoadTheFile(t *testing.T) {
	s := server(t, signed(t))
	key, err := ech.NewKey(1, apex.Store(), 40)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Publish(ech.List(key.Config()), ech.List(key.Config())); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := s.Write(&text); err != nil {
		t.Fatal(err)
	}
	all := maps.Clone(nameservers)
	all["PowerDNS with files"] = powerDNSWithFiles
	for name, start := range all {
		t.Run(name, func(t *testing.T) {
			answersAs(t, start(t, text.String()), s, dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeSOA, dns.TypeNS, dns.TypeTXT)
		})
	}
}

// answersAs compares the answers of a nameserver with those of the own one.
func answersAs(t *testing.T, at string, s *Server, kinds ...uint16) {
	t.Helper()
	for _, name := range []string{string(pseudonym.NewLabel()) + ".cloud.example.", "a.b.cloud.example.", "store.cloud.example.", "cloud.example."} {
		for _, kind := range kinds {
			q := new(dns.Msg).SetQuestion(name, kind)
			m, _, err := (&dns.Client{Net: "tcp"}).Exchange(q, at)
			if want := s.Answer(q); err != nil || m.Rcode != want.Rcode || !same(m.Answer, want.Answer) {
				t.Errorf("%v, %v, want %v", m, err, want)
			}
		}
	}
}

// same reports whether two sets have the same records in any order.
func same(a, b []dns.RR) bool {
	if len(a) != len(b) {
		return false
	}
	for _, one := range a {
		found := false
		for _, other := range b {
			x, y := make([]byte, 4096), make([]byte, 4096)
			n, errX := dns.PackRR(one, x, 0, nil, false)
			m, errY := dns.PackRR(other, y, 0, nil, false)
			found = found || errX == nil && errY == nil && bytes.Equal(x[:n], y[:m])
		}
		if !found {
			return false
		}
	}
	return true
}
