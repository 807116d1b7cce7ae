package cloud

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/pgtest"
	"heddle/internal/polltest"
	"heddle/pseudonym/database"
	"heddle/pseudonym/ech"
	"heddle/pseudonym/zone"
)

func sealOf(t *testing.T, b byte) *database.Seal {
	t.Helper()
	s, err := database.NewSeal(bytes.Repeat([]byte{b}, database.SealKeySize))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// process is one process of a cloud, with a connection of its own to the database.
func process(t *testing.T, at string, seal *database.Seal) (*hellos, *database.DB) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	db, err := database.Open(t.Context(), at, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return newHellos(testZone, seal, log), db
}

// opens reports whether a gateway has the key of a configuration.
func opens(h *hellos, list []byte) bool {
	for _, k := range h.accepted() {
		if bytes.Equal(ech.List(k.Config()), list) {
			return true
		}
	}
	return false
}

// A new key is in DNS once all gateways have it, and the old one is good for as long as a record of it may be kept.
func TestHellosRotate(t *testing.T) {
	for name, at := range map[string]func(*testing.T) string{
		"SQLite":     func(t *testing.T) string { return filepath.Join(t.TempDir(), "pseudonyms.db") },
		"PostgreSQL": func(t *testing.T) string { return pgtest.Start(t).Database(t) },
	} {
		t.Run(name, func(t *testing.T) {
			file := at(t)
			one, db := process(t, file, sealOf(t, 1))
			two, dbTwo := process(t, file, sealOf(t, 1))
			server, dbServer := process(t, file, nil) // a store or nameserver
			look := func(now time.Time) {
				t.Helper()
				for _, err := range []error{one.look(t.Context(), db, now), two.look(t.Context(), dbTwo, now), server.look(t.Context(), dbServer, now)} {
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			now := time.Unix(int64(helloPeriod/time.Second)*20_000, 0)
			look(now)
			if server.published(now) != nil || server.published(now.Add(helloAfter-time.Second)) != nil {
				t.Error("a key is in DNS before all gateways have it")
			}
			first := server.published(now.Add(helloAfter))
			if first == nil || !opens(one, first) || !opens(two, first) || len(server.accepted()) > 0 {
				t.Fatalf("%x", first)
			}
			if keys, err := server.retry(nil); err != nil || len(keys) != 1 || !keys[0].SendAsRetry || !bytes.Equal(ech.List(keys[0].Config), first) || keys[0].PrivateKey != nil {
				t.Errorf("%+v, %v", keys, err)
			}

			look(now.Add(helloPeriod - time.Second))
			if !bytes.Equal(server.published(now.Add(helloPeriod-time.Second)), first) {
				t.Error("it changes too early")
			}
			now = now.Add(helloPeriod)
			look(now)
			if !bytes.Equal(server.published(now.Add(helloAfter-time.Second)), first) || !opens(one, first) {
				t.Error("the new key is in DNS before all gateways have it")
			}
			second := server.published(now.Add(helloAfter))
			if bytes.Equal(second, first) || !opens(one, second) || !opens(two, second) {
				t.Errorf("%x", second)
			}
			kept := now.Add(helloAfter + 2*zone.TTL)
			look(kept)
			if !opens(one, first) || !opens(two, first) {
				t.Error("the old key is not good for two lives of a record")
			}
			// A gateway with a slow clock does not bring old keys back.
			if err := two.look(t.Context(), dbTwo, now.Add(-time.Hour)); err != nil {
				t.Fatal(err)
			}
			gone := now.Add(helloAfter + helloKeep + time.Second)
			look(gone)
			rows, err := db.Hellos(t.Context(), nil)
			if opens(one, first) || opens(two, first) || !opens(one, second) || err != nil || len(rows) != 1 {
				t.Errorf("the old key stays: %d rows, %v", len(rows), err)
			}
		})
	}
}

// A gateway that cannot open what others can does not begin.
func TestGatewayWithoutTheKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pseudonyms.db")
	none, db := process(t, file, nil)
	if err := none.begin(t.Context(), db, time.Now()); err != nil {
		t.Errorf("a cloud without such keys: %v", err)
	}
	good, db := process(t, file, sealOf(t, 1))
	if err := good.begin(t.Context(), db, time.Now()); err != nil || len(good.accepted()) != 1 {
		t.Errorf("%d keys, %v", len(good.accepted()), err)
	}
	for name, seal := range map[string]*database.Seal{"none": nil, "another": sealOf(t, 2)} {
		h, db := process(t, file, seal)
		if err := h.begin(t.Context(), db, time.Now()); err == nil || !strings.Contains(err.Error(), "cannot read them") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A process learns of a new key from the one that made it.
func TestHellosFollow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pseudonyms.db")
	gate, db := process(t, file, sealOf(t, 1))
	server, dbServer := process(t, file, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.keep(ctx, func(context.Context) (*database.DB, func(), error) { return dbServer, func() {}, nil })
	}()
	defer func() { cancel(); <-ended }()
	<-server.read
	if err := gate.look(t.Context(), db, time.Now()); err != nil {
		t.Fatal(err)
	}
	want := gate.published(time.Now().Add(helloAfter))
	polltest.Await(t, "it learns of the key", func() bool { return server.published(time.Now().Add(helloAfter)) != nil })
	if got := server.published(time.Now().Add(helloAfter)); !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}
