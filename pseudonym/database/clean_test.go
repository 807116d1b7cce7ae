package database

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"heddle/pseudonym"
)

func TestCounted(t *testing.T) {
	both(t, func(t *testing.T, at string) {
		ctx, d := t.Context(), open(t, at)
		if got, err := d.Counted(ctx); err != nil || !got.IsZero() {
			t.Errorf("of a new database: %v, %v", got, err)
		}
		for _, want := range []time.Time{now, now.Add(-time.Hour)} {
			if err := d.PutCounted(ctx, want); err != nil {
				t.Fatal(err)
			}
			if got, err := d.Counted(ctx); err != nil || !got.Equal(want) {
				t.Errorf("%v, %v", got, err)
			}
		}
	})
}

// A store reads only the rows that it deletes.
func TestForgetHasIndexes(t *testing.T) {
	both(t, func(t *testing.T, at string) {
		ctx, d := t.Context(), open(t, at)
		explain, plans := "EXPLAIN QUERY PLAN ", map[string]string{forgetEnded: "pseudonyms_by_end", forgetRevoked: "pseudonyms_by_revocation"}
		c, err := d.sql.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if d.pool != nil { // it reads an empty table as a whole otherwise
			explain = "EXPLAIN "
			if _, err := c.ExecContext(ctx, `SET enable_seqscan = off`); err != nil {
				t.Fatal(err)
			}
		}
		for statement, index := range plans {
			rows, err := c.QueryContext(ctx, explain+strings.ReplaceAll(statement, "$1", "1000"))
			if err != nil {
				t.Fatal(err)
			}
			names, err := rows.Columns()
			if err != nil {
				t.Fatal(err)
			}
			var plan strings.Builder
			for rows.Next() {
				row := make([]any, len(names))
				for i := range row {
					row[i] = new(any)
				}
				if err := rows.Scan(row...); err != nil {
					t.Fatal(err)
				}
				fmt.Fprintln(&plan, *row[len(row)-1].(*any))
			}
			if err := errors.Join(rows.Err(), rows.Close()); err != nil || !strings.Contains(plan.String(), index) {
				t.Errorf("%s: %v\n%s", statement, err, &plan)
			}
		}
	})
}

func TestEnding(t *testing.T) {
	both(t, func(t *testing.T, at string) {
		ctx, d := t.Context(), open(t, at)
		for i, site := range []string{"store.example", "a.example"} {
			if err := d.AddTenant(ctx, Tenant{Site: site, Client: [32]byte{byte(i)}, Created: now}); err != nil {
				t.Fatal(err)
			}
		}
		add := func(site string, o pseudonym.Owner, end time.Duration) pseudonym.Label {
			p := sample(site, o)
			p.Expires = now.Add(end)
			if err := d.Add(ctx, p); err != nil {
				t.Fatal(err)
			}
			return p.Label
		}
		want := map[pseudonym.Label]bool{}
		for name, c := range map[string]struct {
			own, other time.Duration
			revoked    bool
			ends       bool
		}{
			"soon":         {own: time.Hour, other: time.Hour, ends: true},
			"ended":        {own: -time.Hour, other: time.Hour, ends: true},
			"long ago":     {own: -100 * time.Hour, other: time.Hour},
			"later":        {own: 100 * time.Hour, other: time.Hour},
			"no other one": {own: time.Hour, other: -time.Hour},
			"revoked":      {own: time.Hour, other: time.Hour, revoked: true},
		} {
			o := pseudonym.NewOwner()
			l := add("store.example", o, c.own)
			add("a.example", o, c.other)
			if want[l] = c.ends; c.revoked {
				if err := d.Revoke(ctx, l, now); err != nil {
					t.Fatal(name, err)
				}
			}
		}
		all, err := d.Ending(ctx, "store.example", now.Add(-10*time.Hour), now.Add(10*time.Hour), now, 10)
		if err != nil || len(all) != 2 {
			t.Errorf("%d, %v", len(all), err)
		}
		for _, p := range all {
			if !want[p.Label] {
				t.Errorf("one that ends %v", p.Expires.Sub(now))
			}
		}
		if all, err := d.Ending(ctx, "store.example", now.Add(-10*time.Hour), now.Add(10*time.Hour), now, 1); err != nil || len(all) != 1 {
			t.Errorf("%d, %v", len(all), err)
		}
	})
}
