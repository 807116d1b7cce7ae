package connectudp

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"heddle/path/masque"
)

func TestSelfSigned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	first, err := SelfSigned(dir, []string{"proxy.example", "192.0.2.9"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"proxy.example", "192.0.2.9"} {
		if err := first.Leaf().VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	again, err := SelfSigned(dir, []string{"another.example"})
	if err != nil || masque.Pin(again.Leaf()) != masque.Pin(first.Leaf()) {
		t.Errorf("the key is another one at the second start: %v", err)
	}
	key := filepath.Join(dir, "key.pem")
	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := SelfSigned(dir, nil); err == nil {
		t.Error("a key that everybody can read is used")
	}
}

// A renewed certificate is used, and one that is half written is not.
func TestCertificateIsRenewed(t *testing.T) {
	old, fresh := filepath.Join(t.TempDir(), "old"), filepath.Join(t.TempDir(), "fresh")
	c, err := SelfSigned(old, []string{"proxy.example"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := SelfSigned(fresh, []string{"proxy.example"}); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	c.now = func() time.Time { return now }
	pin := masque.Pin(c.Leaf())
	copyFile := func(name string, mode os.FileMode) {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(fresh, name))
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(2 * checkFiles)
		to := filepath.Join(old, name)
		if err := os.WriteFile(to, data, mode); err != nil {
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
	before := get()
	copyFile("certificate.pem", 0o600)
	if !bytes.Equal(get(), before) {
		t.Error("a certificate without its key is used")
	}
	copyFile("key.pem", 0o600)
	if bytes.Equal(get(), before) || masque.Pin(c.Leaf()) == pin {
		t.Error("the renewed certificate is not used")
	}
}
