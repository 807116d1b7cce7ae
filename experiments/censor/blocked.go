package censor

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"heddle/experiments/bench"
)

// Blocked is what [Tor] found: whether Tor works by each way under each attack.
type Blocked struct {
	table   *bench.Table
	attacks []string
	cells   map[[2]string]cell // by attack and way
	strikes map[string]Struck
}

func (b *Blocked) add(attack, way string, c cell) {
	if b.cells == nil {
		b.cells, b.strikes = map[[2]string]cell{}, map[string]Struck{}
	}
	if !slices.Contains(b.attacks, attack) {
		b.attacks = append(b.attacks, attack)
	}
	b.cells[[2]string{attack, way}] = c
	for _, f := range []struct {
		metric, unit string
		value        float64
	}{{"bootstrap", "%", c.bootstrap}, {"fetched", "kB", float64(c.fetched) / 1000}, {"time", "s", c.seconds}} {
		b.table.Add(bench.Figure{Case: attack + "/" + way + "/" + f.metric, Metric: f.metric, Unit: f.unit, Group: attack,
			Baseline: noAttack + "/" + way + "/" + f.metric}, 0, f.value)
	}
}

// struck keeps what an attack did.
func (b *Blocked) struck(attack string, s Status) {
	b.strikes[attack] = s.Attacks[0]
	b.table.Add(bench.Figure{Case: attack + "/censor/connections", Metric: "connections", Group: attack}, 0, float64(s.Attacks[0].Connections))
	b.table.Add(bench.Figure{Case: attack + "/censor/segments", Metric: "segments", Group: attack}, 0, float64(s.Attacks[0].Segments))
	b.table.Add(bench.Figure{Case: attack + "/censor/probed", Metric: "servers", Group: attack}, 0, float64(s.Probed))
}

// WriteJSON writes a [bench.Report] as indented JSON.
func (b *Blocked) WriteJSON(w io.Writer) error { return b.table.Report().WriteJSON(w) }

// WriteTable writes a line for each attack, with a column for each way.
func (b *Blocked) WriteTable(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head, tried := "ATTACK", []string{}
	for _, name := range WayNames() {
		if slices.ContainsFunc(b.attacks, func(attack string) bool { _, ok := b.cells[[2]string{attack, name}]; return ok }) {
			tried = append(tried, name)
			head += "\t" + name
		}
	}
	fmt.Fprintln(table, head+"\tCUT\tCHANGED")
	for _, attack := range b.attacks {
		fmt.Fprint(table, attack)
		for _, name := range tried {
			fmt.Fprint(table, "\t", b.cells[[2]string{attack, name}])
		}
		s := b.strikes[attack]
		fmt.Fprintf(table, "\t%d\t%d\n", s.Connections, s.Segments-s.Connections)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	report := b.table.Report()
	_, err := fmt.Fprintf(w, "\nyes: Tor bootstraps and fetches 1 MB; %%: how far it bootstraps; kB: what it fetches after that\n"+
		"CUT: connections that the censor cut; CHANGED: segments that it changed or held back\n%s; load %.2f to %.2f\n",
		report.Machine, report.Load.Start, report.Load.End)
	return err
}

// String is what the table says of a cell.
func (c cell) String() string {
	switch {
	case c.bootstrap < 100:
		return fmt.Sprintf("%.0f %%", c.bootstrap)
	case c.fetched < torBytes:
		return fmt.Sprintf("%d kB", c.fetched/1000)
	}
	return fmt.Sprintf("yes, %.0f s", c.seconds)
}

// torBytes is the size of the file.
const torBytes = 1_000_000
