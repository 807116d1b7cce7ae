package bench

import (
	"slices"
	"testing"
	"time"
)

// answered is a client whose datagrams took so many microseconds each; 0 for no answer.
func answered(micro ...int) *echoClient {
	c := &echoClient{sent: make([]time.Time, echoWarm+len(micro)), trips: make([]time.Duration, echoWarm, echoWarm+len(micro))}
	for i := range c.trips {
		c.trips[i] = time.Hour // warming up does not count
	}
	for _, m := range micro {
		c.trips = append(c.trips, time.Duration(m)*time.Microsecond)
	}
	return c
}

func TestEchoFigures(t *testing.T) {
	through, beside := make([]int, 1000), make([]int, 1000)
	for i := range through {
		through[i], beside[i] = 100+i, 50+i
	}
	through[3] = 0 // one of a thousand may be lost
	all, err := echoFigures(answered(through...), answered(beside...), true)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range all {
		got[f.name] = f.value
	}
	for name, want := range map[string]float64{"median": 600, "direct-median": 549, "added-median": 51, "pass-median": 25.5,
		"p99": 1089, "direct-p99": 1039, "added-p99": 50, "pass-p99": 25} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	for i := range 50 {
		through[i] = 0
	}
	if _, err := echoFigures(answered(through...), answered(beside...), true); err == nil {
		t.Error("a run that lost one of twenty counts")
	}
}

func TestBackendsAreAllCompared(t *testing.T) {
	for _, topology := range Backends().topologies(true) {
		var names []string
		for _, v := range topology.cases {
			names = append(names, v.name)
		}
		if !slices.Equal(names, []string{"none", "relay", "kernel", "route"}) {
			t.Errorf("%s: %v", topology.name, names)
		}
	}
}
