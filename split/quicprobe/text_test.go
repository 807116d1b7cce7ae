package quicprobe

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/path"
	"heddle/schedule"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// full is what a quic-go server might give.
func full() *Report {
	return &Report{Server: "www.example.com", Address: "192.0.2.1:443", Offered: []string{"v1", "v2"}, Version: "v1", ALPN: "h3", RTT: 20_140 * time.Microsecond,
		Parameters:    &Parameters{ActiveConnectionIDLimit: 4, MaxIdleTimeout: 30 * time.Second, MaxUDPPayloadSize: 1452},
		ConnectionIDs: ConnectionIDs{Given: 4, Length: 4},
		Paths:         []PathReport{{"home", "if:eth0", 1500, "198.51.100.1"}, {"lte", "if:wwan0", 1420, "203.0.113.9"}, {"office", "if:eth1", 1500, "198.51.100.1"}},
		NewPort:       &Rebinding{From: "home", To: "home", Survived: true, After: 46 * time.Millisecond, Tries: Tries{1, 1}},
		NewAddress:    &Rebinding{From: "home", To: "lte", Survived: true, After: 47 * time.Millisecond, Tries: Tries{3, 2}},
		Rotations:     []Rotation{{Paths: 2, HeardOn: 2, Slowest: 60 * time.Millisecond, Held: true, Tries: Tries{1, 1}}, {Paths: 3, HeardOn: 3, Slowest: 80 * time.Millisecond, Held: true, Tries: Tries{1, 1}}, {Paths: 4, HeardOn: 3, Slowest: 70 * time.Millisecond, Why: "it did not answer on 1 of 4", Tries: Tries{2, 0}}},
		PathsAtOnce:   3, Distrusts: distrustsAddresses, Sent: 400_000, Received: 30 << 20, Notes: []string{"home and office leave through one exit: the server sees one address"},
		Throughput: &Throughput{Get: "/big-file", Bits: 19_400_000, Settle: 350 * time.Millisecond, HoldsAddress: "200ms", HoldsPort: "100ms",
			Cases: []Case{{changeAddress, 3, "100ms", 10, 15_900_000, 0.82, true, "", Tries{2, 0}}, {changeAddress, 3, "200ms", 6, 17_900_000, 0.92, true, "", Tries{1, 1}}, {changePort, 3, "100ms", 10, 19_100_000, 0.98, true, "", Tries{1, 1}}}}}
}

// reports are servers of all kinds, each as it differs from full.
var reports = []struct {
	name   string
	change func(*Report)
}{
	{"distrustful", func(*Report) {}},
	{"trusting", func(r *Report) {
		r.Distrusts, r.PathsAtOnce, r.Rotations = distrustsNothing, 3, r.Rotations[:2]
		r.Throughput.Cases = []Case{{changeAddress, 3, "100ms", 10, 19_300_000, 0.99, true, "", Tries{1, 1}}, {changeAddress, 3, "50ms", 20, 18_900_000, 0.97, true, "", Tries{1, 1}}, {changePort, 3, "100ms", 10, 19_100_000, 0.98, true, "", Tries{1, 1}}}
		r.Throughput.HoldsAddress = "50ms"
	}},
	{"no period holds", func(r *Report) {
		r.Distrusts = distrustsChanges
		r.Throughput.Cases[1].Ratio, r.Throughput.Cases[1].Tries, r.Throughput.HoldsAddress = 0.85, Tries{3, 1}, ""
	}},
	{"nothing comes", func(r *Report) {
		r.Throughput.Cases, r.Throughput.HoldsAddress = []Case{{changeAddress, 3, "100ms", 10, 0, 0, true, "", Tries{2, 0}}}, ""
	}},
	{"closes at a short period", func(r *Report) {
		r.Distrusts = distrustsNothing
		r.Throughput.Cases = []Case{{changeAddress, 3, "100ms", 10, 19_300_000, 0.99, true, "", Tries{1, 1}}, {changeAddress, 3, "50ms", 9, 18_900_000, 0.97, false, "the server closed the session: Application error 0x1 (remote): fail", Tries{2, 0}}, {changePort, 3, "100ms", 10, 19_100_000, 0.98, true, "", Tries{1, 1}}}
		r.Throughput.HoldsAddress = shortest(r.Throughput.Cases, changeAddress)
		r.Early = &Early{Every: "100ms", Paths: 3, Tries: Tries{6, 6}, Survived: true, Settled: 600 * time.Millisecond}
	}},
	{"closes at each period", func(r *Report) {
		r.Distrusts = distrustsChanges
		r.Throughput.Cases = []Case{{changeAddress, 3, "100ms", 10, 19_300_000, 0.99, false, "the server closed the session: it forgot it (stateless reset)", Tries{2, 0}}, {changeAddress, 3, "200ms", 5, 9_900_000, 0.5, false, "it lost the session: it acknowledged nothing more within 3s", Tries{2, 0}}, {changePort, 3, "100ms", 10, 19_100_000, 0.98, true, "", Tries{1, 1}}}
		r.Throughput.HoldsAddress = ""
	}},
	{"dies young", func(r *Report) {
		r.Early = &Early{Every: "200ms", Paths: 3, Tries: Tries{4, 2}, Why: "it lost the session: it acknowledged nothing more within 3s", Settled: 600 * time.Millisecond}
	}},
	{"not measured", func(r *Report) { r.Throughput, r.Distrusts = nil, "" }},
	{"forbidden but followed", func(r *Report) { r.Parameters.DisableActiveMigration = true }},
	{"forbidden", func(r *Report) {
		r.Parameters.DisableActiveMigration = true
		r.Parameters.PreferredAddress = &PreferredAddress{IPv4: "192.0.2.9:443"}
		r.NewPort = &Rebinding{From: "home", To: "home", Why: "it fell silent: nothing came within 3s", Tries: Tries{2, 0}}
		r.NewAddress = &Rebinding{From: "home", To: "lte", Why: "it fell silent: nothing came within 3s", Tries: Tries{2, 0}}
		r.Rotations, r.PathsAtOnce, r.Throughput, r.Distrusts = nil, 0, nil, ""
	}},
	{"ports only", func(r *Report) {
		r.NewAddress = &Rebinding{From: "home", To: "lte", Why: "it looked there, but did not follow", Tries: Tries{3, 1}}
		r.Distrusts, r.Throughput.Cases, r.Throughput.HoldsAddress = "", r.Throughput.Cases[2:], ""
	}},
	{"one path", func(r *Report) {
		r.NewAddress, r.Distrusts, r.Offered, r.Insecure, r.Retry = nil, "", nil, true, true
		r.Paths = []PathReport{{Name: "default", Observer: "system"}}
		r.Throughput.Cases, r.Throughput.HoldsAddress = r.Throughput.Cases[2:], ""
	}},
	{"one change", func(r *Report) {
		r.Rotations, r.PathsAtOnce, r.Throughput, r.Distrusts = []Rotation{{Paths: 2, HeardOn: 1, Why: "it did not answer on 1 of 2", Tries: Tries{2, 0}}}, 1, nil, ""
	}},
	{"stopped after a change", func(r *Report) {
		r.Rotations, r.PathsAtOnce, r.Throughput, r.Distrusts = nil, 0, nil, ""
		r.Stopped = errBytes.Error()
	}},
	{"stopped", func(r *Report) {
		r.NewPort, r.NewAddress, r.Rotations, r.PathsAtOnce, r.Throughput, r.Distrusts = nil, nil, nil, 0, nil, ""
		r.Stopped = errTime.Error()
	}},
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".golden")
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

func TestText(t *testing.T) {
	for _, c := range reports {
		r := full()
		c.change(r)
		r.Advice = advise(r)
		var out bytes.Buffer
		if err := WriteText(&out, r); err != nil {
			t.Fatal(err)
		}
		golden(t, c.name, out.Bytes())
	}
}

func TestJSON(t *testing.T) {
	r := full()
	r.Advice = advise(r)
	out, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "json", append(out, '\n'))
}

// What is recommended must be something that heddle split takes.
func TestAdviceCanBeTaken(t *testing.T) {
	for _, c := range reports {
		r := full()
		c.change(r)
		a := advise(r)
		if a.Split != (len(a.Flags) > 0) || len(a.Words) == 0 {
			t.Errorf("%s: %+v", c.name, a)
		}
		if !a.Split {
			continue
		}
		every, err := schedule.ParseEvery(a.Every)
		if err != nil || every.Period == 0 || a.Paths < 2 {
			t.Errorf("%s: every %q, %v; %d paths", c.name, a.Every, err, a.Paths)
		}
		if _, err := schedule.New(schedule.Config{Name: a.Schedule, Every: every}, a.Paths); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestPlan(t *testing.T) {
	o := Options{Server: "www.example.com", Get: "/big-file", STUN: "stun.example.com:3478",
		Via: []path.Spec{{Name: "home", Kind: "if", Arg: "eth0"}, {Name: "lte", Kind: "if", Arg: "wwan0"}}}
	plan, err := NewPlan(o)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "plan", []byte(plan.String()))
	if _, err := NewPlan(Options{Server: "a b"}); err == nil {
		t.Error("a plan for no server")
	}
}
