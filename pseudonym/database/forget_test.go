package database

import (
	"testing"
	"time"

	"heddle/pseudonym"
)

// What is deleted by its age does not follow a clock that leaps.
func TestClockDoesNotLeap(t *testing.T) {
	both(t, func(t *testing.T, at string) {
		d := open(t, at)
		const step = 24 * time.Hour
		for i, c := range []struct {
			now  time.Time
			most time.Duration
			want time.Time
		}{
			{now, 0, now.Add(-step)},                             // it begins
			{now, 0, now.Add(-step)},                             // another store begins
			{now, step / 2, now.Add(-step / 2)},                  // it follows
			{now, step, now},                                     // never beyond the clock
			{now.Add(400 * 24 * time.Hour), step, now.Add(step)}, // a leap
			{now.Add(time.Hour), step, now.Add(step)},            // back again
			{now.Add(2 * step), step, now.Add(2 * step)},
		} {
			if got, err := d.Clock(t.Context(), now.Add(-step), c.now, c.most); err != nil || !got.Equal(c.want) {
				t.Errorf("call %d: %v, %v, want %v", i, got, err, c.want)
			}
		}
	})
}

func TestClockBeginsNow(t *testing.T) {
	d := open(t, t.TempDir()+"/pseudonyms.db")
	if got, err := d.Clock(t.Context(), now.Add(time.Hour), now, 0); err != nil || !got.Equal(now) {
		t.Errorf("%v, %v", got, err)
	}
}

// What ended is found without a look at all rows.
func TestForgetByIndex(t *testing.T) {
	d := open(t, t.TempDir()+"/pseudonyms.db")
	for _, ended := range []string{`expires < 1`, `revoked <> 0 AND revoked < 1`} {
		var id, parent, unused int
		var plan string
		if err := d.sql.QueryRowContext(t.Context(), `EXPLAIN QUERY PLAN DELETE FROM pseudonyms WHERE `+ended).Scan(&id, &parent, &unused, &plan); err != nil || plan[:6] != "SEARCH" {
			t.Errorf("%s: %q, %v", ended, plan, err)
		}
	}
	if err := d.AddTenant(t.Context(), Tenant{Site: "a.example", Created: now}); err != nil {
		t.Fatal(err)
	}
	p := sample("a.example", pseudonym.NewOwner())
	if err := d.Add(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if n, err := d.Forget(t.Context(), p.Expires, now); err != nil || n != 0 {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := d.Forget(t.Context(), p.Expires.Add(time.Second), now); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
}
