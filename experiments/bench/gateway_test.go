package bench

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/lab/labtest"
)

// Each mode leads to its site, and what the process of the gateway takes for large objects is counted.
func TestGatewayModes(t *testing.T) {
	labtest.Need(t)
	kept, err := only([]*topology{gatewayObject(true)}, []string{"object/10MiB/proxy", "object/10MiB/fdpass", "object/10MiB/handoff", "object/10MiB/v6"})
	if err != nil {
		t.Fatal(err)
	}
	object, work := kept[0], t.TempDir() // it goes after the world, whose processes write there
	t.Cleanup(func() {
		if err := object.down(); err != nil {
			t.Error(err)
		}
	})
	if err := object.up(t.Context(), &stage{heddle: labtest.Heddle, work: work}); err != nil {
		t.Fatal(err)
	}
	for _, v := range object.cases {
		figures := persistent(t, v, object.stage)
		want := 2
		if v.name == "10MiB/mtls" { // it has no gateway
			want = 1
		}
		if len(figures) != want || figures[0].value <= 0 {
			t.Errorf("%s: %v", v.name, figures)
		}
	}
}

// Each case is compared with one of its topology, and each published figure and goal belongs to a case.
func TestGatewayCases(t *testing.T) {
	published, cases := 0, map[string]bool{}
	for _, top := range Gateway().topologies(false) {
		if err := top.world.Validate(); err != nil {
			t.Error(err)
		}
		for _, v := range top.cases {
			name, base := top.caseName(v), top.caseName(top.compared(v))
			for _, figure := range []string{"", "/processor", "/insert", "/delete"} {
				cases[name+figure] = true
			}
			want := strings.NewReplacer("/proxy", "/mtls", "/fdpass", "/mtls", "/handoff", "/mtls", "/v6", "/mtls", "/haproxy", "/mtls", "/nginx", "/mtls", "/https", "/mtls").Replace(name)
			switch top.name {
			case "burst":
				want = strings.Replace(want, "mtls", "https", 1)
			case "rules":
				want = "rules/0/handoff"
			case "pseudonyms":
				want = "pseudonyms/1"
			}
			if base != want || !slices.ContainsFunc(top.cases, func(o variant) bool { return top.caseName(o) == want }) {
				t.Errorf("%s is compared with %s, not %s", name, base, want)
			}
			if gatewayPaper(name) != nil {
				published++
			}
		}
	}
	if want := 2*2 + len(gatewayBursts) + 2; published != want {
		t.Errorf("%d cases have published figures, not %d", published, want)
	}
	for name := range gatewayGoals {
		if !cases[name] {
			t.Errorf("no case is %s", name)
		}
	}
}

// The gateway's processor time is compared with HAProxy's. The baseline of the other figures has no gateway.
func TestGatewayProcessorIsComparedWithHAProxy(t *testing.T) {
	object := gatewayObject(true)
	r := &runner{Bench: Gateway(), Table: NewTable("gateway"), options: Options{Progress: &bytes.Buffer{}}}
	for _, v := range object.cases {
		goodput, took := 100.0, 1.0
		switch v.name {
		case "10MiB/handoff":
			goodput, took = 90, 0.25
		case "10MiB/haproxy":
			took = 2
		}
		r.keep(object, v, 0, []figure{{"", "throughput", "Mbit/s", goodput}, {"processor", "processor", "s/GiB", took}}, r.report.LatenessMS)
	}
	report := r.Report()
	for name, want := range map[string]float64{"object/10MiB/handoff": 0.9, "object/10MiB/handoff/processor": 0.125} {
		i := slices.IndexFunc(report.Rows, func(row Row) bool { return row.Case == name })
		if i < 0 || report.Rows[i].Ratio == nil || *report.Rows[i].Ratio != want {
			t.Errorf("%s: %+v", name, report.Rows)
		}
	}
	var out bytes.Buffer
	if err := report.WriteTable(&out); err != nil || !strings.Contains(out.String(), "<=0.10") || !strings.Contains(out.String(), "GOAL") {
		t.Errorf("%v, no goal in\n%s", err, out.String())
	}
}

// A table without goals has no column for them.
func TestNoGoals(t *testing.T) {
	var out bytes.Buffer
	if err := measured().WriteTable(&out); err != nil || strings.Contains(out.String(), "GOAL") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// No two connections have a rule in common.
func TestRulesDiffer(t *testing.T) {
	seen := map[string]bool{}
	for i := range 200_000 {
		client, gateway, tenant := movedConnection(i)
		for _, key := range [][]byte{ruleKey(client, gateway), ruleKey(tenant, client)} {
			if len(key) != 36 || seen[string(key)] {
				t.Fatalf("connection %d of %v: key %x", i, client, key)
			}
			seen[string(key)] = true
		}
	}
}

func TestStatTime(t *testing.T) {
	const line = "42 (a b) c) S 1 42 42 0 -1 4194560 1 2 3 4 150 25 7 8 20 0 1 0 5 6 7"
	if got, err := statTime(line); err != nil || got != 1750*time.Millisecond {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := statTime("42 (a) S"); err == nil {
		t.Error("half a line is taken")
	}
	if got, err := processor(0); got != 0 || err != nil {
		t.Error(got, err)
	}
}
