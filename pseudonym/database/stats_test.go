package database

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"heddle/pseudonym"
	"heddle/pseudonym/ca"
)

func TestStats(t *testing.T) {
	both(t, func(t *testing.T, at string) {
		ctx, d := t.Context(), open(t, at)
		for i, site := range []string{"b.example", "a.example", "c.example"} {
			if err := d.AddTenant(ctx, Tenant{Site: site, Client: ca.KeyID{byte(i)}, Created: now}); err != nil {
				t.Fatal(err)
			}
		}
		alice := pseudonym.NewOwner()
		for _, c := range []struct {
			site  string
			owner pseudonym.Owner
			edit  func(*Pseudonym)
		}{
			{"a.example", alice, func(*Pseudonym) {}}, {"a.example", alice, func(*Pseudonym) {}}, {"a.example", pseudonym.NewOwner(), func(*Pseudonym) {}},
			{"a.example", pseudonym.NewOwner(), func(p *Pseudonym) { p.Expires = now }}, {"b.example", alice, func(p *Pseudonym) { p.Expires = now }},
		} {
			p := sample(c.site, c.owner)
			c.edit(&p)
			if err := d.Add(ctx, p); err != nil {
				t.Fatal(err)
			}
		}
		gone := sample("b.example", alice)
		if err := errors.Join(d.Add(ctx, gone), d.Revoke(ctx, gone.Label, now)); err != nil {
			t.Fatal(err)
		}
		want := []SiteStats{{"a.example", 3, 1, 0, 2}, {"b.example", 0, 1, 1, 0}, {"c.example", 0, 0, 0, 0}}
		if got, err := d.Stats(ctx, now); err != nil || !slices.Equal(got, want) {
			t.Errorf("%+v, want %+v (%v)", got, want, err)
		}
	})
}

func TestCopy(t *testing.T) {
	both(t, func(t *testing.T, at string) {
		ctx, d := t.Context(), open(t, at)
		if err := d.AddTenant(ctx, Tenant{Site: "a.example", Created: now}); err != nil {
			t.Fatal(err)
		}
		p := sample("a.example", pseudonym.NewOwner())
		if err := d.Add(ctx, p); err != nil {
			t.Fatal(err)
		}
		visit := moveOf("198.51.100.2:50000", 2)
		if err := d.PutMoves(ctx, "switch", []Move{visit}); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "copy.db")
		err := d.Copy(ctx, file)
		if d.pool != nil {
			if !errors.Is(err, ErrNoCopy) {
				t.Error(err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		if text, err := os.ReadFile(file); err != nil || bytes.Contains(text, []byte(visit.Client.String())) {
			t.Errorf("the copy says who visits whom, %v", err)
		}
		if got, err := open(t, file).Get(ctx, p.Label); err != nil || string(got.Key) != string(p.Key) {
			t.Errorf("%+v, %v", got, err)
		}
		if err := d.Copy(ctx, file); !errors.Is(err, fs.ErrExist) {
			t.Errorf("over a copy that is there: %v", err)
		}
		if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) > 3 { // SQLite's own files are beside it
			t.Errorf("%v, %v", left, err)
		}
	})
}

// Without the seal nobody reads or adds keys of servers.
func TestWithoutSeal(t *testing.T) {
	ctx, at := t.Context(), filepath.Join(t.TempDir(), "pseudonyms.db")
	d := open(t, at)
	p := sample("a.example", pseudonym.NewOwner())
	if err := errors.Join(d.AddTenant(ctx, Tenant{Site: "a.example", Created: now}), d.Add(ctx, p)); err != nil {
		t.Fatal(err)
	}
	bare, err := Open(ctx, at, nil, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	if got, err := bare.Get(ctx, p.Label); err != nil || got.Key != nil || got.Capability != p.Capability {
		t.Errorf("%+v, %v", got, err)
	}
	if err := bare.Add(ctx, sample("a.example", pseudonym.NewOwner())); err == nil {
		t.Error("a key is added that nothing protects")
	}
}
