package connectudp

import (
	"os"
	"path/filepath"
	"testing"

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
