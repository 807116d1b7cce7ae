package bench

import (
	"errors"
	"testing"
	"time"

	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// One run of each cover over a fast link, for what it measures.
func TestCoversOnAFastLink(t *testing.T) {
	labtest.Need(t)
	fast := fastTopology("fast20", 20*time.Millisecond, disguiseSizes[len(disguiseSizes)-1])
	t.Cleanup(func() {
		if err := fast.down(); err != nil {
			t.Error(err)
		}
	})
	err := fast.up(t.Context(), &stage{heddle: labtest.Heddle, work: t.TempDir()})
	if errors.Is(err, peer.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range fast.cases {
		got := map[string]float64{}
		for _, f := range persistent(t, v, fast.stage) {
			got[f.name] = f.value
		}
		if got["goodput-1MB"] <= 0 || got["bytes-down"] < 1000 || got["bytes-up"] <= 0 {
			t.Errorf("%s: %v", v.name, got)
		}
	}
}

func TestDisguiseCases(t *testing.T) {
	for _, quick := range []bool{false, true} {
		for _, name := range []string{"dsl85/http", "dsl450/https", "fast85/http", "fast450/https", "steady/450ms/100kB/http"} {
			if kept, err := only(Disguise().topologies(quick), []string{name}); err != nil || len(kept) != 1 || len(kept[0].cases) != 2 {
				t.Errorf("quick %v: %s and its baseline are %+v, %v", quick, name, kept, err)
			}
		}
	}
}
