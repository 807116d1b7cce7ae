package client

import (
	"crypto/ecdsa"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/errhint"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/ca/catest"
	"heddle/pseudonym/store"
)

func savedForNSS(t *testing.T) *Saved {
	t.Helper()
	_, root := catest.NewIssuer(t, string(zone))
	var key *ecdsa.PrivateKey
	key, err := ca.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	name := zone.Name(pseudonym.NewLabel())
	s, err := save(t.TempDir(), zone, store.Registration{Name: name, Site: "news.example", Root: root.Raw,
		URL: "https://" + name + "/?pseudonym=" + pseudonym.NewCapability().String(), Expires: time.Now().Add(time.Hour)}, key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The tools of NSS find the key, and trust the root, in a new database and in one that is there. No passphrase stays.
func TestNSS(t *testing.T) {
	if err := NSSTools(); err != nil {
		t.Skip("typed skip:", err)
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	dir := filepath.Join(t.TempDir(), "profile")
	for range 2 {
		s := savedForNSS(t)
		for range 2 { // the second time it is there already
			if err := s.WriteNSS(t.Context(), zone, dir); err != nil {
				t.Fatal(err)
			}
		}
		out, err := exec.CommandContext(t.Context(), "certutil", "-L", "-d", "sql:"+dir).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "u,u,u") || !strings.Contains(string(out), "C,,") {
			t.Errorf("%v: %s", err, out)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "certutil", "-K", "-d", "sql:"+dir).CombinedOutput(); err != nil || strings.Count(string(out), "\n< ") != 2 {
		t.Errorf("%v: %s", err, out)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestNSSRefuses(t *testing.T) {
	s := savedForNSS(t)
	t.Run("a password", func(t *testing.T) {
		if err := NSSTools(); err != nil {
			t.Skip("typed skip:", err)
		}
		dir, password := t.TempDir(), filepath.Join(t.TempDir(), "password")
		if err := os.WriteFile(password, []byte("secret of hers\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "certutil", "-N", "-d", "sql:"+dir, "-f", password).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := s.WriteNSS(t.Context(), zone, dir); err == nil || !strings.Contains(err.Error(), "it has a password") || errhint.Of(err) == "" {
			t.Error(err)
		}
	})
	t.Run("no tools", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		if err := s.WriteNSS(t.Context(), zone, t.TempDir()); !errors.Is(err, ErrNoNSS) || !strings.Contains(errhint.Of(err), "libnss3-tools") {
			t.Error(err)
		}
	})
}
