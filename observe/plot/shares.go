package plot

import (
	"fmt"

	"heddle/internal/text"
)

// Shares is a chart with a bar for each direction of each observer.
type Shares struct {
	Title, Description string
	Width              float64
	Groups             []ShareGroup
}

// ShareGroup is the observers of one session.
type ShareGroup struct {
	Label string
	Rows  []ShareRow
}

// ShareRow is one observer; Up and Down are from 0 to 1.
type ShareRow struct {
	Label    string
	Up, Down float64
	Colour   int
}

// SVG draws the bars.
func (s Shares) SVG() string {
	const groupHead, row, bar = 26.0, 40.0, 14.0
	height := marginTop + 22
	for _, g := range s.Groups {
		height += groupHead + row*float64(len(g.Rows))
	}
	v := newCanvas(s.Width, height, s.Title, s.Description)
	v.text(0, 14, start, "name", s.Title)
	x := scale{max: 1, from: laneLabel + 40, to: s.Width - 60}
	for _, t := range []float64{0, 0.25, 0.5, 0.75, 1} {
		v.line(x.at(t), marginTop, x.at(t), height-20)
		v.text(x.at(t), height-5, middle, "soft", fmt.Sprintf("%.0f %%", t*100))
	}
	y := marginTop
	for _, g := range s.Groups {
		v.text(0, y+17, start, "soft", g.Label)
		y += groupHead
		for _, r := range g.Rows {
			v.text(0, y+bar+4, start, "name", r.Label)
			for i, part := range []struct {
				name  string
				value float64
				shade float64
			}{{"up", r.Up, 0.75}, {"down", r.Down, 1}} {
				top := y + float64(i)*(bar+2)
				label := text.Percent(part.value)
				v.text(x.from-6, top+bar-3, end, "soft", part.name)
				v.rect(x.from, top, x.at(part.value)-x.from, bar, r.Colour, part.shade, r.Label+" "+part.name+" "+label)
				v.text(x.at(part.value)+6, top+bar-3, start, "", label)
			}
			y += row
		}
	}
	return v.done()
}
