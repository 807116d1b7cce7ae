package collect

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"heddle/lab/browser"
	"heddle/lab/labtest"
	"heddle/lab/peer"
	"heddle/observe"
)

func TestMain(m *testing.M) { labtest.Main(m) }

func TestCollectsWhatEachPathCarriesAlone(t *testing.T) {
	if err := browser.Supported(); errors.Is(err, peer.ErrMissing) {
		t.Skip(err)
	}
	var talk bytes.Buffer
	root, dir := tree(t, 1, 2), t.TempDir()
	site := func(name string, page int, protocol string, monitored bool) Site {
		return Site{Name: name, Page: fmt.Sprintf("doc/Package+0/html/page-%d.html", page), Protocol: protocol,
			Latency: Duration{5 * time.Millisecond}, Monitored: monitored}
	}
	o := Options{Sites: Sites{Root: root, Site: []Site{site("by-udp", 0, HTTP3, true), site("by-tcp", 1, HTTP2, false)}},
		Visits: 1, Paths: 3, Schedule: []string{"--schedule", "round-robin", "--every", "10p"}, Jobs: 1,
		Out: filepath.Join(dir, "split.parquet"), Plain: filepath.Join(dir, "plain.parquet"), Heddle: labtest.Heddle, Talk: &talk}
	s, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if s.Made != 4 {
		t.Fatalf("%+v", s)
	}
	// On a busy machine even five attempts can all be late; the same command makes those visits again.
	for again := 0; s.Failed > 0 && again < 10; again++ {
		if s, err = Run(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if s.Kept != 4 || s.Failed != 0 {
		t.Fatalf("%+v\n%s", s, &talk)
	}
	for file, paths := range map[string]int{o.Out: 3, o.Plain: 1} {
		rows, err := parquet.ReadFile[observe.TraceRow](file)
		if err != nil || len(rows) != 2*paths {
			t.Fatalf("%s: %v, %d rows", file, err, len(rows))
		}
		down := map[string]int64{}
		for _, r := range rows {
			if r.Monitored != (r.Label == "by-udp") || (r.Path == -1) != (paths == 1) || len(r.Time) < 10 {
				t.Errorf("%s: %+v with %d packets", file, r.Label, len(r.Time))
			}
			for _, size := range r.Size {
				down[r.Label] -= int64(min(size, 0))
			}
		}
		for name, n := range down {
			if n < minBytes || n > 3*minBytes {
				t.Errorf("%s: %s came as %d bytes, and has %d", file, name, n, minBytes)
			}
		}
	}
	if s, err = Run(t.Context(), o); err != nil || s.Made != 0 || s.Kept != 4 {
		t.Errorf("again: %v, %+v", err, s)
	}
}
