package handshake

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"heddle/internal/errhint"
)

// told is the representative with a number.
func told(n int) (r Representative) {
	binary.BigEndian.PutUint64(r[:], uint64(n)+1)
	return r
}

func opened(t *testing.T, dir string, now time.Time) *Replays {
	t.Helper()
	r, err := OpenReplays(dir, now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// killed is a copy of a cache's directory as a process that is killed leaves it.
func killed(t *testing.T, dir string) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "state")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return copied
}

func slotFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, slotPrefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestReplaysSurviveRestarts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "replays")
	r := opened(t, dir, now)
	times := []time.Time{now.Add(-80 * time.Minute), now, now.Add(80 * time.Minute)}
	for restart := range 4 {
		for i, at := range times {
			if err := r.remember(told(10*restart+i), at, now); err != nil {
				t.Fatal(err)
			}
		}
		if restart%2 == 0 {
			dir = killed(t, dir)
		} else if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		r = opened(t, dir, now)
		for old := range restart + 1 {
			for i, at := range times {
				refused(t, r.remember(told(10*old+i), at, now), Replayed)
				refused(t, r.check(told(10*old+i), at), Replayed)
			}
		}
	}
}

func TestReplaysAreFilesOfTheirOwner(t *testing.T) {
	dir := t.TempDir()
	r := opened(t, dir, now)
	for i, at := range []time.Time{now.Add(-time.Hour), now, now} {
		if err := r.remember(told(i), at, now); err != nil {
			t.Fatal(err)
		}
	}
	files := slotFiles(t, dir)
	if len(files) != 2 {
		t.Errorf("%v", files)
	}
	for _, file := range append(files, filepath.Join(dir, floorName)) {
		if info, err := os.Stat(file); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", file, info.Mode(), err)
		}
	}
}

// A process that is killed while it writes leaves a file that ends anywhere.
func TestReplaysTolerateACutRecord(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "replays")
	r := opened(t, dir, now)
	for i := range 3 {
		if err := r.remember(told(i), now, now); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := os.ReadFile(slotFiles(t, dir)[0])
	if err != nil || len(whole) != len(slotMagic)+3*recordSize {
		t.Fatalf("%d bytes: %v", len(whole), err)
	}
	for size := range len(whole) {
		dir := killed(t, dir)
		if err := os.WriteFile(slotFiles(t, dir)[0], whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		r := opened(t, dir, now)
		for i := range 3 {
			err := r.remember(told(i), now, now)
			if kept := size >= len(slotMagic)+(i+1)*recordSize; kept {
				refused(t, err, Replayed)
			} else if err != nil {
				t.Fatalf("%d bytes, record %d: %v", size, i, err)
			}
		}
		r.Close()
		if again, err := os.ReadFile(slotFiles(t, dir)[0]); err != nil || !bytes.Equal(again, whole) {
			t.Fatalf("%d bytes: the file is not whole again: %v", size, err)
		}
	}
}

func TestReplaysExpire(t *testing.T) {
	dir := t.TempDir()
	r := opened(t, dir, now)
	for i := range 40 { // one every 20 minutes, each half an hour wrong
		at := now.Add(time.Duration(i) * 20 * time.Minute)
		if err := r.remember(told(i), at.Add(30*time.Minute), at); err != nil {
			t.Fatal(err)
		}
		if n := len(slotFiles(t, dir)); r.held() > 10 || n != r.held() {
			t.Fatalf("after %d: %d records in %d files", i, r.held(), n)
		}
	}
	refused(t, r.remember(told(100), now, now), Replayed) // the clock went back: nobody knows what arrived then
}

// small is a cache with room for 100 messages, 10 of them in each slot that is ahead.
func small(t *testing.T, dir string) *Replays {
	t.Helper()
	r := opened(t, dir, now)
	r.max, r.ahead = 100, 10
	return r
}

func TestFullReplaysForgetTheOldest(t *testing.T) {
	dir := t.TempDir()
	r := small(t, dir)
	old := now.Add(-time.Hour)
	for i := range 60 {
		if err := r.remember(told(i), old.Add(time.Duration(i/30)*slotSeconds*time.Second), now); err != nil {
			t.Fatal(err)
		}
	}
	for i := 60; i < 160; i++ {
		if err := r.remember(told(i), now, now); err != nil || r.held() > 100 {
			t.Fatalf("message %d, %d held: %v", i, r.held(), err)
		}
	}
	for i := range 160 {
		at := now
		if i < 60 {
			at = old.Add(time.Duration(i/30) * slotSeconds * time.Second)
		}
		refused(t, r.remember(told(i), at, now), Replayed)
	}
	refused(t, r.remember(told(1000), now, now), NotKept) // the slot of now is never forgotten
	refused(t, r.remember(told(1001), old, now), Replayed)
	later := now.Add(30 * time.Minute)
	if err := r.remember(told(1002), later, later); err != nil {
		t.Errorf("half an hour later: %v", err)
	}
	dir = killed(t, dir)
	left := r.disk.slotName(r.floor - 1) // a file that could not be removed
	if err := os.WriteFile(filepath.Join(dir, filepath.Base(left)), []byte(slotMagic), 0o600); err != nil {
		t.Fatal(err)
	}
	r = opened(t, dir, now)
	if files := slotFiles(t, dir); len(files) != len(r.slots) {
		t.Errorf("%d slots in %v", len(r.slots), files)
	}
	refused(t, r.remember(told(0), old, now), Replayed)
	refused(t, r.remember(told(1003), old, now), Replayed)
}

// A clock that is a few minutes slow never matters, also at the begin of a slot.
func TestFullReplaysKeepThePresent(t *testing.T) {
	r := small(t, t.TempDir())
	begin := time.Unix(now.Unix()/slotSeconds*slotSeconds, 0)
	slow := begin.Add(-time.Minute)
	for i := range 100 {
		if err := r.remember(told(i), slow, begin); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, r.remember(told(100), begin, begin), NotKept)
	refused(t, r.remember(told(0), slow, begin), Replayed)
	later := begin.Add(leastKept * time.Second)
	if err := r.remember(told(101), later, later); err != nil {
		t.Error(err)
	}
}

// A flood of hellos with times ahead shuts out no client with a right clock, neither now nor when those times come.
func TestFloodOfTimesAheadLeavesRoom(t *testing.T) {
	r := small(t, t.TempDir())
	kept := 0
	for i := range 1000 {
		ahead := 25*time.Minute + time.Duration(i%60)*time.Minute
		if r.remember(told(i), now.Add(ahead), now) == nil {
			kept++
		}
	}
	if kept == 0 || kept > 70 {
		t.Errorf("%d messages ahead of their time were kept", kept)
	}
	for minutes := range 90 {
		at := now.Add(time.Duration(minutes) * time.Minute)
		if err := r.remember(told(2000+minutes), at, at); err != nil {
			t.Fatalf("after %d minutes: %v", minutes, err)
		}
	}
}

func TestReplaysFailClosed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /dev/full")
	}
	dir := t.TempDir()
	r := opened(t, dir, now)
	s, to := bridge(t, 1, r)
	file := r.disk.slotName(now.Unix() / slotSeconds)
	if err := os.Symlink("/dev/full", file); err != nil {
		t.Fatal(err)
	}
	hello := begun(t, to, Hello{Time: now}, 0).Bytes()
	_, _, err := s.Read(hello, now)
	refused(t, err, NotKept)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(errhint.Of(err), "free space") {
		t.Errorf("%v; %s", err, errhint.Of(err))
	}
	if r.held() != 0 {
		t.Error("what is not on the disk is in memory")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	r.slots[now.Unix()/slotSeconds].file.close()
	if _, _, err := s.Read(hello, now); err != nil {
		t.Errorf("once there is room: %v", err)
	}
	r.Close()
	_, _, err = s.Read(begun(t, to, Hello{Time: now}, 0).Bytes(), now)
	refused(t, err, NotKept)
}

func TestReplaysThatCannotBeUsed(t *testing.T) {
	write := func(name, text string) func(dir string) string {
		return func(dir string) string {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			return dir
		}
	}
	year := now.AddDate(1, 0, 0).Unix() / slotSeconds
	for name, c := range map[string]struct {
		make func(dir string) string
		hint string
	}{
		"in a file":     {func(dir string) string { return filepath.Join(write("a", "")(dir), "a", "b") }, "make the directory writable"},
		"another file":  {write(slotPrefix+"5", "something else"), "delete the directory"},
		"another floor": {write(floorName, "x"), "delete the directory"},
		"a future":      {write(floorName, strconv.FormatInt(year, 10)), "set the clock"},
		"a directory":   {func(dir string) string { _ = os.Mkdir(filepath.Join(dir, floorName), 0o700); return dir }, "make the directory writable"},
		"too large": {func(dir string) string {
			write(slotPrefix+"5", slotMagic)(dir)
			if err := os.Truncate(filepath.Join(dir, slotPrefix+"5"), int64(len(slotMagic)+(maxSeen+1)*recordSize)); err != nil {
				t.Fatal(err)
			}
			return dir
		}, "delete the directory"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := OpenReplays(c.make(t.TempDir()), now)
			if err == nil {
				r.Close()
			}
			if err == nil || !strings.Contains(errhint.Of(err), c.hint) {
				t.Errorf("%v; %s", err, errhint.Of(err))
			}
		})
	}
	dir := t.TempDir()
	opened(t, dir, now)
	if _, err := OpenReplays(dir, now); err == nil || !strings.Contains(errhint.Of(err), "another bridge") {
		t.Errorf("two at once: %v", err)
	}
}

// The bridge accepts one of many copies of a hello that arrive at once.
func TestReplaysAtOnce(t *testing.T) {
	s, to := bridge(t, 1, opened(t, t.TempDir(), now))
	hello := begun(t, to, Hello{Time: now}, 0).Bytes()
	var accepted atomic.Int32
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if _, _, err := s.Read(hello, now); err == nil {
				accepted.Add(1)
			}
		})
	}
	all.Wait()
	if accepted.Load() != 1 {
		t.Errorf("%d were accepted", accepted.Load())
	}
}

func FuzzReplayFile(f *testing.F) {
	f.Add([]byte(slotMagic + "0123456789abcdef0123"))
	f.Add([]byte("heddle"))
	f.Fuzz(func(t *testing.T, b []byte) {
		count := 0
		size, err := readRecords(bytes.NewReader(b), 4, func(record) { count++ })
		if count > 4 || err == nil && (size > int64(len(b)) || count > 0 && size != int64(len(slotMagic)+count*recordSize)) {
			t.Errorf("%d records, %d bytes of %d: %v", count, size, len(b), err)
		}
	})
}
