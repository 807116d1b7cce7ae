package sysctl

import (
	"os"
	"path/filepath"
	"testing"

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
		if err != nil || (got != nil) != c.change || got != nil && *got != (Change{filterFile("lo"), "2", c.own}) {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
}
