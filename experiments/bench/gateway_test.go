package bench

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// Each mode leads to its site, and what the process of the gateway takes for large objects is counted.
func TestGatewayModes(t *testing.T) {
	top := raised(t, gatewayObject(true), "object/10MiB/proxy", "object/10MiB/fdpass", "object/10MiB/handoff", "object/10MiB/handoff-direct", "object/10MiB/v6")
	measuresObjects(t, top)
	m, err := openBPFRules(top.stage.Host("cloud"))
	if err != nil {
		t.Fatal(err)
	}
	comeAndGo(t, m, func() (n int, err error) {
		for key, entries := []byte(nil), m.to.Iterate(); entries.Next(&key, new([]byte)); {
			if bytes.HasPrefix(key[12:], []byte{198, 18}) {
				n++
			}
		}
		return n, nil
	}, 1)
}

// A bridge of Open vSwitch leads to the site as well.
func TestGatewayBridge(t *testing.T) {
	top := raised(t, gatewayBridge(true), "ovs/object")
	measuresObjects(t, top)
	f, err := openOVSRules(top.stage)
	if err != nil {
		t.Fatal(err)
	}
	comeAndGo(t, f, func() (int, error) {
		all, err := f.to.Flows(flowCookie(0, 0), 0xffff<<48)
		return len(all), err
	}, 2)
}

// raised brings the world of some cases of a topology up.
func raised(t *testing.T, top *topology, words ...string) *topology {
	t.Helper()
	labtest.Need(t)
	kept, err := only([]*topology{top}, words)
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir() // it goes after the world, whose processes write there
	t.Cleanup(func() {
		if err := kept[0].down(); err != nil {
			t.Error(err)
		}
	})
	err = kept[0].up(t.Context(), &stage{heddle: labtest.Heddle, work: work})
	if errors.Is(err, peer.ErrMissing) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	return kept[0]
}

func measuresObjects(t *testing.T, top *topology) {
	t.Helper()
	for _, v := range top.cases {
		figures := persistent(t, v, top.stage)
		want := 2
		if strings.HasSuffix(v.name, "10MiB/mtls") { // it has no gateway
			want = 1
		}
		if len(figures) != want || figures[0].value <= 0 {
			t.Errorf("%s: %v", v.name, figures)
		}
	}
}

// comeAndGo fails if rules do not come and go. count counts them, each of several of a connection's or one alone.
func comeAndGo(t *testing.T, r rules, count func() (int, error), each int) {
	t.Helper()
	const connections = 3
	for _, step := range []struct {
		do   func(int, netip.AddrPort, netip.AddrPort, netip.AddrPort) error
		want int
	}{{r.put, connections * each}, {r.remove, 0}} {
		if _, err := eachMoved(t.Context(), connections, step.do); err != nil {
			t.Fatal(err)
		}
		if n, err := count(); err != nil || n != step.want {
			t.Errorf("the switch has %d rules, not %d: %v", n, step.want, err)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
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
			want := strings.NewReplacer("/proxy", "/mtls", "/fdpass", "/mtls", "/handoff-direct", "/mtls", "/handoff", "/mtls", "/v6", "/mtls", "/haproxy", "/mtls", "/nginx", "/mtls", "/https", "/mtls").Replace(name)
			switch top.name {
			case "burst":
				want = strings.Replace(want, "mtls", "https", 1)
			case "rules", "ovs/rules":
				want = top.name + "/0/handoff"
			case "pseudonyms":
				want = "pseudonyms/1"
			case "established":
				want = "established/10000"
			}
			if base != want || !slices.ContainsFunc(top.cases, func(o variant) bool { return top.caseName(o) == want }) {
				t.Errorf("%s is compared with %s, not %s", name, base, want)
			}
			if gatewayPaper(name) != nil {
				published++
			}
			if large := name + "/" + hundred.name; want == "pseudonyms/1" || strings.Contains(top.name, "rules") {
				if (gatewayPaper(name) == nil) != (gatewayPaper(large) == nil) {
					t.Errorf("%s has a published figure, and %s another or none", name, large)
				}
			}
		}
	}
	if want := 2*2 + len(gatewayBursts) + 3; published != want {
		t.Errorf("%d cases have published figures, not %d", published, want)
	}
	for name := range gatewayGoals {
		if !cases[name] {
			t.Errorf("no case is %s", name)
		}
	}
}

// A gateway that hands connections over has no byte of connections that stay, whose clients ask again.
func TestGatewayHasNothingOfConnectionsThatStay(t *testing.T) {
	top := raised(t, gatewayEstablished(true), "established")
	got := map[string]float64{}
	for _, f := range persistent(t, top.cases[0], top.stage) {
		got[f.name] = f.value
	}
	const n = 1000
	for name, want := range map[string]float64{"clients": n, "switch": n, "sites": n, "answers": n, "controller/packets": 0, "controller/bytes": 0, "captured/controller": 0} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s: %v, not %v", name, got[name], want)
		}
	}
	// Before, the gateway had the handshake of TCP and a message of less than two segments, and answered it with acknowledgements alone. What went past it is more.
	if in, out := got["opening/in"], got["opening/out"]; in < 500 || in > 3000 || out < 100 || out > 300 {
		t.Errorf("the gateway had %v bytes of a new connection, and sent %v", in, out)
	}
	if direct := got["captured/direct"]; direct < n*float64(smallest.bytes) {
		t.Errorf("the captures have %v bytes of the clients", direct)
	}
}

// Each row has one place in the plot.
func TestGatewayPlot(t *testing.T) {
	seen := map[spot]string{}
	r := quiet(Gateway())
	for _, top := range r.kept {
		for _, v := range top.cases {
			for _, f := range map[string][]figure{"rules": {{"", "latency", "ms", 1}, {hundred.name, "latency", "ms", 1}, {"insert", "insert", "", 1}, {"delete", "delete", "", 1}},
				"pseudonyms": {{"", "latency", "ms", 1}, {hundred.name, "latency", "ms", 1}, {"cloud", "memory", "MB", 1}, {"sidecar", "memory", "MB", 1}},
				"object":     {{"", "throughput", "", 1}, {"processor", "processor", "", 1}}, "established": {{"clients", "connections", "", 1}},
				"stall": {{"", "latency", "ms", 1}}, "ovs/stall": {{"", "latency", "ms", 1}}, "ovs/rules": {{"", "latency", "ms", 1}, {"insert", "insert", "", 1}}}[top.name] {
				name := rowName(top, v, f)
				at := gatewaySpot(name, f.metric)
				if other, taken := seen[at]; taken || at.chart == "" {
					t.Errorf("%s and %s are both at %+v", name, other, at)
				}
				seen[at] = name
			}
		}
	}
	top := gatewayRate(true)
	for _, v := range top.cases {
		r.keep(top, v, 0, []figure{{"", "rate", "requests/s", 100}}, r.report.LatenessMS)
	}
	var out bytes.Buffer
	if err := r.Report().WritePlot(&out); err != nil || !strings.Contains(out.String(), "Figure 3(b)") || !strings.Contains(out.String(), "handoff, paper") {
		t.Errorf("%v\n%s", err, out.String())
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
