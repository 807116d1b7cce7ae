package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
)

// figures are one of each kind, with hostile labels and awkward values.
func figures() map[string]string {
	hostile := `</title><script>alert("x")</script>&`
	ten := 10.0
	return map[string]string{
		"chart": Chart{Title: hostile, Description: hostile, Width: 400, Height: 200, X: Axis{Label: hostile, Names: []string{"a", hostile}},
			Y: Axis{Label: "y"}, Rule: &ten, Series: []Series{
				{Label: hostile, X: []float64{0, 1}, Y: []float64{3, 4}, Low: []float64{2, 3}, High: []float64{4, 5}},
				{Label: "step", Kind: Step, X: []float64{0, 1}, Y: []float64{0, 0}}}}.SVG(),
		"histogram": Chart{Title: "h", Width: 400, Height: 200, X: Axis{Log: true},
			Series: []Series{{Kind: Bars, X: []float64{0.001, 0.01, 1}, Y: []float64{5, 0}}}}.SVG(),
		"nothing":    Chart{Title: "n", Width: 400, Height: 200}.SVG(),
		"log of 0":   Chart{Title: "n", Width: 400, Height: 200, Y: Axis{Log: true}, Series: []Series{{X: []float64{1}, Y: []float64{0}}}}.SVG(),
		"lanes":      Lanes{Title: hostile, Width: 400, Seconds: 2, Format: plain, Lanes: []Lane{{Label: hostile, Up: []float64{0, 1, 2, 0}, Down: []float64{1, 0, 0, 3}}}}.SVG(),
		"idle lanes": Lanes{Title: "idle", Width: 400, Format: plain, Lanes: []Lane{{Label: "a", Up: []float64{0}, Down: []float64{0}}}}.SVG(),
		"shares":     Shares{Title: hostile, Width: 400, Groups: []ShareGroup{{Label: hostile, Rows: []ShareRow{{Label: hostile, Up: 0.5, Down: 1}}}}}.SVG(),
	}
}

func TestFiguresAreWellFormedAndSafe(t *testing.T) {
	for name, svg := range figures() {
		for _, text := range []string{svg, Standalone(svg)} {
			d := xml.NewDecoder(strings.NewReader(text))
			titled := false
			for {
				token, err := d.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("%s: %v\n%s", name, err, text)
				}
				if e, ok := token.(xml.StartElement); ok {
					titled = titled || e.Name.Local == "title"
					if e.Name.Local == "script" {
						t.Errorf("%s holds a script", name)
					}
				}
			}
			if !titled || strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
				t.Errorf("%s: no title, or a coordinate that is no number:\n%s", name, text)
			}
		}
	}
}

func TestTicks(t *testing.T) {
	cases := []struct {
		s    scale
		n    int
		want []float64
	}{
		{scale{min: 0, max: 10}, 5, []float64{0, 2, 4, 6, 8, 10}},
		{scale{min: -1, max: 1}, 4, []float64{-1, -0.5, 0, 0.5, 1}},
		{scale{min: 0, max: 0}, 4, []float64{0}},
		{scale{min: 1e-3, max: 1e3, log: true}, 3, []float64{1e-3, 1e-1, 10, 1e3}},
		{scale{min: 2, max: 300, log: true}, 5, []float64{10, 100}},
	}
	for _, c := range cases {
		got := c.s.ticks(c.n)
		if len(got) != len(c.want) {
			t.Errorf("%+v: %v, want %v", c.s, got, c.want)
			continue
		}
		for i := range got {
			if math.Abs(got[i]-c.want[i]) > 1e-9 {
				t.Errorf("%+v: %v, want %v", c.s, got, c.want)
			}
		}
	}
}

func TestAreaLeavesOutEmptyBins(t *testing.T) {
	got := area([]float64{0, 2, 1, 0, 2}, scale{from: 0, to: 50}, 10, -10, 2)
	if want := "M10 10V0H20V5H30V10ZM40 10V0H50V10Z"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestScaleMapsItsEnds(t *testing.T) {
	got := []float64{}
	for _, s := range []scale{{min: 2, max: 4, from: 10, to: 0}, {min: 1, max: 100, from: 0, to: 10, log: true}} {
		got = append(got, s.at(s.min), s.at(s.max))
	}
	got = append(got, scale{min: 1, max: 100, from: 0, to: 10, log: true}.at(10), scale{min: 1, max: 10, from: 0, to: 1, log: true}.at(0))
	if want := []float64{10, 0, 0, 10, 5, 0}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
