package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const layout = "CREATE TABLE IF NOT EXISTS t (n INTEGER)"

func TestOpen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a", "odd ?#%20 name")
	db, err := Open(file, 1, layout)
	if err != nil {
		t.Fatal(err)
	}
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "locking_mode": "exclusive", "user_version": "1"} {
		var got string
		if err := db.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %s, not %s (%v)", pragma, got, want, err)
		}
	}
	if _, err := db.Exec("INSERT INTO t VALUES (7)"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file, 1, layout); err == nil || !strings.Contains(err.Error(), "locked") {
		t.Errorf("a second one got it: %v", err)
	}
	names, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*"))
	if err != nil || len(names) < 2 { // the file and its log
		t.Errorf("%v (%v)", names, err)
	}
	for _, name := range names {
		if info, err := os.Stat(name); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s is %v (%v)", name, info.Mode(), err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err = Open(file, 2, layout); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := db.QueryRow("SELECT n FROM t").Scan(&n); err != nil || n != 7 {
		t.Errorf("%d (%v)", n, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file, 1, layout); err == nil || !strings.Contains(err.Error(), "layout 2") {
		t.Errorf("a file of a newer program: %v", err)
	}
}
