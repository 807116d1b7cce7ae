package demo

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
	"heddle/observe"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// options build the program and demand little of it.
func options(t *testing.T) (Options, *bytes.Buffer) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip(peer.ErrMissing, err)
	}
	talk := &bytes.Buffer{}
	return Options{Dir: filepath.Join(t.TempDir(), "out"), Heddle: labtest.Heddle, Large: 3 << 20, Talk: talk}, talk
}

// check looks at what holds of each demo, whatever the schedule drew.
func check(t *testing.T, r Result, talk string) {
	t.Helper()
	h := r.Report
	if h.Label != "Heddle" || len(h.Observers) != 3 {
		t.Fatalf("%s has %d observers\n%s", h.Label, len(h.Observers), talk)
	}
	sum := 0.0
	for _, e := range h.Observers {
		sum += e.Share
		if e.Share == 1 || len(e.Names) > 0 || e.Content.Bytes > 0 || e.Packets > 0 && e.Protocols[0] != "WireGuard" {
			t.Errorf("%s saw %g of it, %v, names %v, %d bytes of content", e.Observer, e.Share, e.Protocols, e.Names, e.Content.Bytes)
		}
	}
	if math.Abs(sum-1) > 1e-9 {
		t.Errorf("shares sum to %g", sum)
	}
	for i, f := range r.Fetched {
		if f.Bytes < 3<<20 || f.Files < 2 {
			t.Errorf("%+v", f)
		}
		if seen := append([]observe.Report{h}, h.Baselines...)[i]; seen.Down.Bytes < f.Bytes {
			t.Errorf("%s: curl got %d bytes, the captures hold %d", f.Phase, f.Bytes, seen.Down.Bytes)
		}
	}
	page, err := os.ReadFile(r.Page)
	if err != nil || !bytes.Contains(page, []byte("</html>")) {
		t.Errorf("the page: %v, %d bytes", err, len(page))
	}
}

func TestLoopback(t *testing.T) {
	o, talk := options(t)
	o.Loopback = true
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, talk)
	}
	check(t, r, talk.String())
	if len(r.Report.Baselines) != 1 || r.Report.Baselines[0].Observers[0].Share != 1 {
		t.Errorf("beside it: %+v", r.Report.Baselines)
	}
}

func TestWorld(t *testing.T) {
	labtest.Need(t)
	o, talk := options(t)
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, talk)
	}
	check(t, r, talk.String())
	if len(r.Report.Baselines) != 2 {
		t.Fatalf("%d sessions beside it", len(r.Report.Baselines))
	}
	if alone := r.Report.Baselines[0].Observers[0]; alone.Share != 1 || len(alone.Names) > 0 {
		t.Errorf("WireGuard alone: %+v", alone)
	}
	nothing := r.Report.Baselines[1].Observers[0]
	var names []string
	for _, n := range nothing.Names {
		names = append(names, n.From+" "+n.Name)
	}
	for _, want := range []string{"dns " + clinic, "http " + clinic, "tls " + bank, "tls " + files} {
		if !strings.Contains(strings.Join(names, ","), want) {
			t.Errorf("with no tunnel %q is not read; names are %v", want, names)
		}
	}
	if nothing.Content.Bytes == 0 || len(nothing.Content.Requests) == 0 {
		t.Errorf("with no tunnel the content is %+v", nothing.Content)
	}
	leftNothing(t)
}

// leftNothing looks for what a demo of this process left.
func leftNothing(t *testing.T) {
	t.Helper()
	states, err := lab.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range states {
		if s.Owner.PID == os.Getpid() {
			t.Errorf("world %s is left", s.Name)
		}
	}
}

func TestInterrupted(t *testing.T) {
	o, talk := options(t)
	o.Loopback = lab.Supported() != nil
	ctx, cancel := context.WithCancel(t.Context())
	o.Talk = writerFunc(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("is up: ")) {
			cancel()
		}
		return talk.Write(p)
	})
	_, err := Run(ctx, o)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v\n%s", err, talk)
	}
	leftNothing(t)
}

func TestPrepareReplacesOnlyItsOwn(t *testing.T) {
	dir := t.TempDir()
	captures, err := prepare(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(captures, "old.pcapng"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := prepare(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(captures, "old.pcapng")); err == nil {
		t.Error("the old capture is still there")
	}
	other := t.TempDir()
	mine := filepath.Join(other, "captures", "mine.pcapng")
	if err := errors.Join(os.Mkdir(filepath.Join(other, "captures"), 0o700), os.WriteFile(mine, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := prepare(other); err == nil {
		t.Error("somebody's directory was taken")
	}
	if _, err := os.Stat(mine); err != nil {
		t.Errorf("somebody's capture is gone: %v", err)
	}
}
