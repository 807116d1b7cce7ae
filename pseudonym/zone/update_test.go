package zone

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"heddle/internal/polltest"
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

// bind runs BIND with an empty zone, which a key may update.
func bind(t *testing.T) (at string) {
	t.Helper()
	named, err := exec.LookPath("named")
	if err != nil { // Debian keeps it out of the PATH of most users
		named, err = exec.LookPath("/usr/sbin/named")
	}
	if err != nil {
		t.Skip("typed skip: no named: apt-get install bind9")
	}
	free := tcptest.Nobody(t)
	at, port := free.String(), free.Port()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"zone": "$TTL 60\n@ SOA ns1.example.net. hostmaster.example.net. 1 3600 600 86400 60\n@ NS ns1.example.net.\nold A 198.51.100.7\n",
		"named.conf": fmt.Sprintf(bindKey, secret) + fmt.Sprintf(`options { directory %q; listen-on port %d { 127.0.0.1; }; listen-on-v6 { none; }; pid-file none; session-keyfile none;
			recursion no; dnssec-validation no; notify no; }; controls {};
			zone "cloud.example" { type primary; file "zone"; allow-update { key "cloud"; }; };
			zone "fixed.example" { type primary; file "fixed"; };`, dir, port),
		"fixed": "$TTL 60\n@ SOA ns1.example.net. hostmaster.example.net. 1 3600 600 86400 60\n@ NS ns1.example.net.\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), named, "-f", "-g", "-n", "1", "-c", filepath.Join(dir, "named.conf"))
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the context ends it
		_ = cmd.Wait()
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("%s", text)
		}
	})
	polltest.Await(t, "BIND answers", func() bool {
		m, err := dns.Exchange(new(dns.Msg).SetQuestion("old.cloud.example.", dns.TypeA), at)
		return err == nil && len(m.Answer) == 1
	})
	return at
}

// BIND answers as the own nameserver does, after each change, and keeps what is its own.
func TestUpdateBIND(t *testing.T) {
	at := bind(t)
	k, err := ReadKey(keyFile(t, bindKey, secret))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ech.NewKey(1, apex.Store(), 40)
	if err != nil {
		t.Fatal(err)
	}
	label := string(pseudonym.NewLabel()) + ".cloud.example."
	for _, s := range []*Server{server(t), server(t, func(o *Options) { o.Gateways = o.Gateways[1:2] }), server(t)} {
		for _, list := range [][]byte{nil, ech.List(key.Config())} {
			if err := s.Publish(list, list); err != nil {
				t.Fatal(err)
			}
			if err := s.Update(t.Context(), at, k); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{label, "store.cloud.example."} {
				for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS} {
					q := new(dns.Msg).SetQuestion(name, kind)
					m, _, err := (&dns.Client{Net: "tcp"}).Exchange(q, at)
					if err != nil || !same(m.Answer, s.Answer(q).Answer) {
						t.Errorf("%v, %v, want %v", m, err, s.Answer(q))
					}
				}
			}
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
	for other, why := range map[pseudonym.Zone]string{"fixed.example": "REFUSED", "other.example": "it takes no update"} {
		if err := server(t, func(o *Options) { o.Zone = other }).Update(t.Context(), at, k); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", other, err)
		}
	}
	if err := server(t).Update(t.Context(), tcptest.Nobody(t).String(), k); err == nil {
		t.Error("nobody is there")
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
