package cloud

import (
	"crypto/x509"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/pseudonym"
	"heddle/pseudonym/ca"
)

const testZone = pseudonym.Zone("cloud.example")

// After a renewal the certificates of before are good with the new chain, and the root's key is not needed in between.
func TestRenew(t *testing.T) {
	dir, now := filepath.Join(t.TempDir(), "cloud"), time.Now()
	if err := Create(dir, testZone, now); err != nil {
		t.Fatal(err)
	}
	if err := Create(dir, testZone, now); err == nil || !strings.Contains(err.Error(), "has keys already") {
		t.Errorf("a second time: %v", err)
	}
	before, root, err := readIssuer(dir, testZone, now)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ca.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := before.Server("a."+string(testZone), key.Public(), now, now.Add(2*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	away := filepath.Join(t.TempDir(), RootKey)
	if err := os.Rename(filepath.Join(dir, RootKey), away); err != nil {
		t.Fatal(err)
	}
	if _, err := Renew(dir, testZone, now); err == nil || !strings.Contains(err.Error(), RootKey) {
		t.Errorf("without the root's key: %v", err)
	}
	if _, _, err := readIssuer(dir, testZone, now); err != nil {
		t.Errorf("the issuer needs the root's key: %v", err)
	}
	if err := os.Rename(away, filepath.Join(dir, RootKey)); err != nil {
		t.Fatal(err)
	}
	later := now.Add(30 * time.Minute)
	until, err := Renew(dir, testZone, later)
	if err != nil || until.Before(later.Add(365*24*time.Hour)) {
		t.Errorf("ends %v, %v", until, err)
	}
	after, _, err := readIssuer(dir, testZone, later)
	if err != nil {
		t.Fatal(err)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(root)
	for _, der := range after.Chain() {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		between.AddCert(c)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{DNSName: "a." + string(testZone), Roots: roots, Intermediates: between, CurrentTime: later.Add(time.Minute)}); err != nil {
		t.Errorf("a certificate of before: %v", err)
	}
	for _, name := range []string{RootKey, IssuingKey, DatabaseKey} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

func TestDamagedFiles(t *testing.T) {
	for name, why := range map[string]string{IssuingKey: "PEM", Issuing: "there is none in it", DatabaseKey: "it cannot be read"} {
		dir := filepath.Join(t.TempDir(), "cloud")
		if err := Create(dir, testZone, time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		o := Options{Zone: testZone, Dir: dir, Database: filepath.Join(dir, "pseudonyms.db")}
		if _, err := Open(t.Context(), o, Parts{Store: true}); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each part gets the keys that it needs, and a machine without the others can run it.
func TestKeysOfParts(t *testing.T) {
	whole := t.TempDir()
	if err := Create(whole, testZone, time.Now()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		parts Parts
		files []string
	}{
		"gateway": {Parts{Gateway: true}, nil},
		"linker":  {Parts{Linker: true}, []string{IssuingKey, Issuing}},
		"store":   {Parts{Store: true}, []string{IssuingKey, Issuing, DatabaseKey}},
		"none":    {Parts{}, nil},
	} {
		for leave := range len(c.files) + 1 { // the last time all are there
			dir := t.TempDir()
			for i, file := range c.files {
				if i == leave {
					continue
				}
				content, err := os.ReadFile(filepath.Join(whole, file))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cloud, err := Open(t.Context(), Options{Zone: testZone, Dir: dir, Database: filepath.Join(dir, "db"), Log: slog.New(slog.DiscardHandler)}, c.parts)
			if (err == nil) != (leave == len(c.files)) {
				t.Errorf("%s without file %d of %v: %v", name, leave, c.files, err)
			}
			if err == nil {
				cloud.Close()
			}
		}
	}
}

// Without a key a zone is served, and is not signed.
func TestZoneKey(t *testing.T) {
	dir := t.TempDir()
	if err := Create(dir, testZone, time.Now()); err != nil {
		t.Fatal(err)
	}
	o := Options{Zone: testZone, Dir: dir, Gateways: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Log: slog.New(slog.DiscardHandler)}
	for _, signed := range []bool{true, false} {
		z, err := newZone(o, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if ds, err := z.DS(); err != nil || (ds != "") != signed {
			t.Errorf("%q, %v", ds, err)
		}
		if err := os.Remove(filepath.Join(dir, ZoneKey)); signed && err != nil {
			t.Error(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, ZoneKey), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newZone(o, nil, nil); err == nil {
		t.Error("a damaged key is as none")
	}
}
