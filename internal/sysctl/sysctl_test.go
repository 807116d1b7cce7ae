package sysctl

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"heddle/internal/nstest"
)

func TestChange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ip_forward")
	if err := os.WriteFile(file, []byte("0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := To(file, "0"); c != nil || err != nil {
		t.Errorf("set already: %v, %v", c, err)
	}
	c, err := To(file, "1")
	if err != nil || *c != (Change{File: file, New: "1", Old: "0"}) {
		t.Fatal(c, err)
	}
	for _, step := range []struct {
		do   func() error
		want string
	}{{c.Apply, "1"}, {c.Undo, "0"}} {
		if err := step.do(); err != nil {
			t.Error(err)
		}
		if got, err := Get(file); got != step.want || err != nil {
			t.Errorf("it is %q (%v), want %q", got, err, step.want)
		}
	}
	missing := &Change{File: filepath.Join(t.TempDir(), "gone", "x"), Old: "0"}
	if err := missing.Undo(); err != nil {
		t.Errorf("a setting that is gone: %v", err)
	}
	if _, err := To(missing.File, "1"); err == nil {
		t.Error("a setting that is not there can be changed")
	}
}

// Restore changes neither a value that somebody else set since, nor one that Heddle never set.
func TestRestoreLeavesOthersValues(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ip_forward")
	for _, c := range []struct{ now, after, stays string }{{"1", "0", ""}, {"0", "0", ""}, {"2", "2", "2"}} {
		if err := os.WriteFile(file, []byte(c.now+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		change := &Change{File: file, New: "1", Old: "0"}
		stays, err := change.Restore()
		if now, _ := Get(file); err != nil || stays != c.stays || now != c.after {
			t.Errorf("of %q: now %q, stays %q, %v", c.now, now, stays, err)
		}
	}
}

// A setting of one network namespace is not restored in another, where it may be somebody's.
func TestRestoreKeepsToItsNamespace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ip_forward")
	if err := os.WriteFile(file, []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	here, err := Namespace()
	if err != nil {
		t.Fatal(err)
	}
	there := &Change{File: file, New: "1", Old: "0", Namespace: "net:[1]"}
	if err := there.Undo(); !errors.Is(err, ErrElsewhere) || !there.Elsewhere() {
		t.Errorf("in another namespace: %v", err)
	}
	if now, _ := Get(file); now != "1" {
		t.Errorf("it is %q", now)
	}
	own := &Change{File: file, New: "1", Old: "0", Namespace: here}
	if err := own.Undo(); err != nil || own.Elsewhere() {
		t.Errorf("in its namespace: %v", err)
	}
	if now, _ := Get(file); now != "0" {
		t.Errorf("it is %q", now)
	}
}

func TestHold(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pm_type")
	if _, err := Hold(t.Context(), file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a setting that is not there: %v", err)
	}
	if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	release, err := Hold(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Hold(ended, file); !errors.Is(err, ErrHeld) {
		t.Errorf("while it is held: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if _, err := Hold(t.Context(), file); !errors.Is(err, ErrHeld) || time.Since(begin) < holdPatience {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
	})
	next := make(chan error, 1)
	go func() {
		release, err := Hold(t.Context(), file)
		if err == nil {
			release()
		}
		next <- err
	}()
	release()
	if err := <-next; err != nil {
		t.Errorf("after the release: %v", err)
	}
}

// The kernel's own file can be held, and each network namespace has its own.
func TestHoldIsOfANamespace(t *testing.T) {
	const file = "/proc/sys/net/ipv4/ip_forward"
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	one, two := nstest.New(t), nstest.New(t)
	one.Do(t, func() error {
		release, err := Hold(t.Context(), file)
		if err != nil {
			return err
		}
		t.Cleanup(release)
		if _, err := Hold(ended, file); !errors.Is(err, ErrHeld) {
			t.Errorf("in the same namespace: %v", err)
		}
		return nil
	})
	two.Do(t, func() error {
		release, err := Hold(t.Context(), file)
		if err == nil {
			release()
		}
		return err
	})
}

func TestString(t *testing.T) {
	c := Change{File: "/proc/sys/net/ipv4/conf/x/rp_filter", New: "2", Old: "1"}
	if want := "sysctl net.ipv4.conf.x.rp_filter=2 (it is 1)"; c.String() != want {
		t.Errorf("%q, want %q", c.String(), want)
	}
}

// The kernel takes the greater of the settings for the device and for all.
func TestLooseFilter(t *testing.T) {
	nstest.New(t).Enter(t)
	for _, c := range []struct {
		all, own string
		change   bool
	}{{"0", "0", false}, {"1", "0", true}, {"0", "1", true}, {"1", "1", true}, {"2", "1", false}, {"1", "2", false}} {
		for device, value := range map[string]string{"all": c.all, "lo": c.own} {
			if err := Set(filterFile(device), value); err != nil {
				t.Fatal(err)
			}
		}
		got, err := LooseFilter("lo")
		if err != nil || (got != nil) != c.change || got != nil && *got != (Change{File: filterFile("lo"), New: "2", Old: c.own}) {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
}
