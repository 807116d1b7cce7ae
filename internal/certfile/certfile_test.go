package certfile

import (
	"bytes"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/lab/peer"
)

// pair is a certificate and a key in files.
type pair struct{ cert, key string }

func newPair(t *testing.T, name string) pair {
	t.Helper()
	dir := t.TempDir()
	p := pair{filepath.Join(dir, "certificate.pem"), filepath.Join(dir, "key.pem")}
	if err := peer.SelfSigned(p.cert, p.key, []string{name}, nil); err != nil {
		t.Fatal(err)
	}
	return p
}

// A renewed certificate is used, and one that is half written, or of another name, is not.
func TestRenewal(t *testing.T) {
	const name = "proxy.example"
	old := newPair(t, name)
	c, err := Load(old.cert, old.key, func(leaf *x509.Certificate) error { return leaf.VerifyHostname(name) })
	if err != nil {
		t.Fatal(err)
	}
	now, failed := time.Now(), 0
	c.now, c.Failed = func() time.Time { return now }, func(error) { failed++ }
	copyFile := func(from, to string) {
		t.Helper()
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(2 * checkFiles)
		if err := os.WriteFile(to, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(to, now, now); err != nil {
			t.Fatal(err)
		}
	}
	get := func() []byte {
		t.Helper()
		now = now.Add(2 * checkFiles)
		got, err := c.Get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return got.Certificate[0]
	}
	before, fresh, other := get(), newPair(t, name), newPair(t, "other.example")
	if copyFile(fresh.cert, old.cert); !bytes.Equal(get(), before) || failed == 0 {
		t.Error("a certificate without its key is used")
	}
	copyFile(other.cert, old.cert)
	if copyFile(other.key, old.key); !bytes.Equal(get(), before) {
		t.Error("a certificate of another name is used")
	}
	copyFile(fresh.cert, old.cert)
	if copyFile(fresh.key, old.key); bytes.Equal(get(), before) || c.Leaf().VerifyHostname(name) != nil {
		t.Error("the renewed certificate is not used")
	}
}

func TestLoadRefuses(t *testing.T) {
	good, open := newPair(t, "proxy.example"), newPair(t, "proxy.example")
	if err := os.Chmod(open.key, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cert, key string
		check     func(*x509.Certificate) error
		why       string
	}{
		{open.cert, open.key, nil, "everybody can read it"},
		{good.cert, open.cert + "x", nil, "cannot be read"},
		{open.cert, good.key, nil, "cannot be used"},
		{good.cert, good.key, func(leaf *x509.Certificate) error { return leaf.VerifyHostname("other.example") }, "other.example"},
	} {
		if _, err := Load(c.cert, c.key, c.check); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v", c.why, err)
		}
	}
}
