package database

import (
	"errors"
	"testing"
	"time"

	"heddle/pseudonym"
	"heddle/pseudonym/ca"
)

// A proof of work counts once, and a key too.
func TestLimits(t *testing.T) {
	both(t, func(t *testing.T, at string) {
		ctx, one, two := t.Context(), open(t, at), open(t, at)
		id := []byte("a proof of work")
		if err := one.Spend(ctx, id, now.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if err := two.Spend(ctx, id, now.Add(time.Minute)); !errors.Is(err, ErrExists) {
			t.Errorf("another process takes it again: %v", err)
		}
		if _, err := one.Forget(ctx, now, now.Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if err := one.Spend(ctx, id, now); !errors.Is(err, ErrExists) {
			t.Errorf("forgotten too early: %v", err)
		}
		if _, err := one.Forget(ctx, now, now.Add(2*time.Minute)); err != nil {
			t.Fatal(err)
		}
		if err := one.Spend(ctx, id, now); err != nil {
			t.Errorf("kept for ever: %v", err)
		}
		if err := one.AddTenant(ctx, Tenant{Site: "a.example", Created: now}); err != nil {
			t.Fatal(err)
		}
		p := sample("a.example", pseudonym.NewOwner())
		if err := one.Add(ctx, p); err != nil {
			t.Fatal(err)
		}
		for key, want := range map[ca.KeyID]bool{p.Client: true, {77}: false} {
			if got, err := two.Used(ctx, key, p.Owner); err != nil || got {
				t.Errorf("%v of the same person: %v, %v", key, got, err)
			}
			if got, err := two.Used(ctx, key, pseudonym.NewOwner()); err != nil || got != want {
				t.Errorf("%v: %v, %v", key, got, err)
			}
		}
	})
}
