package split

import (
	"strings"
	"testing"
	"time"

	"heddle/path"
	"heddle/schedule"
)

func TestCheckBackend(t *testing.T) {
	timed := func(change func(*Options)) Options {
		o := Options{Via: []path.Spec{{Name: "a", Kind: "if", Arg: "eth0"}}, Schedule: schedule.Config{Every: schedule.Every{Period: time.Second}}}
		if change != nil {
			change(&o)
		}
		return o
	}
	counted := timed(func(o *Options) { o.Schedule.Every = schedule.Every{Packets: 50} })
	tunnelled := timed(func(o *Options) { o.Via[0].Kind = "wireguard" })
	ruled := timed(func(o *Options) { o.Rules = []Rule{{When{Port: 53}, "a"}} })
	settled := timed(func(o *Options) { o.Schedule.Settle = time.Second })
	gaps := timed(func(o *Options) { o.AtGaps = time.Millisecond })
	auto := timed(func(o *Options) { o.Schedule.Every.Auto = true })
	drained := timed(func(o *Options) { o.Drain = time.Millisecond })
	ordered := timed(func(o *Options) { o.Reorder = time.Millisecond })
	for _, c := range []struct {
		name string
		o    Options
		why  string // "" where it can
	}{
		{"relay", counted, ""}, {"relay", tunnelled, ""}, {"relay", ruled, ""}, {"relay", settled, ""}, {"relay", gaps, ""}, {"relay", ordered, ""}, {"relay", drained, ""}, {"relay", auto, ""},
		{"kernel", timed(nil), ""}, {"kernel", counted, ""}, {"kernel", tunnelled, "takes only if and src"},
		{"kernel", ruled, "no rules"}, {"kernel", settled, "neither --settle"}, {"kernel", gaps, "neither --settle"}, {"kernel", ordered, "no --reorder"}, {"kernel", drained, "no --drain"}, {"kernel", auto, "no --every auto"},
		{"route", timed(nil), ""}, {"route", counted, "cannot count"}, {"route", ruled, "no rules"},
		{"wireguard", timed(nil), "none of that name"}, {"", timed(nil), "none of that name"},
	} {
		err := c.o.CheckBackend(c.name)
		if c.why == "" && err != nil || c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)) {
			t.Errorf("backend %q: %v, want %q", c.name, err, c.why)
		}
	}
	for _, name := range BackendNames() {
		if err := timed(nil).CheckBackend(name); err != nil {
			t.Errorf("the table lacks %s: %v", name, err)
		}
	}
}
