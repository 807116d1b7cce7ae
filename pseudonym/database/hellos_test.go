package database

import (
	"errors"
	"testing"
	"time"

	"heddle/internal/polltest"
	"heddle/pseudonym"
)

// All processes see the keys for hellos, and those with the seal of gateways alone can use them.
func TestHellos(t *testing.T) {
	both(t, func(t *testing.T, at string) {
		ctx, d, other := t.Context(), open(t, at), open(t, at)
		changes, cancel := other.Watch()
		defer cancel()
		older := int64(-1)
		polltest.Await(t, "another process learns of one", func() bool { // it may not listen yet
			older--
			if err := d.AddHello(ctx, sealOf(t, 2), Hello{Number: older, Config: []byte{0}}); err != nil {
				t.Fatal(err)
			}
			for len(changes) > 0 {
				if c := <-changes; c.Label == pseudonym.Hellos {
					return true
				}
			}
			return false
		})
		if err := d.DropHellos(ctx, 0); err != nil {
			t.Fatal(err)
		}
		for n := range int64(3) {
			h := Hello{Number: n, Config: []byte{byte(n)}, Private: []byte("private"), Created: now.Add(time.Duration(n) * time.Hour)}
			for _, want := range []error{nil, ErrExists} {
				if err := d.AddHello(ctx, sealOf(t, 2), h); !errors.Is(err, want) {
					t.Fatalf("%v, want %v", err, want)
				}
			}
		}
		all, err := other.Hellos(ctx, sealOf(t, 2))
		if err != nil || len(all) != 3 || all[0].Number != 2 || all[0].Config[0] != 2 || string(all[0].Private) != "private" || !all[0].Created.Equal(now.Add(2*time.Hour)) {
			t.Errorf("%+v, %v", all, err)
		}
		if all, err := other.Hellos(ctx, nil); err != nil || len(all) != 3 || len(all[0].Private) > 0 {
			t.Errorf("without a seal: %+v, %v", all, err)
		}
		// The seal of servers' keys is another one.
		if _, err := other.Hellos(ctx, sealOf(t, 1)); !errors.Is(err, ErrSeal) {
			t.Errorf("another seal: %v", err)
		}
		if _, err := d.sql.ExecContext(ctx, `UPDATE hellos SET secret = (SELECT secret FROM hellos WHERE number = 1) WHERE number = 2`); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Hellos(ctx, sealOf(t, 2)); !errors.Is(err, ErrSeal) {
			t.Errorf("a key that was moved: %v", err)
		}
		if err := d.DropHellos(ctx, 2); err != nil {
			t.Fatal(err)
		}
		if all, err := other.Hellos(ctx, nil); err != nil || len(all) != 1 || all[0].Number != 2 {
			t.Errorf("%+v, %v", all, err)
		}
	})
}
