package database

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"heddle/pseudonym"
)

func TestCounted(t *testing.T) {
	both(t, func(t *testing.T, at string) {
		ctx, d := t.Context(), open(t, at)
		if got, err := d.Counted(ctx); err != nil || !got.IsZero() {
			t.Errorf("of a new database: %v, %v", got, err)
		}
		for _, c := range []struct{ to, clock, want time.Duration }{
			{to: 5 * time.Hour, clock: time.Hour, want: time.Hour}, // the first, and of a clock that is behind
			{to: 2 * time.Hour, clock: 9 * time.Hour, want: 2 * time.Hour},
			{to: time.Hour, clock: 9 * time.Hour, want: 2 * time.Hour}, // another store was faster
			{to: 3 * time.Hour, clock: 3 * time.Hour, want: 3 * time.Hour},
			{to: 2 * time.Hour, clock: 3 * time.Hour, want: 3 * time.Hour},
			{to: time.Hour, clock: 2 * time.Hour, want: 2 * time.Hour}, // the clock went back
			{to: 7 * time.Hour, clock: 8 * time.Hour, want: 7 * time.Hour},
		} {
			said, err := d.Advance(ctx, now.Add(c.to), now.Add(c.clock))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := d.Counted(ctx); err != nil || !got.Equal(now.Add(c.want)) || !said.Equal(got) {
				t.Errorf("%+v: %v, and it says %v, %v", c, got.Sub(now), said.Sub(now), err)
			}
		}
		// Of stores that count at the same moment the fastest wins.
		var all errgroup.Group
		for i := range 20 {
			all.Go(func() error {
				_, err := d.Advance(ctx, now.Add(time.Duration(100-i)*time.Hour), now.Add(100*time.Hour))
				return err
			})
		}
		if err := all.Wait(); err != nil {
			t.Fatal(err)
		}
		if got, err := d.Counted(ctx); err != nil || !got.Equal(now.Add(100*time.Hour)) {
			t.Errorf("after %v, %v", got.Sub(now), err)
		}
	})
}

// A store reads only the rows that it deletes, or that are new.
func TestIndexes(t *testing.T) {
	both(t, func(t *testing.T, at string) {
		ctx, d := t.Context(), open(t, at)
		explain, plans := "EXPLAIN QUERY PLAN ", map[string]string{forgetEnded: "pseudonyms_by_end", forgetRevoked: "pseudonyms_by_revocation",
			strings.NewReplacer("$1", "'a'", "$2", "1", "$3", "1", "$4", "1").Replace(holders): "pseudonyms_by_creation"}
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
			if err := errors.Join(rows.Err(), rows.Close()); err != nil || !strings.Contains(plan.String(), index) || strings.Contains(plan.String(), "Sort") || strings.Contains(plan.String(), "TEMP B-TREE") {
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
