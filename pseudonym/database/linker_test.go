package database

import (
	"errors"
	"testing"
	"time"

	"heddle/pseudonym"
	"heddle/pseudonym/ca"
)

func TestTrust(t *testing.T) {
	both(t, func(t *testing.T, at string) {
		ctx, d := t.Context(), open(t, at)
		for i, site := range []string{"a.example", "b.example"} {
			if err := d.AddTenant(ctx, Tenant{Site: site, Client: ca.KeyID{byte(i)}, Created: now}); err != nil {
				t.Fatal(err)
			}
		}
		for i, c := range []struct{ put, yes, no []string }{
			{[]string{"b.example", "c.example", "b.example"}, []string{"b.example", "c.example"}, []string{"a.example", "d.example", ""}},
			{[]string{"d.example"}, []string{"d.example"}, []string{"b.example"}},
			{nil, nil, []string{"d.example"}},
		} {
			if err := d.PutTrust(ctx, "a.example", c.put); err != nil {
				t.Fatal(err)
			}
			for want, all := range map[bool][]string{true: c.yes, false: c.no} {
				for _, referrer := range all {
					if got, err := d.Trusts(ctx, "a.example", referrer); err != nil || got != want {
						t.Errorf("%d: %s: %v, %v", i, referrer, got, err)
					}
				}
			}
			if got, err := d.Trusts(ctx, "b.example", "a.example"); err != nil || got {
				t.Errorf("%d: the other way: %v, %v", i, got, err)
			}
		}
		if err := d.PutTrust(ctx, "none.example", []string{"a.example"}); err == nil {
			t.Error("a site that is not there trusts somebody")
		}
		if err := d.PutTrust(ctx, "a.example", []string{"b.example"}); err != nil {
			t.Fatal(err)
		}
		if err := d.RemoveTenant(ctx, "a.example"); err != nil {
			t.Errorf("a tenant with trust cannot be removed: %v", err)
		}
	})
}

func TestOwnersOfKeys(t *testing.T) {
	both(t, func(t *testing.T, at string) {
		ctx, d := t.Context(), open(t, at)
		for i, site := range []string{"a.example", "b.example"} {
			if err := d.AddTenant(ctx, Tenant{Site: site, Client: ca.KeyID{byte(i)}, Created: now}); err != nil {
				t.Fatal(err)
			}
		}
		owner, key := pseudonym.NewOwner(), ca.KeyID{7}
		add := func(site string, edit func(*Pseudonym)) Pseudonym {
			p := sample(site, owner)
			p.Client = key
			edit(&p)
			if err := d.Add(ctx, p); err != nil {
				t.Fatal(err)
			}
			return p
		}
		old := add("a.example", func(p *Pseudonym) { p.Created = now.Add(-time.Hour) })
		newest := add("a.example", func(*Pseudonym) {})
		add("a.example", func(p *Pseudonym) {
			p.Owner, p.Client, p.Created = pseudonym.NewOwner(), ca.KeyID{8}, now.Add(time.Minute)
		})
		add("b.example", func(p *Pseudonym) { p.Expires = now })
		if got, err := d.OwnerOf(ctx, "a.example", key, now); err != nil || got != owner {
			t.Errorf("%v, %v", got, err)
		}
		if got, err := d.OwnedOf(ctx, owner, "a.example", now); err != nil || got.Label != newest.Label {
			t.Errorf("%+v, %v", got, err)
		}
		if err := d.Revoke(ctx, newest.Label, now); err != nil {
			t.Fatal(err)
		}
		if got, err := d.OwnedOf(ctx, owner, "a.example", now); err != nil || got.Label != old.Label {
			t.Errorf("after revocation: %+v, %v", got, err)
		}
		if err := d.Revoke(ctx, old.Label, now); err != nil {
			t.Fatal(err)
		}
		for name, err := range map[string]error{
			"revoked":         second(d.OwnerOf(ctx, "a.example", key, now)),
			"revoked, newest": second(d.OwnedOf(ctx, owner, "a.example", now)),
			"ended":           second(d.OwnerOf(ctx, "b.example", key, now)),
			"ended, newest":   second(d.OwnedOf(ctx, owner, "b.example", now)),
			"another key":     second(d.OwnerOf(ctx, "a.example", ca.KeyID{9}, now)),
			"another person":  second(d.OwnedOf(ctx, pseudonym.NewOwner(), "a.example", now)),
			"another site":    second(d.OwnerOf(ctx, "c.example", key, now)),
		} {
			if !errors.Is(err, pseudonym.ErrNone) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }
