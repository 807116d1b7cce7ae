package bench

// Table collects measurements for a [Report]. It serves one goroutine.
type Table struct {
	report  Report
	rows    []Figure
	index   map[string]int // by case and metric
	samples [][]sample     // of each row
}

// NewTable starts a report of a bench, and records the machine and its load.
func NewTable(bench string) *Table {
	return &Table{report: Report{Bench: bench, Machine: thisMachine(), Load: Load{Start: loadNow()}}, index: map[string]int{}}
}

// Figure describes what is measured.
type Figure struct {
	Case, Metric, Unit string
	Group              string // first words of Case; a plot has a chart for each
	// Baseline is the case to compare with, by the same metric in the same round; empty for none.
	Baseline string
	Paper    *float64 // the published figure, or nil
	Goal     string   // the goal, such as ">=0.97", or empty

	spot spot // in the plot; the zero value is by Case and Group
}

// Add adds the value of a figure in one round. Rows are in the order of their first value.
func (t *Table) Add(f Figure, round int, value float64) {
	key := f.Case + "\x00" + f.Metric
	i, ok := t.index[key]
	if !ok {
		i = len(t.rows)
		t.index[key] = i
		t.rows = append(t.rows, f)
		t.samples = append(t.samples, nil)
	}
	t.samples[i] = append(t.samples[i], sample{round, value})
}

// Report summarises the measurements.
func (t *Table) Report() Report {
	r := t.report
	r.Load.End, r.Rows = loadNow(), []Row{}
	for i, row := range t.rows {
		baseline, base := row.Case, []sample(nil)
		if j, ok := t.index[row.Baseline+"\x00"+row.Metric]; ok && row.Baseline != "" && j != i {
			baseline, base = row.Baseline, t.samples[j]
		}
		sum := newRow(row.Case, t.samples[i], baseline, base)
		sum.Metric, sum.Unit, sum.topology, sum.Paper, sum.goal, sum.spot = row.Metric, row.Unit, row.Group, row.Paper, row.Goal, row.spot
		r.Rows = append(r.Rows, sum)
	}
	return r
}
