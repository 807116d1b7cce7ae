package plot

import (
	"fmt"
	"strings"
)

// Lanes is a timeline with one lane for each path: upstream above its middle line, downstream below.
type Lanes struct {
	Title, Description string
	Width              float64
	Seconds            float64 // length of the time axis
	Lanes              []Lane
	Format             func(bytesPerSecond float64) string // formats the peak of each direction
}

// Lane is the traffic of one path, with a value for each of the equal bins of the time axis.
type Lane struct {
	Label    string
	Up, Down []float64 // bytes a second
	Colour   int
}

const (
	laneHeight = 78.0
	laneLabel  = 110.0
)

// SVG draws the timeline. Each direction has one height scale for all lanes.
func (l Lanes) SVG() string {
	height := marginTop + laneHeight*float64(len(l.Lanes)) + marginBottom
	v := newCanvas(l.Width, height, l.Title, l.Description)
	v.text(0, 14, start, "name", l.Title)
	var up, down float64
	for _, lane := range l.Lanes {
		for i := range lane.Up {
			up, down = max(up, lane.Up[i]), max(down, lane.Down[i])
		}
	}
	x := scale{max: max(l.Seconds, 1e-9), from: laneLabel, to: l.Width - marginRight}
	bottom := height - marginBottom
	for _, t := range x.ticks(10) {
		v.line(x.at(t), marginTop, x.at(t), bottom+4)
		v.text(x.at(t), bottom+17, middle, "soft", plain(t))
	}
	v.text((x.from+x.to)/2, bottom+34, middle, "soft", fmt.Sprintf("seconds; full height is %s up, %s down",
		l.Format(up), l.Format(down)))
	for i, lane := range l.Lanes {
		top := marginTop + laneHeight*float64(i)
		lane.draw(v, x, top, up, down)
	}
	return v.done()
}

func (l Lane) draw(v *canvas, x scale, top, up, down float64) {
	centre := top + laneHeight/2
	const reach = laneHeight/2 - 5
	v.text(0, centre+4, start, "name", l.Label)
	v.text(laneLabel-8, centre-12, end, "soft", "up")
	v.text(laneLabel-8, centre+20, end, "soft", "down")
	v.fill(area(l.Up, x, centre, -reach, up), l.Colour, 0.75)
	v.fill(area(l.Down, x, centre, reach, down), l.Colour, 1)
	v.line(x.from, centre, x.to, centre)
}

// area is the outline of the bins' values, from the middle line outwards. Empty bins take no space in it.
func area(values []float64, x scale, centre, reach, most float64) string {
	var d strings.Builder
	if most == 0 {
		return ""
	}
	width := (x.to - x.from) / float64(max(len(values), 1))
	inside := false
	for i, value := range values {
		if value == 0 {
			if inside {
				fmt.Fprintf(&d, "V%sZ", num(centre))
			}
			inside = false
			continue
		}
		if !inside {
			fmt.Fprintf(&d, "M%s %s", num(x.from+float64(i)*width), num(centre))
		}
		inside = true
		fmt.Fprintf(&d, "V%sH%s", num(centre+reach*value/most), num(x.from+float64(i+1)*width))
	}
	if inside {
		fmt.Fprintf(&d, "V%sZ", num(centre))
	}
	return d.String()
}
