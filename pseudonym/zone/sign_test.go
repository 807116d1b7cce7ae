package zone

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"heddle/pseudonym"
)

// signed is a zone with a key.
func signed(t testing.TB) func(*Options) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return func(o *Options) { o.Key = key }
}

func askSecure(s *Server, name string, kind uint16) *dns.Msg {
	q := new(dns.Msg).SetQuestion(name, kind)
	q.SetEdns0(4096, true)
	return s.Answer(q)
}

// verified checks that each set of an answer has a good signature.
func verified(t *testing.T, s *Server, all []dns.RR) {
	t.Helper()
	key, err := dnskey(s.apex, s.o.Key)
	if err != nil {
		t.Fatal(err)
	}
	type set struct {
		name string
		kind uint16
	}
	sets, sigs := map[set][]dns.RR{}, map[set]*dns.RRSIG{}
	for _, rr := range all {
		name := strings.ToLower(rr.Header().Name)
		if sig, ok := rr.(*dns.RRSIG); ok {
			sigs[set{name, sig.TypeCovered}] = sig
		} else {
			sets[set{name, rr.Header().Rrtype}] = append(sets[set{name, rr.Header().Rrtype}], rr)
		}
	}
	for at, set := range sets {
		sig := sigs[at]
		if sig == nil {
			t.Errorf("%v has no signature", at)
			continue
		}
		if err := sig.Verify(key, set); err != nil || !sig.ValidityPeriod(time.Now()) {
			t.Errorf("%v: %v", at, err)
		}
	}
	if len(sets) != len(sigs) {
		t.Errorf("%d signatures of %d sets", len(sigs), len(sets))
	}
}

// denied reports whether a record says that there is no such name, or for the name itself no such type.
func denied(all []dns.RR, name string, kind uint16) bool {
	for _, rr := range all {
		n, ok := rr.(*dns.NSEC)
		switch {
		case !ok:
		case n.Hdr.Name == name:
			return !strings.Contains(fmt.Sprint(n.TypeBitMap), fmt.Sprint(kind)) || kind == 0
		case canonical(n.Hdr.Name, name) < 0 && (canonical(name, n.NextDomain) < 0 || n.NextDomain == "cloud.example."):
			return true
		}
	}
	return false
}

func TestSignatures(t *testing.T) {
	s := server(t, signed(t))
	label := string(pseudonym.NewLabel()) + ".cloud.example."
	for _, c := range []struct {
		name   string
		kind   uint16
		answer bool
		denies []string // names that there are not, in the same answer
	}{
		{"cloud.example.", dns.TypeDNSKEY, true, nil},
		{"cloud.example.", dns.TypeSOA, true, nil},
		{"cloud.example.", dns.TypeTXT, false, []string{"cloud.example."}},
		{"store.cloud.example.", dns.TypeAAAA, true, nil},
		{"store.cloud.example.", dns.TypeTXT, false, []string{"store.cloud.example."}},
		{label, dns.TypeA, true, []string{label}},
		{label, dns.TypeHTTPS, true, []string{label}},
		{label, dns.TypeTXT, false, []string{label, "*.cloud.example."}},
		{"zzz.cloud.example.", dns.TypeTXT, false, []string{"zzz.cloud.example.", "*.cloud.example."}},
		{"!.cloud.example.", dns.TypeA, true, []string{"!.cloud.example."}},
		{"a.b.cloud.example.", dns.TypeA, true, []string{"b.cloud.example."}},
		{"a.store.cloud.example.", dns.TypeA, false, []string{"a.store.cloud.example.", "*.store.cloud.example."}},
	} {
		m := askSecure(s, c.name, c.kind)
		verified(t, s, m.Answer)
		verified(t, s, m.Ns)
		if (len(m.Answer) > 0) != c.answer {
			t.Errorf("%s: %s", c.name, m)
		}
		for _, name := range c.denies {
			if !denied(m.Ns, name, c.kind) {
				t.Errorf("%s %s: nothing denies %s: %s", c.name, dns.TypeToString[c.kind], name, m)
			}
		}
		if plain := ask(s, c.name, c.kind); strings.Contains(plain.String(), "RRSIG") || strings.Contains(plain.String(), "NSEC") && c.kind != dns.TypeNSEC {
			t.Errorf("%s: signatures for somebody who did not ask: %s", c.name, plain)
		}
	}
}

// Signatures do not end while the server runs.
func TestSignsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := server(t, signed(t))
		go s.keepSigned(t.Context())
		for range 40 {
			time.Sleep(signEvery)
			synctest.Wait()
			for _, rr := range askSecure(s, "x.cloud.example.", dns.TypeA).Answer {
				if sig, ok := rr.(*dns.RRSIG); ok && !sig.ValidityPeriod(time.Now().Add(signFor/2)) {
					t.Fatalf("on %v: %v", time.Now(), sig)
				}
			}
		}
	})
}

// What is too long for a datagram is fetched again by TCP.
func TestTruncates(t *testing.T) {
	s := server(t, signed(t), func(o *Options) {
		for range 5 {
			o.Gateways = append(o.Gateways, o.Gateways...)
		}
	})
	at := serve(t, s)
	q := new(dns.Msg).SetQuestion("x.cloud.example.", dns.TypeA)
	q.SetEdns0(4096, true)
	m, _, err := (&dns.Client{}).Exchange(q, at)
	if err != nil {
		t.Fatal(err)
	}
	if m.Compress = true; !m.Truncated || m.Len() > maxPayload {
		t.Errorf("%d bytes: %v", m.Len(), m)
	}
	m, _, err = (&dns.Client{Net: "tcp"}).Exchange(q, at)
	if err != nil || m.Truncated || len(m.Answer) < 64 {
		t.Errorf("%v, %v", m, err)
	}
}

// delv is the validator of BIND. It trusts the key of the zone alone.
func TestBINDValidates(t *testing.T) {
	if _, err := exec.LookPath("delv"); err != nil {
		t.Skip("typed skip: no delv: apt-get install bind9-dnsutils")
	}
	s := server(t, signed(t))
	host, port, err := net.SplitHostPort(serve(t, s))
	if err != nil {
		t.Fatal(err)
	}
	key, err := dnskey(s.apex, s.o.Key)
	if err != nil {
		t.Fatal(err)
	}
	anchor := filepath.Join(t.TempDir(), "anchor")
	if err := os.WriteFile(anchor, fmt.Appendf(nil, "trust-anchors { \"cloud.example\" static-key %d %d %d \"%s\"; };\n", key.Flags, key.Protocol, key.Algorithm, key.PublicKey), 0o644); err != nil {
		t.Fatal(err)
	}
	label := string(pseudonym.NewLabel()) + ".cloud.example"
	for question, want := range map[string]string{
		label + " A":                 "; fully validated",
		label + " HTTPS":             "; fully validated",
		"store.cloud.example AAAA":   "; fully validated",
		label + " TXT":               "; negative response, fully validated",
		"store.cloud.example TXT":    "; negative response, fully validated",
		"a.store.cloud.example AAAA": "; negative response, fully validated",
	} {
		out, err := exec.CommandContext(t.Context(), "delv", append([]string{"@" + host, "-p", port, "-a", anchor, "+root=cloud.example"}, strings.Fields(question)...)...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s", question, err, out)
		}
	}
}

// The zone as a file has all that the server answers with, and another server can read it.
func TestWrite(t *testing.T) {
	s := server(t, signed(t))
	var b strings.Builder
	if err := s.Write(&b); err != nil {
		t.Fatal(err)
	}
	kinds := map[uint16]int{}
	p := dns.NewZoneParser(strings.NewReader(b.String()), "", "")
	for rr, ok := p.Next(); ok; rr, ok = p.Next() {
		kinds[rr.Header().Rrtype]++
	}
	if err := p.Err(); err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	// store, ns and the wildcard
	if kinds[dns.TypeA] != 6 || kinds[dns.TypeAAAA] != 3 || kinds[dns.TypeHTTPS] != 3 || kinds[dns.TypeSOA] != 1 || kinds[dns.TypeNS] != 1 || len(kinds) != 5 {
		t.Errorf("%v\n%s", kinds, b.String())
	}
	if ds, err := s.DS(); err != nil || !strings.HasPrefix(ds, "cloud.example.\t3600\tIN\tDS\t") {
		t.Errorf("%q, %v", ds, err)
	}
	if ds, err := server(t).DS(); err != nil || ds != "" {
		t.Errorf("not signed: %q, %v", ds, err)
	}
}

func BenchmarkAnswer(b *testing.B) {
	s := server(b, signed(b))
	for b.Loop() {
		m := askSecure(s, string(pseudonym.NewLabel())+".cloud.example.", dns.TypeA)
		if _, err := m.Pack(); err != nil {
			b.Fatal(err)
		}
	}
}

// Signatures of a clock that was ahead, which resolvers refuse, are replaced when it is right again.
func TestSignsAgainWhenTheClockIsSet(t *testing.T) {
	s, now := server(t, signed(t)), time.Now()
	good := func() bool {
		t.Helper()
		for _, rr := range askSecure(s, "x.cloud.example.", dns.TypeA).Answer {
			if sig, ok := rr.(*dns.RRSIG); ok {
				return sig.ValidityPeriod(now)
			}
		}
		t.Fatal("no signature")
		return false
	}
	for _, jump := range []time.Duration{365 * 24 * time.Hour, -365 * 24 * time.Hour} {
		if err := s.freshen(now.Add(jump)); err != nil {
			t.Fatal(err)
		}
		if good() {
			t.Errorf("a signature of %v is good now", jump)
		}
		if err := s.freshen(now); err != nil {
			t.Fatal(err)
		}
		if !good() {
			t.Errorf("after a jump of %v signatures stay wrong", jump)
		}
	}
}
