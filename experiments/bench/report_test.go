package bench

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"heddle/lab"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(c.values); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.values, got, c.want)
		}
	}
}

// TestRatioIsTakenWithinARound has a machine that slows down tenfold: medians over all rounds would show nothing of
// the case itself.
func TestRatioIsTakenWithinARound(t *testing.T) {
	base := []sample{{0, 100}, {1, 50}, {2, 10}}
	row := newRow("equal/100ms/down", []sample{{0, 90}, {1, 40}, {2, 9.5}}, "equal/none/down", base)
	if row.Ratio == nil || math.Abs(*row.Ratio-0.9) > 1e-9 || row.N != 3 || row.Median != 40 || row.Min != 9.5 || row.Max != 90 {
		t.Errorf("%+v", row)
	}
	if row := newRow("a", base, "a", base); row.Ratio != nil || row.Baseline != "" {
		t.Errorf("a baseline is compared with itself: %+v", row)
	}
	if row := newRow("a", []sample{{7, 1}}, "b", base); row.Ratio != nil {
		t.Errorf("a ratio across rounds: %v", *row.Ratio)
	}
}

// measured is a report as a bench makes it, of made-up numbers.
func measured() Report {
	r := quiet(WireGuard())
	for i, t := range r.kept {
		for j, v := range t.cases {
			for round := range 2 {
				value := float64(20+i+j+round) * 1e6
				r.keep(t, v, round, []figure{throughput("down", value), throughput("up", value)}, lab.Lateness{})
			}
		}
	}
	return r.Report()
}

// quiet is a bench that runs nothing by itself, and says nothing.
func quiet(b Bench) *runner {
	return &runner{Bench: b, Table: NewTable(b.name), kept: b.topologies(true), options: Options{Progress: io.Discard}}
}

// Some files are delivered in the first round alone: the report has them, however many rounds there are.
func TestFiguresOfOneRoundAreKept(t *testing.T) {
	r := quiet(WireGuard())
	top := r.kept[0]
	r.keep(top, top.cases[0], 0, []figure{throughput("1MB", 2e6), throughput("1GB", 1e6)}, lab.Lateness{})
	r.keep(top, top.cases[0], 1, []figure{throughput("1MB", 2e6)}, lab.Lateness{})
	if rows := r.Report().Rows; len(rows) != 2 || rows[0].N != 2 || rows[1].N != 1 {
		t.Errorf("%+v", rows)
	}
}

func TestReportAsJSON(t *testing.T) {
	var out bytes.Buffer
	if err := measured().WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"bench", "machine", "load", "lateness_ms", "rows"} {
		if _, ok := got[key]; !ok {
			t.Errorf("no %q", key)
		}
	}
	rows := got["rows"].([]any)
	if len(rows) != 22 {
		t.Fatalf("%d rows, want two for each of 11 cases", len(rows))
	}
	for _, row := range rows { // those of baselines too
		for _, key := range []string{"case", "metric", "unit", "n", "median", "min", "max", "baseline", "ratio", "paper"} {
			if _, ok := row.(map[string]any)[key]; !ok {
				t.Errorf("no %q in %v", key, row)
			}
		}
	}
	if name := rows[2].(map[string]any)["case"]; name != "equal/100ms/down" {
		t.Errorf("case %v", name)
	}
	if paper := rows[2].(map[string]any)["paper"]; paper != 0.945 {
		t.Errorf("the paper's figure at 100 ms: %v", paper)
	}
	if paper := rows[4].(map[string]any)["paper"]; paper != nil {
		t.Errorf("a figure that the paper does not have: %v", paper)
	}
}

func TestReportAsTable(t *testing.T) {
	var out bytes.Buffer
	if err := measured().WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"equal/none/down", "unlimited/100ms/up", "0.945", "1.049"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	}
}

func TestPlotIsWellFormed(t *testing.T) {
	var out bytes.Buffer
	if err := measured().WritePlot(&out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	decoder, words := xml.NewDecoder(&out), map[string]bool{}
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if data, ok := token.(xml.CharData); ok {
			words[strings.TrimSpace(string(data))] = true
		}
	}
	for _, want := range []string{"down", "up", "none", "100ms", "50p", "one-path", "unlimited", "equal (dashed: the paper's 0.945 of equal/none/down)"} {
		if !words[want] {
			t.Errorf("the plot does not say %q", want)
		}
	}
}

func TestOnlyKeepsBaselines(t *testing.T) {
	for _, c := range []struct{ only, want string }{
		{"", "equal/none equal/100ms equal/50p unequal/none unequal/100ms shared/none shared/100ms shared/10ms unlimited/wireguard-go unlimited/one-path unlimited/100ms"},
		{"shared/100ms", "shared/none shared/100ms"},
		{"unlimited", "unlimited/wireguard-go unlimited/one-path unlimited/100ms"},
		{"equal/50p", "equal/none equal/50p"},
		{"unequal/100ms/,equal/none", "equal/none unequal/none unequal/100ms"},
	} {
		var words []string
		if c.only != "" {
			words = strings.Split(c.only, ",")
		}
		kept, err := only(WireGuard().topologies(true), words)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, topology := range kept {
			for _, v := range topology.cases {
				names = append(names, topology.caseName(v))
			}
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("only %q keeps %s, want %s", c.only, got, c.want)
		}
	}
	kept, err := only(Disguise().topologies(false), []string{"steady/450ms/100kB/random"})
	if err != nil || len(kept) != 1 || len(kept[0].cases) != 2 || kept[0].cases[0].name != "450ms/100kB/tor" {
		t.Errorf("a case of its own baseline: %+v, %v", kept, err)
	}
	if _, err := only(WireGuard().topologies(true), []string{"equ"}); err == nil {
		t.Error("half a word is taken for a case")
	}
}
