package bench

import (
	"encoding/json"
	"testing"
)

func TestTable(t *testing.T) {
	table := NewTable("sums")
	paper := 0.5
	for round, values := range [][2]float64{{10, 4}, {20, 12}, {0, 1}} {
		table.Add(Figure{Case: "a/all", Metric: "m", Unit: "u", Group: "a"}, round, values[0])
		table.Add(Figure{Case: "a/half", Metric: "m", Unit: "u", Group: "a", Baseline: "a/all", Paper: &paper}, round, values[1])
		table.Add(Figure{Case: "a/half", Metric: "other", Unit: "u", Group: "a", Baseline: "a/all"}, round, 7)
	}
	r := table.Report()
	got, err := json.Marshal(r.Rows)
	if err != nil {
		t.Fatal(err)
	}
	// The third round has no ratio, since its baseline is 0.
	want := `[{"case":"a/all","metric":"m","unit":"u","n":3,"median":10,"min":0,"max":20,"baseline":"","ratio":null,"paper":null},` +
		`{"case":"a/half","metric":"m","unit":"u","n":3,"median":4,"min":1,"max":12,"baseline":"a/all","ratio":0.5,"paper":0.5},` +
		`{"case":"a/half","metric":"other","unit":"u","n":3,"median":7,"min":7,"max":7,"baseline":"","ratio":null,"paper":null}]`
	if string(got) != want || r.Bench != "sums" || r.Machine.Cores == 0 {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
