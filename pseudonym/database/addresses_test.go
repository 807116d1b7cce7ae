package database

import (
	"errors"
	"maps"
	"testing"
	"time"

	"heddle/internal/polltest"
	"heddle/pseudonym"
	"heddle/pseudonym/address"
	"heddle/pseudonym/ca"
)

func TestAddressKeys(t *testing.T) {
	both(t, func(t *testing.T, at string) {
		ctx, d, other := t.Context(), open(t, at), open(t, at)
		changes, cancel := other.Watch()
		defer cancel()
		keys := map[int64]address.Key{}
		for n := int64(1); n <= 5; n++ {
			k := AddressKey{Number: n, Key: address.NewKey(), Created: now.Add(time.Duration(n) * time.Hour)}
			keys[n] = k.Key
			for _, want := range []error{nil, ErrExists} {
				if err := d.AddAddressKey(ctx, sealOf(t, 2), k); !errors.Is(err, want) {
					t.Fatalf("%v, want %v", err, want)
				}
			}
		}
		if err := d.DropAddressKeys(ctx, 2, 4); err != nil {
			t.Fatal(err)
		}
		all, err := other.AddressKeys(ctx, sealOf(t, 2))
		if err != nil || len(all) != 3 || all[0].Number != 4 || all[2].Key != keys[2] || !all[0].Created.Equal(now.Add(4*time.Hour)) {
			t.Errorf("%+v, %v", all, err)
		}
		if _, err := other.AddressKeys(ctx, sealOf(t, 1)); !errors.Is(err, ErrSeal) {
			t.Errorf("another seal: %v", err)
		}
		number := int64(100)
		polltest.Await(t, "another process learns of one", func() bool { // it may not listen yet
			number++
			if err := d.AddAddressKey(ctx, sealOf(t, 2), AddressKey{Number: number}); err != nil {
				t.Fatal(err)
			}
			for len(changes) > 0 {
				if c := <-changes; c.Label == pseudonym.Addresses {
					return true
				}
			}
			return false
		})
	})
}

func TestNumbers(t *testing.T) {
	both(t, func(t *testing.T, at string) {
		ctx, d := t.Context(), open(t, at)
		for i, site := range []string{"a.example", "b.example"} {
			if err := d.AddTenant(ctx, Tenant{Site: site, Client: ca.KeyID{byte(i)}, Created: now}); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct {
			site   string
			number uint16
			want   error
		}{{"a.example", 65535, nil}, {"b.example", 65535, ErrExists}, {"a.example", 1, ErrExists}, {"b.example", 1, nil}} {
			if err := d.AddNumber(ctx, c.site, c.number); !errors.Is(err, c.want) {
				t.Errorf("%s, %d: %v", c.site, c.number, err)
			}
		}
		for _, want := range []map[string]uint16{{"a.example": 65535, "b.example": 1}, {"b.example": 1}} {
			if got, err := d.Numbers(ctx); err != nil || !maps.Equal(got, want) {
				t.Errorf("%v, %v", got, err)
			}
			if err := d.RemoveTenant(ctx, "a.example"); err != nil && !errors.Is(err, pseudonym.ErrNone) {
				t.Fatal(err)
			}
		}
		if d.AddNumber(ctx, "none.example", 2) == nil || d.AddNumber(ctx, "b.example", 0) == nil {
			t.Error("a site that is not there, or the gateway's number, was taken")
		}
	})
}
