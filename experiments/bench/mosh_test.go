package bench

import (
	"errors"
	"strings"
	"testing"
	"time"

	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// One run of two cases, for what they measure: mosh-server sends at most fifty times a second, each time most of a screen.
func TestMoshMeasuresAScreenThatChanges(t *testing.T) {
	labtest.Need(t)
	equal := moshTopologies(false, 0, time.Second)[0]
	t.Cleanup(func() {
		if err := equal.down(); err != nil {
			t.Error(err)
		}
	})
	err := equal.up(t.Context(), &stage{heddle: labtest.Heddle, work: t.TempDir()})
	if errors.Is(err, peer.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range equal.cases[len(equal.cases)-2:] { // the shortest period, and mosh by itself
		figures := persistent(t, v, equal.stage)
		for i, most := range []float64{2000, 52} { // kbit/s: 50 screens of under 4 kB, and their headers
			if f := figures[i]; f.value <= 0 || f.value > most {
				t.Errorf("%s/%s: %.1f %s", v.name, f.name, f.value, f.unit)
			}
		}
	}
}

// Rates and screens have no axis in common.
func TestMoshPlotHasAChartForEachUnit(t *testing.T) {
	r := quiet(Mosh())
	for _, v := range r.kept[0].cases {
		r.keep(r.kept[0], v, 0, []figure{{"down", "throughput", "kbit/s", 700}, {"screens", "updates", "1/s", 50}}, lab.Lateness{})
	}
	names, rows := r.Report().groups()
	if strings.Join(names, "; ") != "equal; equal, updates" || len(rows[names[0]]) != 3 || len(rows[names[1]]) != 3 {
		t.Errorf("charts %q of %v", names, rows)
	}
	if c := chart(names[1], rows[names[1]]); strings.Join(c.X.Names, " ") != "none 100ms 10ms" || len(c.Series) != 1 || c.Rule != nil {
		t.Errorf("%+v", c)
	}
	if paper := rows["equal"][2].Paper; paper == nil || *paper != paperMosh {
		t.Errorf("the paper's figure at 10 ms is %v", paper)
	}
}
