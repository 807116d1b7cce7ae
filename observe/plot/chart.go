package plot

import (
	"fmt"
	"math"
	"strings"
)

// Kind is how a series is drawn.
type Kind int

// The kinds of series.
const (
	Line Kind = iota // marked points joined by lines; with Low and High also the spread
	Step             // a value that holds until the next X
	Bars             // Y[i] from X[i] to X[i+1]: X has one more element, as in a histogram
)

// Series is one set of values.
type Series struct {
	Label     string
	Kind      Kind
	X, Y      []float64
	Low, High []float64 // the spread of each Y, or nil
	Colour    int       // index in the palette
}

// Axis is one side of a chart.
type Axis struct {
	Label  string
	Log    bool                 // logarithmic; values <= 0 are drawn at the lower end
	Names  []string             // names of the values 0, 1, 2 .. instead of numbers
	Format func(float64) string // nil for plain numbers
}

// Chart is a set of series over one pair of axes.
type Chart struct {
	Title, Description string // Description is for screen readers
	Width, Height      float64
	X, Y               Axis
	Series             []Series
	Rule               *float64 // a line at this Y, such as the published figure
}

const (
	marginLeft, marginRight = 58.0, 22.0
	marginTop, marginBottom = 30.0, 42.0
	legendHeight            = 18.0
)

// SVG draws the chart.
func (c Chart) SVG() string {
	entries, legend := c.legendEntries()
	v := newCanvas(c.Width, c.Height, c.Title, c.Description)
	v.text(0, 14, start, "name", c.Title)
	x := c.scale(c.X, true, marginLeft, c.Width-marginRight)
	y := c.scale(c.Y, false, c.Height-marginBottom, marginTop+legend)
	c.axes(v, x, y)
	if legend > 0 {
		c.legend(v, entries)
	}
	for i, s := range c.Series {
		s.draw(v, x, y, dashes[i%len(dashes)])
	}
	if c.Rule != nil {
		v.stroke(fmt.Sprintf("M%s %sH%s", num(x.from), num(y.at(*c.Rule)), num(x.to)), colours-1, "4 4")
	}
	return v.done()
}

// scale fits an axis to the values of the series.
func (c Chart) scale(a Axis, horizontal bool, from, to float64) scale {
	s := scale{min: math.Inf(1), max: math.Inf(-1), from: from, to: to, log: a.Log}
	take := func(values []float64) {
		for _, v := range values {
			if a.Log && v <= 0 || math.IsNaN(v) || math.IsInf(v, 0) {
				continue
			}
			s.min, s.max = min(s.min, v), max(s.max, v)
		}
	}
	for _, series := range c.Series {
		if horizontal {
			take(series.X)
			continue
		}
		take(series.Y)
		take(series.Low)
		take(series.High)
	}
	switch {
	case len(a.Names) > 0:
		s.min, s.max = -0.5, float64(len(a.Names))-0.5
	case !horizontal && !a.Log:
		s.min, s.max = min(s.min, 0), s.max*1.05
	}
	if !(s.max > s.min) { // at most one value
		s.min, s.max = 0, max(s.max, 1)
		if a.Log {
			s.min, s.max = 1, 10
		}
		if math.IsInf(s.max, 0) {
			s.max = 1
		}
	}
	return s
}

func (c Chart) axes(v *canvas, x, y scale) {
	format := func(a Axis, value float64) string {
		if a.Format != nil {
			return a.Format(value)
		}
		return plain(value)
	}
	for _, t := range y.ticks(4) {
		v.line(x.from, y.at(t), x.to, y.at(t))
		v.text(x.from-6, y.at(t)+4, end, "soft", format(c.Y, t))
	}
	v.line(x.from, y.from, x.to, y.from)
	for i, n := range c.X.Names {
		v.text(x.at(float64(i)), y.from+16, middle, "soft", n)
	}
	if c.X.Names == nil {
		for _, t := range x.ticks(7) {
			v.line(x.at(t), y.from, x.at(t), y.from+4)
			v.text(x.at(t), y.from+17, middle, "soft", format(c.X, t))
		}
	}
	v.text((x.from+x.to)/2, y.from+34, middle, "soft", c.X.Label)
	v.sideways(12, (y.from+y.to)/2, c.Y.Label)
}

// legendEntries returns where the legend has each series, in as many lines as it takes, and its height. One series has none.
func (c Chart) legendEntries() (at [][2]float64, height float64) {
	if len(c.Series) < 2 {
		return nil, 0
	}
	x, y := marginLeft, marginTop
	for _, s := range c.Series {
		const letter = 6.6
		text := 30 + letter*float64(len(s.Label))
		if x > marginLeft && x+text > c.Width {
			x, y = marginLeft, y+legendHeight
		}
		at = append(at, [2]float64{x, y})
		x += text + 20
	}
	return at, y - marginTop + legendHeight
}

func (c Chart) legend(v *canvas, entries [][2]float64) {
	for i, s := range c.Series {
		at, y := entries[i][0], entries[i][1]
		if s.Kind == Bars {
			v.rect(at, y-5, 10, 10, s.Colour, 1, s.Label)
		} else {
			v.stroke(fmt.Sprintf("M%s %sh24", num(at), num(y)), s.Colour, dashes[i%len(dashes)])
		}
		v.text(at+30, y+4, start, "soft", s.Label)
	}
}

// dashes distinguish lines without colour.
var dashes = []string{"none", "7 3", "2 3", "9 3 2 3", "4 2", "1 2"}

func (s Series) draw(v *canvas, x, y scale, dash string) {
	var d strings.Builder
	for i := range s.Y {
		px, py := x.at(s.X[i]), y.at(s.Y[i])
		switch {
		case s.Kind == Bars:
			v.rect(px, py, x.at(s.X[i+1])-px-1, y.from-py, s.Colour, 0.9, fmt.Sprintf("%s: %s", s.Label, plain(s.Y[i])))
			continue
		case i == 0:
			fmt.Fprintf(&d, "M%s %s", num(px), num(py))
		case s.Kind == Step:
			fmt.Fprintf(&d, "H%sV%s", num(px), num(py))
		default:
			fmt.Fprintf(&d, "L%s %s", num(px), num(py))
		}
		if s.Low != nil && s.High != nil {
			v.stroke(fmt.Sprintf("M%s %sV%s", num(px), num(y.at(s.Low[i])), num(y.at(s.High[i]))), s.Colour, "none")
		}
		if s.Kind == Line {
			v.rect(px-3, py-3, 6, 6, s.Colour, 1, fmt.Sprintf("%s: %s", s.Label, plain(s.Y[i])))
		}
	}
	if s.Kind != Bars && d.Len() > 0 {
		v.stroke(d.String(), s.Colour, dash)
	}
}
