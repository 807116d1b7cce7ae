package database

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"syscall"
	"testing"
	"time"

	"heddle/internal/pgtest"
	"heddle/internal/polltest"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
)

var (
	now   = time.Unix(1_800_000_000, 0)
	quiet = slog.New(slog.DiscardHandler)
)

func sealOf(t *testing.T, b byte) *Seal {
	t.Helper()
	s, err := NewSeal(bytes.Repeat([]byte{b}, SealKeySize))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func open(t *testing.T, at string) *DB {
	t.Helper()
	d, err := Open(t.Context(), at, sealOf(t, 1), quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// both runs a test on both kinds of database.
func both(t *testing.T, test func(t *testing.T, at string)) {
	t.Run("SQLite", func(t *testing.T) { test(t, filepath.Join(t.TempDir(), "pseudonyms.db")) })
	t.Run("PostgreSQL", func(t *testing.T) { test(t, pgtest.Start(t).Database(t)) })
}

func sample(site string, owner pseudonym.Owner) Pseudonym {
	return Pseudonym{Label: pseudonym.NewLabel(), Site: site, Owner: owner, Capability: pseudonym.NewCapability(), Client: ca.KeyID{1, 2}, Certificate: []byte{0x30, 0},
		Key: []byte("the key of a server"), Created: now, Expires: now.Add(time.Hour)}
}

func TestDatabase(t *testing.T) {
	both(t, func(t *testing.T, at string) {
		ctx, d := t.Context(), open(t, at)
		a := Tenant{Site: "a.example", Addresses: []string{"192.0.2.1:443", "192.0.2.3:443"}, Client: ca.KeyID{9}, Created: now}
		for i, want := range []error{nil, ErrExists} {
			if err := d.AddTenant(ctx, a); !errors.Is(err, want) {
				t.Errorf("tenant, try %d: %v", i, err)
			}
		}
		if err := d.AddTenant(ctx, Tenant{Site: "b.example", Addresses: []string{"192.0.2.2:443"}, Created: now}); err != nil {
			t.Fatal(err)
		}
		moved := a
		moved.Addresses = []string{"192.0.2.9:443"}
		for _, one := range []Tenant{moved, a} {
			if err := d.PutTenant(ctx, one); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := d.Tenant(ctx, "a.example"); err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := d.Tenant(ctx, "c.example"); !errors.Is(err, pseudonym.ErrNone) {
			t.Error(err)
		}
		owner := pseudonym.NewOwner()
		p, other := sample("a.example", owner), sample("b.example", owner)
		for _, one := range []Pseudonym{p, other, sample("a.example", pseudonym.NewOwner())} {
			if err := d.Add(ctx, one); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Add(ctx, p); !errors.Is(err, ErrExists) {
			t.Errorf("a label twice: %v", err)
		}
		if err := d.Add(ctx, sample("nobody.example", owner)); err == nil {
			t.Error("a pseudonym of no tenant")
		}
		got, err := d.Get(ctx, p.Label)
		if err != nil || !bytes.Equal(got.Key, p.Key) || got.Site != p.Site || got.Owner != owner || got.Capability != p.Capability || got.Client != p.Client ||
			!got.Expires.Equal(p.Expires) || !got.Valid(now) || got.Valid(p.Expires) {
			t.Errorf("%+v, %v", got, err)
		}
		if all, err := d.Owned(ctx, owner); err != nil || len(all) != 2 {
			t.Errorf("%d of the owner, %v", len(all), err)
		}
		valid := func(at time.Time, want map[pseudonym.Label]string) {
			t.Helper()
			many := []pseudonym.Label{p.Label}
			for range validAtOnce {
				many = append(many, pseudonym.NewLabel())
			}
			if got, err := d.Valid(ctx, append(many, other.Label), at); err != nil || !maps.Equal(got, want) {
				t.Errorf("valid are %v, %v; want %v", got, err, want)
			}
		}
		valid(now, map[pseudonym.Label]string{p.Label: "a.example", other.Label: "b.example"})
		valid(p.Expires, map[pseudonym.Label]string{})
		has := func(l pseudonym.Label, at time.Time, want bool) {
			t.Helper()
			if to, err := d.Route(ctx, l, at); (err == nil) != want || !want && !errors.Is(err, pseudonym.ErrNone) || want && (!reflect.DeepEqual(to.Tenant, a) || !at.Before(to.Until)) {
				t.Errorf("leads to %+v, %v", to, err)
			}
		}
		has(p.Label, now, true)
		has(p.Label, p.Expires, false)
		has(pseudonym.NewLabel(), now, false)
		if err := d.Renew(ctx, p.Label, []byte{0x30, 1}, now.Add(2*time.Hour)); err != nil {
			t.Fatal(err)
		}
		has(p.Label, p.Expires, true)
		if err := d.Revoke(ctx, p.Label, now); err != nil {
			t.Fatal(err)
		}
		has(p.Label, now, false)
		valid(now, map[pseudonym.Label]string{other.Label: "b.example"})
		if n, all, err := d.Count(ctx, owner); err != nil || n != 1 || all != 2 {
			t.Errorf("%d, %v", n, err)
		}
		for name, err := range map[string]error{"revoke": d.Revoke(ctx, p.Label, now), "renew": d.Renew(ctx, p.Label, nil, now)} {
			if !errors.Is(err, pseudonym.ErrNone) {
				t.Errorf("%s again: %v", name, err)
			}
		}
		if n, err := d.Forget(ctx, now.Add(30*time.Minute), now); err != nil || n != 1 {
			t.Errorf("%d forgotten, %v", n, err)
		}
		if err := d.RemoveTenant(ctx, "b.example"); err != nil {
			t.Fatal(err)
		}
		has(other.Label, now, false)
		if all, err := d.Tenants(ctx); err != nil || len(all) != 1 {
			t.Errorf("%+v, %v", all, err)
		}
		if err := d.RemoveTenant(ctx, "b.example"); !errors.Is(err, pseudonym.ErrNone) {
			t.Error(err)
		}
	})
}

func TestKeysAreSealed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pseudonyms.db")
	d := open(t, file)
	if err := d.AddTenant(t.Context(), Tenant{Site: "a.example", Created: now}); err != nil {
		t.Fatal(err)
	}
	p, q := sample("a.example", pseudonym.NewOwner()), sample("a.example", pseudonym.NewOwner())
	if err := errors.Join(d.Add(t.Context(), p), d.Add(t.Context(), q)); err != nil {
		t.Fatal(err)
	}
	// An attacker who can write to the database moves a key to another pseudonym.
	if _, err := d.sql.Exec(`UPDATE pseudonyms SET secret = (SELECT secret FROM pseudonyms WHERE label = $1) WHERE label = $2`, p.Label, q.Label); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Get(t.Context(), q.Label); err == nil {
		t.Error("a key of another pseudonym is taken")
	}
	d.Close()
	for _, end := range []string{"", "-wal"} {
		if text, err := os.ReadFile(file + end); err == nil && bytes.Contains(text, p.Key) {
			t.Errorf("the file%s has a key in clear", end)
		}
	}
	d, err := Open(t.Context(), file, sealOf(t, 2), quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Get(t.Context(), p.Label); !errors.Is(err, ErrSeal) {
		t.Error(err)
	}
}

// Two processes share a PostgreSQL, which is away for a while.
func TestChangesReachOtherProcesses(t *testing.T) {
	server := pgtest.Start(t)
	at := server.Database(t)
	one := open(t, at)
	if err := one.AddTenant(t.Context(), Tenant{Site: "a.example", Created: now}); err != nil {
		t.Fatal(err)
	}
	two := open(t, at) // after the tenant came, which is a change too
	changes, cancel := two.Watch()
	defer cancel()
	polltest.Await(t, "both listen, and have asked whether they do", func() (ok bool) {
		return two.sql.QueryRowContext(t.Context(), `SELECT count(*) = 2 FROM pg_stat_activity WHERE query LIKE 'NOTIFY %'`).Scan(&ok) == nil && ok
	})
	for len(changes) > 0 { // that it began to listen, if it did so after Watch
		<-changes
	}
	p := sample("a.example", pseudonym.NewOwner())
	if err := errors.Join(one.Add(t.Context(), p), one.Renew(t.Context(), p.Label, p.Certificate, p.Expires)); err != nil {
		t.Fatal(err)
	}
	if c := <-changes; c.Label != p.Label {
		t.Errorf("%+v", c)
	}
	server.Stop(t)
	if _, err := two.Get(t.Context(), p.Label); err == nil {
		t.Error("a database that is gone answers")
	}
	for range 3 { // while nobody can tell of changes, watchers have to ask
		if c := <-changes; c.Label != "" {
			t.Errorf("%+v", c)
		}
	}
	server.Restart(t)
	polltest.Await(t, "a revocation", func() bool { return one.Revoke(t.Context(), p.Label, now) == nil })
	for said := ""; said != string(p.Label); { // if it was made before the other process listened again, that has a change without a label later
		select {
		case c := <-changes:
			if said = string(c.Label); said != "" && said != string(p.Label) {
				t.Errorf("%+v", c)
			}
		case <-time.After(retryListen):
			polltest.Until(t, func() error {
				return one.change(t.Context(), p.Label, pseudonym.ErrNone, `UPDATE pseudonyms SET revoked = revoked + 1 WHERE label = $1`, p.Label)
			})
		}
	}
}

// A connection to PostgreSQL that is cut without a word is replaced: changes arrive by the next one.
func TestSilentConnectionIsReplaced(t *testing.T) {
	server := pgtest.Start(t)
	at := server.Database(t)
	d := open(t, at)
	changes, cancel := d.Watch()
	defer cancel()
	var pid int
	polltest.Await(t, "the process of PostgreSQL for the connection that listens, and was asked", func() bool {
		return d.sql.QueryRowContext(t.Context(), `SELECT pid FROM pg_stat_activity WHERE query LIKE 'NOTIFY %'`).Scan(&pid) == nil
	})
	for len(changes) > 0 { // that it began to listen
		<-changes
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	p := sample("a.example", pseudonym.NewOwner())
	if err := errors.Join(d.AddTenant(t.Context(), Tenant{Site: p.Site, Created: now}), d.Add(t.Context(), p), d.Revoke(t.Context(), p.Label, now)); err != nil {
		t.Fatal(err)
	}
	if c := <-changes; c.Label != "" {
		t.Errorf("%+v, and not that it missed some", c)
	}
}

// A change and the message of it are one: neither a caller that goes away nor a statement that changes nothing tells anybody.
func TestOnlyChangesAreTold(t *testing.T) {
	both(t, func(t *testing.T, at string) {
		d := open(t, at)
		if err := d.AddTenant(t.Context(), Tenant{Site: "a.example", Created: now}); err != nil {
			t.Fatal(err)
		}
		p := sample("a.example", pseudonym.NewOwner())
		if err := d.Add(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		changes, cancel := d.Watch()
		defer cancel()
		fails := errors.New("it fails")
		if err := d.transact(t.Context(), func(tx *sql.Tx) ([]pseudonym.Label, error) {
			_, err := tx.ExecContext(t.Context(), `DELETE FROM pseudonyms`)
			return []pseudonym.Label{p.Label}, errors.Join(err, fails)
		}); !errors.Is(err, fails) {
			t.Error(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := d.Revoke(ended, p.Label, now); err == nil {
			t.Error("a caller that went away revokes")
		}
		if err := d.Revoke(t.Context(), pseudonym.NewLabel(), now); !errors.Is(err, pseudonym.ErrNone) {
			t.Error(err)
		}
		if got, err := d.Get(t.Context(), p.Label); err != nil || !got.Valid(now) {
			t.Errorf("%+v, %v", got, err)
		}
		var other pseudonym.Label
		tell := func() {
			p := sample("a.example", pseudonym.NewOwner())
			other = p.Label
			if err := errors.Join(d.Add(t.Context(), p), d.Revoke(t.Context(), p.Label, now)); err != nil {
				t.Fatal(err)
			}
		}
		tell()
		for c := range changes {
			switch c.Label {
			case other:
				return
			case p.Label:
				t.Error("what did not change was told")
			case "": // it listens from now on, and maybe not before
				tell()
			}
		}
	})
}

// A site that moves is a change, also to another process. That it is where it was is none: each store says so when it starts.
func TestMovedTenantIsAChange(t *testing.T) {
	both(t, func(t *testing.T, at string) {
		one, two := open(t, at), open(t, at)
		site := Tenant{Site: "store.cloud.example", Addresses: []string{"192.0.2.1:443"}, Created: now}
		if err := one.PutTenant(t.Context(), site); err != nil {
			t.Fatal(err)
		}
		changes, cancel := two.Watch()
		defer cancel()
		// After a mark both processes wait for nothing of before. One that came before the other process listened is lost, so there are more.
		mark := func(site string) (sites int) {
			t.Helper()
			marks := map[pseudonym.Label]bool{}
			again := time.NewTicker(5 * time.Second)
			defer again.Stop()
			for {
				p := sample(site, pseudonym.NewOwner())
				marks[p.Label] = true
				if err := errors.Join(one.Add(t.Context(), p), one.Revoke(t.Context(), p.Label, now)); err != nil {
					t.Fatal(err)
				}
				for waits := true; waits; {
					select {
					case c := <-changes:
						if marks[c.Label] {
							return sites
						}
						if c.Label == pseudonym.Sites {
							sites++
						}
					case <-again.C:
						waits = false
					}
				}
			}
		}
		mark(site.Site)
		if err := one.PutTenant(t.Context(), site); err != nil {
			t.Fatal(err)
		}
		if n := mark(site.Site); n != 0 {
			t.Errorf("%d changes of a site that did not move", n)
		}
		site.Addresses = append(site.Addresses, "192.0.2.2:443")
		if err := one.PutTenant(t.Context(), site); err != nil {
			t.Fatal(err)
		}
		if n := mark(site.Site); n != 1 {
			t.Errorf("%d changes of a site that moved", n)
		}
	})
}

// A command changes the file of a server that runs.
func TestChangesOfOtherProcessesInSQLite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pseudonyms.db")
	one, two := open(t, file), open(t, file)
	if err := one.AddTenant(t.Context(), Tenant{Site: "a.example", Created: now}); err != nil {
		t.Fatal(err)
	}
	changes, cancel := two.Watch()
	defer cancel()
	for range 3 {
		p := sample("a.example", pseudonym.NewOwner())
		if err := errors.Join(one.Add(t.Context(), p), one.Revoke(t.Context(), p.Label, now)); err != nil {
			t.Fatal(err)
		}
		for c := range changes {
			if c.Label == p.Label {
				break
			}
		}
	}
}

func TestSlowWatchersLearnThatTheyMissedSome(t *testing.T) {
	d := open(t, filepath.Join(t.TempDir(), "pseudonyms.db"))
	changes, cancel := d.Watch()
	var many sync.WaitGroup
	for range 4 {
		many.Go(func() {
			for range watchBuffer {
				d.spread(Change{"x"})
			}
		})
	}
	many.Wait()
	cancel()
	missed := 0
	for c := range changes {
		if c.Label == "" {
			missed++
		}
	}
	if missed == 0 {
		t.Error("nothing tells of the changes that it missed")
	}
}
