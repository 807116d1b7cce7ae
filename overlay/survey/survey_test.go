package survey

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/errhint"
	"heddle/overlay/asn"
	"heddle/path"
	"heddle/path/diversity"
)

var (
	now    = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	server = netip.MustParseAddrPort("192.0.2.1:443")
	lte    = Uplink{Name: "lte", Device: "lte", Source: netip.MustParseAddr("10.101.2.2"), Gateway: netip.MustParseAddr("10.101.2.1")}
)

// recorded is what scamper 20211212 printed in a world of the lab.
func recorded(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/scamper.json")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestParse(t *testing.T) {
	all, err := parse(recorded(t))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range all {
		text := fmt.Sprintf("%d %s %v from %s reached %v", r.id, r.method, r.trace, r.src, r.reached)
		for _, h := range r.hops {
			text += fmt.Sprintf(" %d:%v", h.TTL, h.Addr)
		}
		if !r.trace {
			text += fmt.Sprint(" ", r.rtt > 0)
		}
		got = append(got, text)
	}
	want := []string{
		"0 tcp-ack true from 10.101.2.2 reached true 1:10.101.2.1 2:10.100.2.2 3:192.0.2.1",
		"2 icmp-echo false from 10.101.3.2 reached false true",
		"1 tcp-ack true from 10.101.1.2 reached false 1:10.101.1.1 2:10.100.1.2 3:10.100.1.2",
		"0 tcp-ack false from 10.101.2.2 reached false true",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// answer is a line of scamper's for a trace or a ping.
func traced(id int, src, stop string, hops ...string) string {
	var list []string
	for _, h := range hops {
		ttl, addr, _ := strings.Cut(h, ":")
		list = append(list, fmt.Sprintf(`{"addr":%q,"probe_ttl":%s,"rtt":1.5}`, addr, ttl))
	}
	return fmt.Sprintf(`{"type":"trace","userid":%d,"method":"tcp","src":%q,"dst":"192.0.2.1","stop_reason":%q,"hops":[%s]}`+"\n", id, src, stop, strings.Join(list, ","))
}

func pinged(id int, method string, ms ...float64) string {
	var list []string
	for _, m := range ms {
		list = append(list, fmt.Sprintf(`{"from":"192.0.2.1","rtt":%v}`, m))
	}
	return fmt.Sprintf(`{"type":"ping","userid":%d,"method":%q,"src":"10.101.2.2","dst":"192.0.2.1","responses":[%s]}`+"\n", id, method, strings.Join(list, ","))
}

// Each step asks only for what the one before did not find, by the uplink and by one flow.
func TestMeasure(t *testing.T) {
	var calls [][]string
	answers := []string{
		traced(0, "10.101.2.2", "GAPLIMIT", "1:10.101.2.1", "3:203.0.113.9") + traced(1, "10.101.2.2", "COMPLETED", "1:10.101.2.1", "2:192.0.2.1") + traced(2, "10.9.0.2", "COMPLETED", "1:192.0.2.1"),
		traced(0, "10.101.2.2", "COMPLETED", "1:10.101.2.1", "4:192.0.2.1"),
		pinged(1, "tcp-ack", 3, 2, 5) + pinged(2, "icmp-echo", 7),
		pinged(0, "icmp-echo"),
	}
	s := Surveyor{Now: func() time.Time { return now }, run: func(_ context.Context, args []string) ([]byte, error) {
		calls = append(calls, args[slices.Index(args, "-I")+1:])
		return []byte(answers[len(calls)-1]), nil
	}}
	halves, err := s.Measure(t.Context(), []Request{{lte, server}, {lte, server}, {Uplink{Device: "tun", NoFrames: true}, server}})
	if err != nil {
		t.Fatal(err)
	}
	end := func(id int) string {
		if id == 2 {
			return " -U 2 192.0.2.1"
		}
		return fmt.Sprintf(" -S 10.101.2.2 -r 10.101.2.1 -U %d 192.0.2.1", id)
	}
	trace := func(method, port string, id int) string {
		return "trace -w 1 -q 2 -g 6 -m 48 -s " + port + " -d 443 -P " + method + end(id)
	}
	ping := func(method, port string, id int) string {
		return "ping -c 4 -i 1 -F " + port + " -d 443 -P " + method + end(id)
	}
	want := [][]string{
		{trace("tcp-ack", "50000", 0), trace("tcp-ack", "50001", 1), trace("icmp-paris", "50002", 2)},
		{trace("tcp", "50000", 0)},
		{ping("tcp-ack", "50000", 0), ping("tcp-ack", "50001", 1), ping("icmp-echo -C 0x1d1d", "50002", 2)},
		{ping("icmp-echo -C 0x1d1d", "50000", 0)},
	}
	if !reflect.DeepEqual(calls, want) {
		t.Errorf("asked %q\nwant  %q", calls, want)
	}
	hop := func(ttl int, addr string) Hop { return Hop{ttl, netip.MustParseAddr(addr), 1.5} }
	base := Half{Uplink: "lte", From: lte.Source, To: server, At: now, Method: "tcp", Reached: true}
	first, second := base, base
	first.Hops = []Hop{hop(1, "10.101.2.1"), {TTL: 2}, {TTL: 3}, hop(4, "192.0.2.1")}
	second.Hops, second.RTT, second.Ping = []Hop{hop(1, "10.101.2.1"), hop(2, "192.0.2.1")}, 2, "tcp-ack"
	if !reflect.DeepEqual(halves[:2], []Half{first, second}) || halves[2].RTT != 7 || !halves[2].Reached {
		t.Errorf("got  %+v\nwant %+v", halves, []Half{first, second})
	}
	// What travels as JSON comes back.
	text, err := json.Marshal(halves[0])
	if err != nil {
		t.Fatal(err)
	}
	if back, err := ParseHalf(text); err != nil || !reflect.DeepEqual(back, halves[0]) {
		t.Errorf("%+v, %v", back, err)
	}
}

func TestProbesFromElsewhereDoNotCount(t *testing.T) {
	s := Surveyor{run: func(context.Context, []string) ([]byte, error) {
		return []byte(traced(0, "10.101.1.2", "COMPLETED", "1:192.0.2.1")), nil
	}}
	if _, err := s.Measure(t.Context(), []Request{{lte, server}}); err == nil || !strings.Contains(err.Error(), "left from 10.101.1.2 instead of 10.101.2.2") {
		t.Errorf("%v", err)
	}
}

func TestScamperAbsent(t *testing.T) {
	s := Surveyor{Program: "no-such-scamper"}
	_, err := s.Measure(t.Context(), []Request{{To: server}})
	if err == nil || !strings.Contains(err.Error(), "scamper is not installed") || !strings.Contains(errhint.Of(err), "install") {
		t.Errorf("%v", err)
	}
	failing := filepath.Join(t.TempDir(), "scamper")
	if err := os.WriteFile(failing, []byte("#!/bin/sh\necho could not open socket >&2\nexit 255\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.Program = failing
	if _, err = s.Measure(t.Context(), []Request{{To: server}}); err == nil || !strings.Contains(err.Error(), "could not open socket") {
		t.Errorf("%v", err)
	}
}

// table knows three ASes by ten addresses each, and the AS 9 of the servers.
func table(t *testing.T) *asn.Table {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "asn.csv")
	text := "198.51.100.0,198.51.100.9,1,one\n198.51.100.10,198.51.100.19,2,two\n198.51.100.20,198.51.100.29,3,three\n192.0.2.0,192.0.2.255,9,nine\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	made, err := asn.Import(filepath.Join(dir, "table"), []string{file}, asn.ImportOptions{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func half(reached bool, to string, hops ...string) Half {
	h := Half{From: netip.MustParseAddr("10.0.0.2"), To: netip.MustParseAddrPort(to), Reached: reached, At: now, RTT: 10}
	for i, addr := range hops {
		hop := Hop{TTL: i + 1}
		if addr != "*" {
			hop.Addr = netip.MustParseAddr(addr)
		}
		h.Hops = append(h.Hops, hop)
	}
	return h
}

func TestPassed(t *testing.T) {
	const one, two, elsewhere, nine = "198.51.100.1", "198.51.100.11", "203.0.113.1", "192.0.2.1"
	from := half(true, nine+":443", one, nine)
	from.From = netip.MustParseAddr("198.51.100.21")
	for _, c := range []struct {
		name string
		h    Half
		want Networks
	}{
		{"plain", half(true, nine+":443", "10.0.0.1", one, "198.51.100.2", two, nine), Networks{ASes: []diversity.AS{1, 2, 9}}},
		{"silence within an AS", half(true, nine+":443", one, "*", "198.51.100.2", nine), Networks{ASes: []diversity.AS{1, 9}}},
		{"silence between ASes", half(true, nine+":443", one, "*", two, nine), Networks{ASes: []diversity.AS{1, 2, 9}, Hidden: 1}},
		{"an address that nobody announces", half(true, nine+":443", one, elsewhere, nine), Networks{ASes: []diversity.AS{1, 9}, Hidden: 1}},
		{"not reached", half(false, nine+":443", one), Networks{ASes: []diversity.AS{1, 9}, Hidden: 1}},
		{"not reached beyond its AS", half(false, nine+":443", one, nine), Networks{ASes: []diversity.AS{1, 9}}},
		{"nobody answered", half(false, nine+":443"), Networks{ASes: []diversity.AS{9}, Hidden: 1, Silent: true}},
		{"only the own network answered", half(false, nine+":443", "10.0.0.1", "100.64.0.1"), Networks{ASes: []diversity.AS{9}, Hidden: 1, Silent: true}},
		{"private hops at home", half(true, nine+":443", "192.168.1.1", "100.64.0.1", one, nine), Networks{ASes: []diversity.AS{1, 9}}},
		{"a private hop between ASes", half(true, nine+":443", one, "10.7.7.7", two, nine), Networks{ASes: []diversity.AS{1, 2, 9}, Hidden: 1}},
		{"a private hop within an AS", half(true, nine+":443", one, "10.7.7.7", one, nine), Networks{ASes: []diversity.AS{1, 9}}},
		{"a private destination", half(true, "10.9.9.9:443", one, "10.9.9.9"), Networks{ASes: []diversity.AS{1}}},
		{"its own network counts", from, Networks{ASes: []diversity.AS{3, 1, 9}}},
	} {
		if got := Passed(c.h, table(t)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestPaths(t *testing.T) {
	near, far, dead := half(true, "198.51.100.21:7443", "198.51.100.1"), half(true, "192.0.2.1:443", "198.51.100.11"), half(false, "192.0.2.1:443")
	old := far
	old.At = now.Add(-2 * time.Hour)
	p := Plan{To: server, Uplinks: []path.Spec{{Name: "home"}, {}}, Requests: map[[2]string]Request{}, Problems: map[[2]string]string{{"a", ""}: "no route"}}
	halves := map[string]Half{}
	for i, name := range []string{"a", "b", "c", "d"} {
		n := Node{Name: name, Addr: netip.AddrPortFrom(netip.MustParseAddr("198.51.100.21"), uint16(i+1))}
		p.Nodes = append(p.Nodes, n)
		for _, spec := range p.Uplinks {
			request := Request{Uplink: Uplink{Name: spec.Name, Device: spec.Name}, To: n.Addr}
			p.Requests[[2]string{name, spec.Name}] = request
			if name != "c" {
				halves[NearKey(request)] = near
			}
		}
		halves[FarKey(n.Key(), server.String())] = map[string]Half{"a": far, "b": old, "c": far, "d": dead}[name]
	}
	var got []string
	all, oldest := p.Paths(halves, time.Hour, table(t), now.Add(time.Minute))
	for i, one := range all {
		if i < 2 || one.Uplink == "home" {
			got = append(got, fmt.Sprintf("%s %v %v %s", one.Name, one.ASes, one.RTT, one.Why))
		}
	}
	if oldest != time.Minute {
		t.Errorf("the oldest half is from %v ago", oldest)
	}
	want := []string{
		"a@home [AS1 AS3 AS2 AS9] 20ms ",
		"a [AS1 AS3 AS2 AS9] 20ms no route",
		"b@home [] 0s the node's path to the destination is not surveyed",
		"c@home [] 0s the path to the node is not surveyed",
		"d@home [AS1 AS3 AS9] 20ms no router on the node's path to the destination is known",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestCache(t *testing.T) {
	c := &Cache{file: filepath.Join(t.TempDir(), "new", "survey.json")}
	if err := c.load(); err != nil || len(c.Halves) != 0 {
		t.Fatalf("%v, %v", c.Halves, err)
	}
	h, old := half(true, "192.0.2.1:443", "198.51.100.1"), half(true, "192.0.2.1:443")
	old.At = now.Add(-Keep - time.Hour)
	wrong := old // by a clock that was years ahead
	wrong.At = now.Add(Keep + time.Hour)
	other := lte
	other.Gateway = netip.MustParseAddr("10.101.2.9")
	key := NearKey(Request{lte, server})
	if key == NearKey(Request{other, server}) {
		t.Error("another gateway has the same key")
	}
	if err := c.Add(map[string]Half{key: h, "old": old, "wrong": wrong}, now); err != nil {
		t.Fatal(err)
	}
	if err := c.Add(map[string]Half{FarKey("ed25519:x", "192.0.2.1:443"): h}, now); err != nil {
		t.Fatal(err)
	}
	c = &Cache{file: c.file}
	if err := c.load(); err != nil || len(c.Halves) != 2 || !reflect.DeepEqual(c.Halves[key], h) {
		t.Errorf("%+v, %v", c.Halves, err)
	}
	if err := os.WriteFile(c.file, []byte(`{"halves":null}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Add(map[string]Half{key: h}, now); err != nil || len(c.Halves) != 1 {
		t.Errorf("an empty cache: %+v, %v", c.Halves, err)
	}
	if err := os.WriteFile(c.file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Add(map[string]Half{"x": h}, now); err == nil {
		t.Error("a damaged cache was overwritten")
	}
}

func TestAnswererMeasuresOnceInAWhile(t *testing.T) {
	clock, runs := now, 0
	a := Answerer{Surveyor: Surveyor{Now: func() time.Time { return clock }, run: func(context.Context, []string) ([]byte, error) {
		runs++
		return []byte(traced(0, "203.0.113.5", "COMPLETED", "1:192.0.2.1") + pinged(0, "tcp-ack", 3)), nil
	}}}
	for i, wait := range []time.Duration{0, 9 * time.Minute, 2 * time.Minute} {
		clock = clock.Add(wait)
		found, err := a.Survey(t.Context(), netip.MustParseAddrPort("127.0.0.1:443"))
		if err != nil {
			t.Fatal(err)
		}
		if h := found.(Half); !h.Reached || h.RTT != 3 || runs != []int{1, 1, 2}[i] {
			t.Errorf("call %d: %+v after %d runs", i+1, h, runs)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(recorded(f))
	f.Add([]byte(traced(0, "10.0.0.1", "COMPLETED", "1:192.0.2.1") + pinged(3, "tcp-ack", 1)))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := parse(text)
		if err != nil {
			return
		}
		for _, r := range all {
			h := Half{To: server, Hops: r.hops, RTT: r.rtt}
			if err := h.check(); err != nil {
				t.Fatalf("%+v: %v", r, err)
			}
		}
	})
}

func FuzzParseHalf(f *testing.F) {
	f.Add([]byte(`{"from":"10.0.0.1","to":"192.0.2.1:443","at":"2026-11-21T12:00:00Z","method":"tcp","hops":[{"ttl":1,"addr":"10.0.0.1","rtt_ms":1}],"reached":true}`))
	var none asn.Table
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := ParseHalf(text)
		if err != nil {
			return
		}
		Passed(h, &none)
		if _, err := json.Marshal(h); err != nil {
			t.Fatal(err)
		}
	})
}

// No uplink's network sees this device ask all nodes, and a node that has no route by its uplink is asked by another.
func TestNodesAreAskedByTheUplinksInTurn(t *testing.T) {
	home, lte := path.Spec{Name: "home", Kind: "if", Arg: "eth0"}, path.Spec{Name: "lte", Kind: "if", Arg: "wwan0"}
	p := &Plan{Uplinks: []path.Spec{home, lte}, Nodes: []Node{{Name: "a"}, {Name: "b"}, {Name: "c"}}, Requests: map[[2]string]Request{
		{"a", "home"}: {}, {"a", "lte"}: {}, {"b", "home"}: {}, {"b", "lte"}: {}, {"c", "lte"}: {}}}
	for i, want := range [][]path.Spec{{home, lte}, {lte, home}, {lte, home}} {
		if got := p.askBy(p.Nodes[i]); !slices.Equal(got, want) {
			t.Errorf("%s is asked by %v, not %v", p.Nodes[i].Name, got, want)
		}
	}
}
