package cloud

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/database"
)

// A clock that is wrong for a day deletes nothing. What really ended goes, even if the store was away for long.
func TestCleanAfterALeap(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	if err := Create(dir, testZone, now); err != nil {
		t.Fatal(err)
	}
	var talk bytes.Buffer
	c, err := Open(t.Context(), Options{Zone: testZone, Dir: dir, Database: filepath.Join(dir, "db"), Log: slog.New(slog.NewTextHandler(&talk, nil))}, Parts{Store: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.db.AddTenant(t.Context(), database.Tenant{Site: "news.example", Addresses: []string{"127.0.0.1:1"}, Client: ca.KeyID{1}, Created: now}); err != nil {
		t.Fatal(err)
	}
	p := database.Pseudonym{Label: pseudonym.NewLabel(), Site: "news.example", Certificate: []byte{0x30, 0}, Key: []byte("key"), Created: now, Expires: now.Add(90 * 24 * time.Hour)}
	if err := c.db.Add(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	clean := func(now time.Time, step time.Duration) {
		t.Helper()
		if _, err := c.cleanOnce(t.Context(), now, step); err != nil {
			t.Fatal(err)
		}
	}
	there := func() bool {
		t.Helper()
		_, err := c.db.Get(t.Context(), p.Label)
		if err != nil && !errors.Is(err, pseudonym.ErrNone) {
			t.Fatal(err)
		}
		return err == nil
	}
	clean(now, 0)
	if strings.Contains(talk.String(), "ahead") {
		t.Errorf("a right clock: %s", &talk)
	}
	later := now.Add(400 * 24 * time.Hour)
	for range 24 {
		clean(later, cleanStep)
	}
	if !there() || !strings.Contains(talk.String(), "check the clock") {
		t.Fatalf("the leap is taken for time that passed: %s", &talk)
	}
	for range 90 + 30 - 24 + 1 {
		clean(later, cleanStep)
	}
	if there() {
		t.Error("a pseudonym that ended long ago stays")
	}
}
