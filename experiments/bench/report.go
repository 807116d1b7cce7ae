package bench

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"heddle/lab"
)

// Report is the result of a bench. Its JSON fields are a stable interface.
type Report struct {
	Bench   string  `json:"bench"`
	Machine Machine `json:"machine"`
	Load    Load    `json:"load"`
	// LatenessMS is the lateness, in milliseconds, of the run with the highest mean; zero without emulated links.
	LatenessMS lab.Lateness `json:"lateness_ms"`
	Rejected   int          `json:"rejected"` // runs repeated for late links or a failed peer
	Rows       []Row        `json:"rows"`
}

// Row is one case.
type Row struct {
	Case   string  `json:"case"` // slash-separated, most general first
	Metric string  `json:"metric"`
	Unit   string  `json:"unit"`
	N      int     `json:"n"` // rounds
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// Baseline is the case to compare with, and Ratio the median of the per-round ratios. A baseline has neither.
	Baseline string   `json:"baseline"`
	Ratio    *float64 `json:"ratio"`
	Paper    *float64 `json:"paper"` // the published ratio, or nil

	topology string // first words of Case
	goal     string // the goal, such as ">=0.97", or empty
	spot     spot
}

// sample is one measurement of one case in one round.
type sample struct {
	round int
	value float64
}

// newRow summarises the samples of a case, and compares them with its baseline's in the same rounds.
func newRow(name string, samples []sample, baseline string, base []sample) Row {
	values := make([]float64, 0, len(samples))
	var ratios []float64
	for _, s := range samples {
		values = append(values, s.value)
		for _, b := range base {
			if b.round == s.round && b.value > 0 {
				ratios = append(ratios, s.value/b.value)
			}
		}
	}
	row := Row{Case: name, N: len(values), Median: median(values)}
	if len(values) > 0 {
		row.Min, row.Max = slices.Min(values), slices.Max(values)
	}
	if name != baseline {
		row.Baseline = baseline
		if len(ratios) > 0 {
			r := median(ratios)
			row.Ratio = &r
		}
	}
	return row
}

// median returns the median, or 0 for no values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// WriteJSON writes the report as indented JSON.
func (r Report) WriteJSON(w io.Writer) error { return WriteJSON(w, r) }

// WriteJSON writes a report as indented JSON.
func WriteJSON(w io.Writer, report any) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(report)
}

// WriteTable writes the report as a text table.
func (r Report) WriteTable(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	goals := slices.ContainsFunc(r.Rows, func(row Row) bool { return row.goal != "" })
	goal := func(text string) string {
		if !goals {
			return ""
		}
		return text + "\t"
	}
	fmt.Fprintln(table, "CASE\tN\tMEDIAN\tMIN\tMAX\tUNIT\tRATIO\tPAPER\t"+goal("GOAL")+"TO\t")
	for _, row := range r.Rows {
		fmt.Fprintf(table, "%s\t%d\t%.2f\t%.2f\t%.2f\t%s\t%s\t%s\t%s%s\t\n", row.Case, row.N, row.Median, row.Min, row.Max, row.Unit,
			optional(row.Ratio), optional(row.Paper), goal(cmp.Or(row.goal, "-")), cmp.Or(row.Baseline, "-"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s; load %.2f to %.2f\nemulated links late by %.3f ms on average, p99 %.3f ms, in the worst run; %d runs repeated\n",
		r.Machine, r.Load.Start, r.Load.End, r.LatenessMS.Mean, r.LatenessMS.P99, r.Rejected)
	return err
}

func optional(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.3f", *v)
}
