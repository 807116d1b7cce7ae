package observe

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"golang.org/x/net/html"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (go test ./observe -update writes it anew); got:\n%s", file, got)
	}
}

// sessions loads one split session and one without any tunnel.
func sessions(t *testing.T) (split, plain *Session) {
	t.Helper()
	dir := t.TempDir()
	splitSession(t, filepath.Join(dir, "office"), 1, 1.5)
	plainSession(t, filepath.Join(dir, "plain"))
	split, err := Load("office", filepath.Join(dir, "office"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	plain, err = Load("no tunnel", filepath.Join(dir, "plain"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return split, plain
}

func TestReportGolden(t *testing.T) {
	split, plain := sessions(t)
	report := Compare(split, plain)
	var text, page bytes.Buffer
	if err := WriteText(&text, report, 0); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.txt", text.Bytes())
	encoded, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "report.json", append(encoded, '\n'))
	if err := WriteHTML(&page, split, plain); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.html", page.Bytes())
	for line := range strings.Lines(text.String()) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 100 {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
}

func TestTextKeepsToTheTerminal(t *testing.T) {
	session, plain := sessions(t)
	for _, width := range []int{0, 60, 80, 200} {
		var text bytes.Buffer
		if err := WriteText(&text, Compare(session, plain), width); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text.String()) {
			if most := min(cmp.Or(width, textWidth), textWidth); utf8.RuneCountInString(line) > most+1 {
				t.Errorf("longer than %d columns: %s", most, line)
			}
		}
	}
}

func TestPageNeedsNoOtherFile(t *testing.T) {
	split, plain := sessions(t)
	split.Label, split.Observers[0].Name = `<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`
	var page bytes.Buffer
	if err := WriteHTML(&page, split, plain); err != nil {
		t.Fatal(err)
	}
	tokens := html.NewTokenizer(&page)
	for {
		kind := tokens.Next()
		if kind == html.ErrorToken {
			if !errors.Is(tokens.Err(), io.EOF) {
				t.Fatal(tokens.Err())
			}
			return
		}
		token := tokens.Token()
		switch token.Data {
		case "script", "img", "link", "iframe", "object":
			if kind != html.TextToken {
				t.Errorf("the page holds %v", token)
			}
		}
		for _, a := range token.Attr {
			if a.Key == "src" || a.Key == "href" || strings.HasPrefix(a.Key, "on") {
				t.Errorf("%s has %s=%q", token.Data, a.Key, a.Val)
			}
		}
	}
}

func TestSharesSumToOne(t *testing.T) {
	for seed := range uint64(10) {
		dir := t.TempDir()
		splitSession(t, dir, seed, 0.5)
		s, err := Load("x", dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		r := s.Report()
		var all, up, down float64
		packets, visits := 0, 0
		for _, e := range r.Observers {
			all, up, down = all+e.Share, up+e.Up.Share, down+e.Down.Share
			packets, visits = packets+e.Packets, visits+e.Visits
			if e.Slots > e.Watched+1e-9 || e.Watched > r.Seconds+1e-9 {
				t.Errorf("seed %d: %s watched %g s, %g s of it in visits, of %g s", seed, e.Observer, e.Watched, e.Slots, r.Seconds)
			}
		}
		for _, sum := range []float64{all, up, down} {
			if math.Abs(sum-1) > 1e-9 {
				t.Errorf("seed %d: shares sum to %g", seed, sum)
			}
		}
		if packets != r.Packets || r.Up.Packets+r.Down.Packets != packets {
			t.Errorf("seed %d: %d packets of %d", seed, packets, r.Packets)
		}
	}
}

// naiveLongest looks at every stretch of the sequence that begins at each packet.
func naiveLongest(events []event, observer int, counts func(event) bool) int {
	var order []int
	for _, e := range events {
		if counts(e) {
			order = append(order, e.observer)
		}
	}
	most := 0
	for i := range order {
		n := 0
		for _, o := range order[i:] {
			if o != observer {
				break
			}
			n++
		}
		most = max(most, n)
	}
	return most
}

func TestLongestRunEqualsBruteForce(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		s := &Session{Observers: make([]Observer, 1+random.IntN(4))}
		for i := range s.Observers {
			at := epoch
			for range random.IntN(60) {
				at = at.Add(time.Duration(random.IntN(5)) * time.Millisecond) // with ties
				s.Observers[i].Packets = append(s.Observers[i].Packets, Packet{Time: at, Size: 1, Out: random.IntN(2) == 0})
			}
			s.Observers[i].Flows = make([]Flow, 1)
		}
		r, events := s.Report(), s.merged()
		for i, e := range r.Observers {
			all := naiveLongest(events, i, func(event) bool { return true })
			up := naiveLongest(events, i, func(e event) bool { return e.Out })
			down := naiveLongest(events, i, func(e event) bool { return !e.Out })
			if e.LongestRun != all || e.Up.LongestRun != up || e.Down.LongestRun != down {
				t.Errorf("seed %d, observer %d: %d %d %d, want %d %d %d", seed, i,
					e.LongestRun, e.Up.LongestRun, e.Down.LongestRun, all, up, down)
			}
		}
	}
}

func TestTraceReadsBack(t *testing.T) {
	split, plain := sessions(t)
	file := filepath.Join(t.TempDir(), "x.parquet")
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	trace := NewTrace()
	if err := errors.Join(trace.Add(split, TraceOptions{}), trace.Add(plain, TraceOptions{}), trace.Write(out), out.Close()); err != nil {
		t.Fatal(err)
	}
	rows, err := parquet.ReadFile[TraceRow](file)
	if err != nil {
		t.Fatal(err)
	}
	r := Compare(split, plain)
	if want := r.Packets + r.Baselines[0].Packets; trace.Summary.Packets != want || len(rows) != trace.Summary.Rows {
		t.Fatalf("%d rows, %d in the summary with %d packets, want %d", len(rows), trace.Summary.Rows, trace.Summary.Packets, want)
	}
	row := rows
	for load, session := range r.sessions() {
		for i, e := range session.Observers {
			got := row[0]
			row = row[1:]
			wantPath := int16(i)
			if len(session.Observers) == 1 {
				wantPath = whole
			}
			if got.Label != session.Label || got.Load != int64(load) || got.Path != wantPath || !slices.IsSorted(got.Time) {
				t.Errorf("%s/%s: row of %s, load %d, path %d", session.Label, e.Observer, got.Label, got.Load, got.Path)
			}
			var up, down int64
			for _, size := range got.Size {
				if size > 0 {
					up += int64(size)
				} else {
					down -= int64(size)
				}
			}
			// Connections have numbers in the order of their first packets, without gaps.
			highest := int32(-1)
			for _, c := range got.Connection {
				if c < 0 || c > highest+1 {
					t.Errorf("%s/%s: connection %d after %d", session.Label, e.Observer, c, highest)
				}
				highest = max(highest, c)
			}
			flows := map[int]bool{}
			for _, p := range map[string]*Session{split.Label: split, plain.Label: plain}[session.Label].Observers[i].Packets {
				flows[p.Flow] = true
			}
			if len(got.Connection) != len(got.Size) || int(highest)+1 != len(flows) {
				t.Errorf("%s/%s: %d connections of %d packets, want %d of %d", session.Label, e.Observer, highest+1, len(got.Connection), len(flows), len(got.Size))
			}
			if up != e.Up.Bytes || down != e.Down.Bytes || len(got.Time) != len(got.Size) {
				t.Errorf("%s/%s: %d up and %d down, want %d and %d", session.Label, e.Observer, up, down, e.Up.Bytes, e.Down.Bytes)
			}
		}
	}
	if len(row) > 0 {
		t.Errorf("%d rows too many", len(row))
	}
}

func TestNumbersAsText(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234"} {
		if got := grouped(n); got != want {
			t.Errorf("grouped(%d) = %q, want %q", n, got, want)
		}
	}
	for s, want := range map[float64]string{1e-6: "1 µs", 1e-5: "10 µs", 0.01: "10 ms", 1: "1 s", 100: "100 s"} {
		if got := shortTime(s); got != want {
			t.Errorf("shortTime(%g) = %q, want %q", s, got, want)
		}
	}
}
