package board

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"heddle/board/space"
	"heddle/identity"
	"heddle/internal/polltest"
)

func TestMembersFile(t *testing.T) {
	ann, bob := fresh(t).Key().String(), fresh(t).Key().String()
	for name, c := range map[string]struct {
		text string
		want int
		says string
	}{
		"two":          {ann + " Ann\n\n# and\n" + bob + "# Bob\n", 2, ""},
		"no end":       {ann, 1, ""},
		"half a key":   {ann + "\n" + bob[:20], 0, "line 2"},
		"nobody":       {"# nobody yet\n", 0, "names nobody"},
		"a long line":  {ann + "\n" + strings.Repeat("x", 70000), 0, "line 2"},
		"far too long": {strings.Repeat("#\n", maxMembers), 0, "more than"},
	} {
		file := filepath.Join(t.TempDir(), "members")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := OpenMembers(file)
		if len(m.Keys) != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %d, %v", name, len(m.Keys), err)
		}
	}
	if _, err := OpenMembers(filepath.Join(t.TempDir(), "absent")); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("absent: %v", err)
	}
}

func TestMembersAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann, bob := fresh(t).Key(), fresh(t).Key()
		file := filepath.Join(t.TempDir(), "members")
		stamp := time.Unix(1e9, 0)
		put := func(text string) { // in place, as the worst editor does
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			stamp = stamp.Add(time.Second)
			if err := os.Chtimes(file, stamp, stamp); err != nil {
				t.Fatal(err)
			}
		}
		put(ann.String() + "\n")
		m, err := OpenMembers(file)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		sets, last, said := 0, 1, bytes.Buffer{}
		again := make(chan os.Signal, 1)
		ctx, cancel := context.WithCancel(t.Context())
		set := func(k []identity.Key) {
			mu.Lock()
			defer mu.Unlock()
			sets, last = sets+1, len(k)
		}
		go m.Watch(ctx, again, set, slog.New(slog.NewTextHandler(&guarded{&mu, &said}, nil)))
		wait := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		expect := func(what string, wantSets, wantErrors, wantMembers int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Count(said.String(), "stay as they were"); sets != wantSets || got != wantErrors || last != wantMembers {
				t.Fatalf("%s: set %d times, %d errors, %d members\n%s", what, sets, got, last, &said)
			}
		}
		wait(time.Minute)
		expect("nothing happened", 0, 0, 1)
		put(ann.String() + "\n" + bob.String() + "\n")
		wait(membersEvery)
		expect("it may still be written", 0, 0, 1)
		wait(membersEvery)
		expect("it stands still", 1, 0, 2)
		put("")
		wait(membersEvery)
		put(bob.String() + "\n")
		wait(2 * membersEvery)
		expect("it was empty for a moment", 2, 0, 1)
		put(bob.String() + "\n" + ann.String()[:30] + "\n")
		wait(time.Minute)
		expect("half of a key, said once", 2, 1, 1)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		wait(time.Minute)
		expect("it is gone, said once", 2, 2, 1)
		put(ann.String() + "\n")
		again <- os.Interrupt
		synctest.Wait()
		expect("at the signal, at once", 3, 2, 1)
		wait(time.Minute)
		expect("and not twice", 3, 2, 1)
		cancel()
		synctest.Wait()
	})
}

// guarded is a log that may be read meanwhile.
type guarded struct {
	mu *sync.Mutex
	to *bytes.Buffer
}

func (g *guarded) Write(text []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.to.Write(text)
}

func TestWhoIsLetInNoLonger(t *testing.T) {
	ann, bob := fresh(t), fresh(t)
	r := serve(t, fresh(t), LocalOptions{Members: []identity.Key{ann.Key(), bob.Key()}})
	a, b := client(t, r.Reference, ann), client(t, r.Reference, bob)
	if _, err := a.Out(t.Context(), space.Tuple{space.String("of ann")}, Put{Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 2)
	go func() {
		_, err := a.Rd(t.Context(), space.Template{space.String("later")})
		failed <- err
	}()
	go func() {
		_, err := a.In(t.Context(), space.Template{space.String("later")})
		failed <- err
	}()
	polltest.Await(t, "both wait", func() bool { return r.waits(t) == 2 })
	r.Local.SetMembers([]identity.Key{bob.Key()})
	for range 2 {
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "let in no longer") {
			t.Errorf("who waited: %v", err)
		}
	}
	if _, err := a.Rdp(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "let this device in") {
		t.Errorf("who asks now: %v", err)
	}
	if e, err := b.Rdp(t.Context(), space.Template{space.String("of ann")}); err != nil || e.Author() != ann.Key() {
		t.Errorf("what was put: %v, %v", e, err)
	}
	if s := b.Status(t.Context())[0]; s.Status == nil || s.Status.Members != 1 || s.Status.Waiting != 0 {
		t.Errorf("%+v", s.Status)
	}
	r.Local.SetMembers([]identity.Key{ann.Key(), bob.Key()})
	if _, err := a.Rdp(t.Context(), nil); err != nil {
		t.Errorf("let in again: %v", err)
	}
}
