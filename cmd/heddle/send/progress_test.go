package send

import (
	"strings"
	"testing"
	"time"

	"heddle/cmd/heddle/internal/clitest"
	"heddle/stripe"
	"heddle/stripe/transfer"
)

func TestProgress(t *testing.T) {
	now := transfer.Progress{File: "a.iso", Done: 5e8, Size: 1e9, AllDone: 5e8, All: 1e9}
	s := stripe.Status{State: "stopped", Why: "1 of 3 paths is down", Paths: []stripe.PathStatus{
		{Name: "tokyo", State: "up", RTT: 75 * time.Millisecond, Up: stripe.Count{Bytes: 25e7, Share: 0.5}},
		{Name: "a", State: "down", Why: "it does not answer", Up: stripe.Count{Bytes: 25e7, Share: 0.5}},
	}}
	want := "[##########..........] 50.0 % of 1.0 GB, 25.0 MB/s, 20s left: a.iso\n" +
		"  tokyo  up       250.0 MB  50.0 %  rtt 75ms\n" +
		"  a      down     250.0 MB  50.0 %  rtt -  it does not answer\n" +
		"  stopped: 1 of 3 paths is down\n"
	if got := barLine(now, 25e6, 100) + "\n" + pathLines(s, 100); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := progressLine(now, 25e6) + "; " + pathsLine(s); got != "50.0 % of 1.0 GB, 25.0 MB/s, 20s left: a.iso; tokyo 50.0 %, a 50.0 % (down: it does not answer)" {
		t.Errorf("got %s", got)
	}
	for line := range strings.Lines(barLine(now, 25e6, 40) + "\n" + pathLines(s, 40)) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 39 {
			t.Errorf("a line of %d columns on a terminal of 40: %s", n, line)
		}
	}
	empty := transfer.Progress{File: "empty"}
	if got := barLine(empty, 0, 0); got != "[####################] 100.0 % of 0 B, 0 B/s: empty" {
		t.Errorf("got %s", got)
	}
}

// A progress that is no terminal's holds no escape sequence.
func TestProgressWithoutATerminal(t *testing.T) {
	var out clitest.Spoken
	p := newProgress(&out, func() stripe.Status {
		return stripe.Status{Paths: []stripe.PathStatus{{Name: "a\x1b[2J", State: "up"}}}
	}, false)
	p.update(transfer.Progress{File: "f", AllDone: 1, All: 2})
	p.draw()
	p.end()
	if text := out.String(); strings.Contains(text, "\x1b") || !strings.HasPrefix(text, "50.0 % of 2 B") || strings.Count(text, "\n") != 1 {
		t.Errorf("%q", text)
	}
}
