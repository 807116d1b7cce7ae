package asim

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"heddle/experiments/bench"
	"heddle/internal/text"
)

// Report is the result of a simulation: a bench report in which each round is a set of nodes, and its inputs.
type Report struct {
	bench.Report
	Seed  uint64 `json:"seed"`
	Graph About  `json:"graph"`
	// Inexact counts the choices that are not proved optimal, since the search would have taken too long.
	Inexact int `json:"inexact"`
}

// About describes the graph.
type About struct {
	File  string `json:"file"`
	ASes  int    `json:"ases"`
	Links int    `json:"links"`
}

// The names of the metrics in a report.
const (
	// metricCommon is the mean number of ASes, except the server's, that see both paths of a pair.
	metricCommon = "common ASes"
	// metricTransit excludes the networks that the client is in as well.
	metricTransit = "common transit ASes"
)

// metricShares are the shares of choices by their number of common transit ASes per pair.
var metricShares = [4]string{"share with 0", "share with up to 1", "share with up to 2", "share with more"}

// Simulate draws sets of nodes and clients, and reports how many ASes see two paths of a choice.
func Simulate(ctx context.Context, g *Graph, o Options) (Report, error) {
	table := bench.NewTable("asim")
	report := Report{Seed: o.Seed, Graph: About{ASes: g.Len(), Links: g.Links()}}
	if err := o.Check(g); err != nil {
		return report, err
	}
	sets, err := simulate(ctx, g, o)
	for _, h := range Homings {
		for _, n := range o.Candidates {
			for _, pick := range Picks {
				for round, set := range sets {
					if s := set[key{h, n, pick}]; s != nil {
						report.Inexact += s.inexact
						s.tabulate(table, key{h, n, pick}, round)
					}
				}
			}
		}
	}
	report.Report = table.Report()
	return report, err
}

func (k key) name(pick string) string { return fmt.Sprintf("%s/%d/%s", k.homing, k.candidates, pick) }

// tabulate adds the means over the clients of one set. Best choices are compared with random ones.
func (s *sums) tabulate(table *bench.Table, k key, round int) {
	f := bench.Figure{Case: k.name(k.pick), Group: string(k.homing)}
	for i := 1; i < len(Picks); i += 2 {
		if k.pick == Picks[i] {
			f.Baseline = k.name(Picks[i-1])
		}
	}
	add := func(metric, unit string, value float64) {
		f.Metric, f.Unit = metric, unit
		table.Add(f, round, value/float64(s.n))
	}
	add(metricCommon, "ASes a pair", s.common)
	add(metricTransit, "ASes a pair", s.transit)
	for i, share := range s.share {
		add(metricShares[i], "of choices", float64(share))
	}
}

// WriteJSON writes the report as indented JSON.
func (r Report) WriteJSON(w io.Writer) error { return bench.WriteJSON(w, r) }

// WritePlot draws the means and the share of choices without a common transit AS, with a chart for each homing.
func (r Report) WritePlot(w io.Writer) error {
	drawn := r.Report
	drawn.Rows = slices.DeleteFunc(slices.Clone(r.Rows), func(row bench.Row) bool { return row.Metric != metricTransit && row.Metric != metricShares[0] })
	return drawn.WritePlot(w)
}

// WriteTable writes a line for each case.
func (r Report) WriteTable(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "CASE\tSETS\tCOMMON\tOF RANDOM\tTRANSIT\tMIN\tMAX\t0\tTO 1\tTO 2\tMORE\t")
	for i := 0; i < len(r.Rows); {
		byMetric := map[string]bench.Row{}
		first := r.Rows[i]
		for ; i < len(r.Rows) && r.Rows[i].Case == first.Case; i++ {
			byMetric[r.Rows[i].Metric] = r.Rows[i]
		}
		common, transit, ratio := byMetric[metricCommon], byMetric[metricTransit], "-"
		if common.Ratio != nil {
			ratio = fmt.Sprintf("%.2f", *common.Ratio)
		}
		fmt.Fprintf(table, "%s\t%d\t%.2f\t%s\t%.2f\t%.2f\t%.2f\t", first.Case, first.N, common.Median, ratio, transit.Median, transit.Min, transit.Max)
		for _, m := range metricShares {
			fmt.Fprint(table, text.Percent(byMetric[m].Median), "\t")
		}
		fmt.Fprintln(table)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, `
COMMON is the number of ASes that see both paths of a pair, but for the server's
own, which sees all; TRANSIT leaves out the networks that the client is in. Both
are means over clients, the median over the sets of nodes; MIN and MAX are over
the sets. The percentages say how often TRANSIT was 0, up to 1, up to 2, or more.
%d ASes, %d links, seed %d; %d choices not proved best; %s; load %.2f to %.2f
`, r.Graph.ASes, r.Graph.Links, r.Seed, r.Inexact, r.Machine, r.Load.Start, r.Load.End)
	return err
}
