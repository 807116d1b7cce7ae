package bench

import (
	"fmt"
	"html"
	"io"
	"strings"

	"heddle/observe/plot"
)

const plotWidth, plotHeight = 720, 260

// WritePlot writes one SVG with a chart for each group of cases: median, minimum and maximum of each case. A dashed
// line, or a series beside ours, is the paper's figure, relative to the baseline.
func (r Report) WritePlot(w io.Writer) error {
	groups, rows := r.groups()
	var b strings.Builder
	title := html.EscapeString("heddle lab bench " + r.Bench)
	fmt.Fprintf(&b, `<svg class="plot" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">`,
		plotWidth, plotHeight*len(groups), title)
	fmt.Fprintf(&b, "<title>%s</title><desc>%s</desc>\n", title, html.EscapeString(r.Machine.String()))
	for i, group := range groups {
		fmt.Fprintf(&b, `<svg y="%d" width="%d" height="%d">`+"\n%s</svg>\n", i*plotHeight, plotWidth, plotHeight, chart(group, rows[group]).SVG())
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, plot.Standalone(b.String()))
	return err
}

// spot is the place of a row in a plot: a chart, a name on its axis and a series.
type spot struct{ chart, place, series string }

// groups groups the rows by chart, else by topology and metric, since a chart has one value axis. It keeps the order of the report.
func (r Report) groups() (names []string, rows map[string][]Row) {
	rows = map[string][]Row{}
	for _, row := range r.Rows {
		group := row.spot.chart
		if group == unplotted {
			continue
		}
		if group == "" {
			group = row.topology
			if len(rows[group]) > 0 && rows[group][0].Metric != row.Metric {
				group += ", " + row.Metric
			}
		}
		if rows[group] == nil {
			names = append(names, group)
		}
		rows[group] = append(rows[group], row)
	}
	return names, rows
}

// at is the row's spot. Without one the case TOPOLOGY/NAME/SERIES says it.
func (r Row) at() spot {
	if r.spot.chart != "" {
		return r.spot
	}
	s := spot{chart: r.topology, place: strings.TrimPrefix(r.Case, r.topology+"/")}
	if cut := strings.LastIndexByte(s.place, '/'); cut >= 0 {
		s.place, s.series = s.place[:cut], s.place[cut+1:]
	}
	return s
}

// chart draws rows of one group. The paper's figures are a line if the rows have no spot of their own, and else series beside ours.
func chart(group string, rows []Row) plot.Chart {
	c := plot.Chart{Title: group, Width: plotWidth, Height: plotHeight, Y: plot.Axis{Label: rows[0].Metric + ", " + rows[0].Unit}}
	places, series := map[string]int{}, map[string]int{}
	add := func(at spot, y, low, high float64) {
		if _, ok := places[at.place]; !ok {
			places[at.place] = len(places)
			c.X.Names = append(c.X.Names, at.place)
		}
		if _, ok := series[at.series]; !ok {
			series[at.series] = len(series)
			c.Series = append(c.Series, plot.Series{Label: at.series, Kind: plot.Line, Colour: len(series) - 1})
		}
		s := &c.Series[series[at.series]]
		s.X, s.Y = append(s.X, float64(places[at.place])), append(s.Y, y)
		s.Low, s.High = append(s.Low, low), append(s.High, high)
	}
	medians := map[string]float64{}
	least, most := rows[0].Min, rows[0].Max
	for _, row := range rows {
		medians[row.Case] = row.Median
		least, most = min(least, row.Min), max(most, row.Max)
		at := row.at()
		add(at, row.Median, row.Min, row.Max)
		if row.Paper == nil {
			continue
		}
		published := *row.Paper * medians[row.Baseline]
		if row.spot.chart != "" {
			at.series += ", paper"
			add(at, published, published, published)
		} else if c.Rule == nil {
			c.Rule = &published
			c.Title = fmt.Sprintf("%s (dashed: the paper's %.3f of %s)", group, *row.Paper, row.Baseline)
		}
	}
	const wide = 30 // times the least value, which a linear axis would not show
	c.Y.Log = rows[0].spot.chart != "" && least > 0 && most > wide*least
	c.Description = fmt.Sprintf("%s by case: median, least and most of the rounds", rows[0].Metric)
	return c
}
