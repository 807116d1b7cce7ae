package cloud

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/pseudonym/zone"
)

func text(t *testing.T, s *zone.Server) string {
	t.Helper()
	var b strings.Builder
	if err := s.Write(&b); err != nil {
		t.Error(err)
	}
	return b.String()
}

// Another nameserver gets the records at once, and a new key as soon as it is good.
func TestUpdateZone(t *testing.T) {
	dir := t.TempDir()
	if err := Create(dir, testZone, time.Now()); err != nil {
		t.Fatal(err)
	}
	o := Options{Zone: testZone, Dir: dir, Database: filepath.Join(dir, "db"), Gateways: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Log: slog.New(slog.DiscardHandler)}
	refused := errors.New("refused")
	if err := UpdateZone(t.Context(), o, func(context.Context, *zone.Server) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("the first time: %v", err)
	}

	gate, db := process(t, o.Database, sealOf(t, 1))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var sent []string
	err := UpdateZone(ctx, o, func(_ context.Context, s *zone.Server) error {
		sent = append(sent, text(t, s))
		if len(sent) == 1 { // a key of before is good at once
			return gate.make(ctx, db, time.Now().Add(-helloAfter))
		}
		cancel()
		return nil
	})
	if err != nil || len(sent) != 2 || strings.Contains(sent[0], "ech=") || strings.Count(sent[1], "ech=") != 5 {
		t.Fatalf("%v\n%s", err, strings.Join(sent, "\n"))
	}
	// A command prints the same.
	s, err := Zone(t.Context(), o)
	if err != nil || withoutSerial(text(t, s)) != withoutSerial(sent[1]) {
		t.Errorf("%v\n%s", err, text(t, s))
	}
	if rows, err := db.Hellos(t.Context(), nil); err != nil || len(rows) != 1 {
		t.Errorf("%d keys, %v", len(rows), err)
	}
}

func withoutSerial(zone string) string {
	before, after, _ := strings.Cut(zone, " SOA ")
	_, after, _ = strings.Cut(after, "\n")
	return before + after
}
