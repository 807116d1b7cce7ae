package database

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"heddle/internal/errhint"
	"heddle/pseudonym"
)

// filled returns the file of a database with many pseudonyms.
func filled(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "pseudonyms.db")
	d := open(t, file)
	if err := d.AddTenant(t.Context(), Tenant{Site: "a.example", Created: now}); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		if err := d.Add(t.Context(), sample("a.example", pseudonym.NewOwner())); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(d.Check(t.Context()), d.Close()); err != nil {
		t.Fatal(err)
	}
	return file
}

// A damaged file is named, and stays as it is for those who want to recover something.
func TestDamagedFile(t *testing.T) {
	for name, harm := range map[string]func(b []byte) []byte{
		"truncated": func(b []byte) []byte { return b[:len(b)/2] },
		"cut short": func(b []byte) []byte { return b[:1000] },
		"garbage":   func(b []byte) []byte { return bytes.Repeat([]byte("garbage "), len(b)/8) },
		"a page": func(b []byte) []byte {
			for i := len(b) / 2 &^ 4095; i < len(b)-4096; i++ {
				b[i] = 0xa5
			}
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := filled(t)
			before, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			before = harm(before)
			if err := os.WriteFile(file, before, 0o600); err != nil {
				t.Fatal(err)
			}
			d, err := Open(t.Context(), file, sealOf(t, 1), quiet)
			if err == nil {
				err = errors.Join(d.Check(t.Context()))
				if closing := d.Close(); closing != nil {
					t.Error(closing)
				}
			}
			if err == nil || !strings.Contains(err.Error(), "its file is damaged") || !strings.Contains(errhint.Of(err), "backup") {
				t.Errorf("%v", err)
			}
			if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, before) {
				t.Errorf("the file changed, %v", err)
			}
		})
	}
}
