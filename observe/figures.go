package observe

import (
	"fmt"
	"math"
	"strconv"

	"heddle/internal/text"
	"heddle/observe/plot"
)

const (
	pageWidth = 880.0
	halfWidth = 430.0
	timeBins  = 440
)

// timeline draws how much each observer saw over time. The first observer has the given colour.
func (s *Session) timeline(colour int) string {
	length := max(s.Duration().Seconds(), 1e-3)
	start := s.Start()
	lanes := plot.Lanes{Title: s.Label + ": who saw what, and when", Width: pageWidth, Seconds: length,
		Description: fmt.Sprintf("Bytes over %.1f seconds for each of %s, up and down.", length, text.Count(len(s.Observers), "observer")),
		Format:      func(v float64) string { return text.Size(int64(v)) + "/s" }}
	perSecond := timeBins / length
	for i, o := range s.Observers {
		lane := plot.Lane{Label: o.Name, Up: make([]float64, timeBins), Down: make([]float64, timeBins), Colour: colour + i}
		for _, p := range o.Packets {
			bin := min(int(p.Time.Sub(start).Seconds()*perSecond), timeBins-1)
			bytes := lane.Down
			if p.Out {
				bytes = lane.Up
			}
			bytes[bin] += float64(p.Size) * perSecond
		}
		lanes.Lanes = append(lanes.Lanes, lane)
	}
	return lanes.SVG()
}

func shareBars(r Report) string {
	s := plot.Shares{Title: "Share of the session that each observer saw", Width: pageWidth,
		Description: "Share of the bytes up and down, for each observer."}
	colour := 0
	for _, session := range r.sessions() {
		g := plot.ShareGroup{Label: session.Label}
		for _, e := range session.Observers {
			g.Rows = append(g.Rows, plot.ShareRow{Label: e.Observer, Up: e.Up.Share, Down: e.Down.Share, Colour: colour})
			colour++
		}
		s.Groups = append(s.Groups, g)
	}
	return s.SVG()
}

const (
	gapFirst, gapLast = -6, 2 // powers of ten, in seconds
	gapBins           = 4     // in each power of ten
	sizeBin           = 50    // bytes
	sizeBins          = 31    // the last one has all larger packets
)

// gaps is the histogram of the times between packets in either direction, in logarithmic bins.
func (o *Observer) gaps(colour int) string {
	const bins = (gapLast - gapFirst) * gapBins
	s := plot.Series{Label: "share of packets", Kind: plot.Bars, Y: make([]float64, bins), Colour: colour}
	for i := range bins + 1 {
		s.X = append(s.X, math.Pow(10, gapFirst+float64(i)/gapBins))
	}
	for i := 1; i < len(o.Packets); i++ {
		gap := o.Packets[i].Time.Sub(o.Packets[i-1].Time).Seconds()
		bin := int((math.Log10(math.Max(gap, s.X[0])) - gapFirst) * gapBins)
		s.Y[min(max(bin, 0), bins-1)] += 100 / float64(len(o.Packets)-1)
	}
	return plot.Chart{Title: "Time between packets", Width: halfWidth, Height: 230,
		Description: "Histogram of the time from each packet to the next at " + o.Name,
		X:           plot.Axis{Label: "time between packets (shorter ones in the first bar)", Log: true, Format: shortTime},
		Y:           plot.Axis{Label: "% of packets"}, Series: []plot.Series{s}}.SVG()
}

// shortTime writes a time with one unit, as "10 ms".
func shortTime(s float64) string {
	for _, unit := range []struct {
		name string
		size float64
	}{{"s", 1}, {"ms", 1e-3}, {"µs", 1e-6}} {
		if s >= unit.size*0.9995 || unit.size == 1e-6 {
			return strconv.FormatFloat(s/unit.size, 'g', 3, 64) + " " + unit.name
		}
	}
	return ""
}

// sizes is the histogram of packet sizes, up and down.
func (o *Observer) sizes(colour int) string {
	direction := func(label string, out bool) plot.Series {
		s := plot.Series{Label: label, Kind: plot.Step, Colour: colour, Y: make([]float64, sizeBins+1)}
		count := 0.0
		for _, p := range o.Packets {
			if p.Out == out {
				s.Y[min(p.Size/sizeBin, sizeBins-1)]++
				count++
			}
		}
		for i := range s.Y {
			s.X = append(s.X, float64(i*sizeBin))
			s.Y[i] *= 100 / max(count, 1)
		}
		return s
	}
	return plot.Chart{Title: "Sizes of packets", Width: halfWidth, Height: 230,
		Description: "Histogram of the size of packets up and down at " + o.Name,
		X:           plot.Axis{Label: "bytes of the IP packet (1,500 and more together)"},
		Y:           plot.Axis{Label: "% of the direction"}, Series: []plot.Series{direction("up", true), direction("down", false)}}.SVG()
}
