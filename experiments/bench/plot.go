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
// line is the paper's figure, relative to the baseline.
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

// groups groups the rows by topology and metric, since a chart has one value axis. It keeps the order of the report.
func (r Report) groups() (names []string, rows map[string][]Row) {
	rows = map[string][]Row{}
	for _, row := range r.Rows {
		group := row.topology
		if len(rows[group]) > 0 && rows[group][0].Metric != row.Metric {
			group += ", " + row.Metric
		}
		if rows[group] == nil {
			names = append(names, group)
		}
		rows[group] = append(rows[group], row)
	}
	return names, rows
}

// chart has a series for each last word of the cases TOPOLOGY/NAME/SERIES, and an axis position for each NAME.
func chart(group string, rows []Row) plot.Chart {
	c := plot.Chart{Title: group, Width: plotWidth, Height: plotHeight, Y: plot.Axis{Label: rows[0].Metric + ", " + rows[0].Unit}}
	places, series := map[string]int{}, map[string]int{}
	medians := map[string]float64{}
	for _, row := range rows {
		medians[row.Case] = row.Median
		name, last := strings.TrimPrefix(row.Case, row.topology+"/"), ""
		if cut := strings.LastIndexByte(name, '/'); cut >= 0 {
			name, last = name[:cut], name[cut+1:]
		}
		if _, ok := places[name]; !ok {
			places[name] = len(places)
			c.X.Names = append(c.X.Names, name)
		}
		if _, ok := series[last]; !ok {
			series[last] = len(series)
			c.Series = append(c.Series, plot.Series{Label: last, Kind: plot.Line, Colour: len(series) - 1})
		}
		s := &c.Series[series[last]]
		s.X, s.Y = append(s.X, float64(places[name])), append(s.Y, row.Median)
		s.Low, s.High = append(s.Low, row.Min), append(s.High, row.Max)
		if row.Paper != nil && c.Rule == nil {
			rule := *row.Paper * medians[row.Baseline]
			c.Rule = &rule
			c.Title = fmt.Sprintf("%s (dashed: the paper's %.3f of %s)", group, *row.Paper, row.Baseline)
		}
	}
	c.Description = fmt.Sprintf("%s by case: median, least and most of the rounds", rows[0].Metric)
	return c
}
