package audit

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var quiet = slog.New(slog.DiscardHandler)

func read(t *testing.T, file string, since time.Time) (all []string) {
	t.Helper()
	if _, err := Read(file, since, func(l Line) error {
		all = append(all, fmt.Sprintf("%s %s %d %s", l.Time.Format("15:04:05"), l.Event, l.Count, l.Site))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "logs", "audit.log")
	if _, err := Read(file, time.Time{}, nil); err == nil {
		t.Error("a log that is not there is read")
	}
	synctest.Test(t, func(t *testing.T) {
		l, err := Open(file, quiet)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		for range 3 {
			l.Note("registered")
		}
		l.Note("refused_rate")
		if all := read(t, file, time.Time{}); len(all) != 0 {
			t.Errorf("before the minute is over: %q", all)
		}
		if err := l.Say("tenant_added", "news.example"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(90 * time.Second)
		l.Note("registered")
		want := []string{"00:00:00 tenant_added 1 news.example", "00:00:00 refused_rate 1 ", "00:00:00 registered 3 "}
		if all := read(t, file, time.Time{}); !slices.Equal(sorted(all), sorted(want)) {
			t.Errorf("%q", all)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if all := read(t, file, begin.Add(30*time.Second)); !slices.Equal(all, []string{"00:01:00 registered 1 "}) {
			t.Errorf("%q", all)
		}
	})
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func sorted(all []string) []string { return slices.Sorted(slices.Values(all)) }

// Many processes share a log that rotates, and no line is lost before it is old.
func TestRotates(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	const processes, each = 4, 50
	var all sync.WaitGroup
	for p := range processes {
		l := newLog(file, quiet, time.Now)
		l.max = 4000
		all.Go(func() {
			for i := range each {
				if err := l.Say(fmt.Sprintf("event-%d-%d", p, i), ""); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	seen := map[string]bool{}
	for _, one := range read(t, file, time.Time{}) {
		seen[strings.Fields(one)[1]] = true
	}
	if len(seen) != processes*each {
		t.Errorf("%d lines of %d", len(seen), processes*each)
	}
	if info, err := os.Stat(file); err != nil || info.Size() > 4000 {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	if _, err := os.Stat(file + ".1"); err != nil {
		t.Error(err)
	}
	// It does not grow without end.
	l := newLog(file, quiet, time.Now)
	l.max = 100
	for range 3 * keep {
		if err := l.Say("more", ""); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := filepath.Glob(file + ".*[0-9]"); err != nil || len(found) != keep {
		t.Errorf("%q, %v", found, err)
	}
}

// Counts wait while the disk is full, and a line that was cut off spoils no other one.
func TestCannotWrite(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "audit.log")
	if err := os.WriteFile(file, []byte(`{"time":"2026`), 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	l := newLog(file, quiet, func() time.Time { return now })
	l.Note("registered")
	l.file = filepath.Join(file, "no directory")
	if err := l.flush(time.Time{}); err == nil {
		t.Error("written to nowhere")
	}
	l.Note("registered")
	l.file = file
	if err := l.flush(time.Time{}); err != nil {
		t.Fatal(err)
	}
	var got []Line
	damaged, err := Read(file, time.Time{}, func(one Line) error { got = append(got, one); return nil })
	if err != nil || damaged != 1 || len(got) != 1 || got[0].Count != 2 {
		t.Errorf("%+v, %d damaged, %v", got, damaged, err)
	}
	for i := range 2 * mostPending {
		now = now.Add(time.Minute)
		if l.Note("registered"); i > mostPending && len(l.pending) > mostPending {
			t.Fatalf("%d counts wait", len(l.pending))
		}
	}
	total := 0
	for _, n := range l.pending {
		total += n
	}
	if total != 2*mostPending {
		t.Errorf("%d of %d counts", total, 2*mostPending)
	}
}
