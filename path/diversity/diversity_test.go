package diversity

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func way(node, uplink string, ms int, ases ...AS) Path {
	return Path{Name: node + "@" + uplink, Node: node, Uplink: uplink, ASes: ases, RTT: time.Duration(ms) * time.Millisecond}
}

func names(c Choice) string {
	var all []string
	for _, p := range c.Paths {
		all = append(all, p.Name)
	}
	return strings.Join(all, " ")
}

func TestChoose(t *testing.T) {
	hidden := way("h", "home", 1, 3, 9)
	hidden.Hidden = 1
	unknown := way("u", "home", 1)
	failed := way("f", "home", 1, 3, 9)
	failed.Why = "the survey failed"
	german := way("g", "home", 1, 3, 9)
	german.Countries = []string{"DE"}
	for _, c := range []struct {
		name  string
		paths []Path
		o     Options
		want  string
		// common over all pairs
		common  int
		diverse bool
	}{
		{"the most diverse pair, though slow", []Path{way("a", "home", 10, 1, 2, 9), way("b", "home", 10, 1, 2, 9), way("c", "home", 90, 1, 4, 9)},
			Options{Paths: 2}, "a@home c@home", 2, false},
		{"the faster of equals", []Path{way("a", "home", 30, 1, 2), way("b", "home", 20, 3), way("c", "home", 10, 4)},
			Options{Paths: 2}, "c@home b@home", 0, true},
		{"ends do not count", []Path{way("a", "home", 1, 1, 9), way("b", "lte", 2, 2, 9)},
			Options{Paths: 2, Ends: []AS{9}}, "a@home b@lte", 0, true},
		{"one node only once, though by two uplinks", []Path{way("a", "home", 1, 1), way("a", "lte", 1, 2), way("b", "home", 9, 1, 3)},
			Options{Paths: 2}, "a@lte b@home", 0, true},
		{"several uplinks before speed", []Path{way("a", "home", 1, 1), way("b", "home", 1, 2), way("c", "lte", 99, 3)},
			Options{Paths: 2}, "a@home c@lte", 0, true},
		{"a hop that is hidden may be a common one", []Path{way("a", "home", 1, 1), hidden, way("b", "home", 99, 5)},
			Options{Paths: 2}, "a@home b@home", 0, true},
		{"what is unknown is not diverse", []Path{way("a", "home", 1, 1), unknown, failed, way("b", "home", 99, 1)},
			Options{Paths: 2}, "a@home b@home", 1, false},
		{"an AS to avoid", []Path{way("a", "home", 1, 1), way("b", "home", 1, 2), way("c", "home", 9, 3)},
			Options{Paths: 2, AvoidAS: []AS{2}}, "a@home c@home", 0, true},
		{"a country to avoid", []Path{way("a", "home", 1, 1), german, way("c", "home", 9, 1, 3)},
			Options{Paths: 2, AvoidCountry: []string{"de"}}, "a@home c@home", 1, false},
		{"who avoids avoids what is hidden", []Path{way("a", "home", 1, 1), hidden, way("c", "home", 9, 1, 3)},
			Options{Paths: 2, AvoidAS: []AS{7}}, "a@home c@home", 1, false},
		{"unless told otherwise", []Path{way("a", "home", 1, 1), hidden, way("c", "home", 9, 1, 3)},
			Options{Paths: 2, AvoidAS: []AS{7}, Degrade: true}, "a@home h@home", 0, true},
		{"the best triple need not hold the best pair", []Path{
			way("a", "home", 1, 1, 2, 3, 4, 5, 6), way("b", "home", 1, 11, 12, 13, 14, 15, 16), // nothing in common
			way("c", "home", 9, 1, 2, 11, 12, 20), way("d", "home", 9, 3, 4, 13, 14, 20), way("e", "home", 9, 5, 6, 15, 16, 20)},
			Options{Paths: 3}, "c@home d@home e@home", 3, false},
		{"an unknown round trip is the slowest", []Path{way("a", "home", 0, 1), way("b", "home", 900, 2), way("c", "home", 901, 3)},
			Options{Paths: 2}, "b@home c@home", 0, true},
		{"one path is the fastest", []Path{way("a", "home", 3, 1), way("b", "home", 2, 1)}, Options{Paths: 1}, "b@home", 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Choose(c.paths, c.o)
			if err != nil {
				t.Fatal(err)
			}
			if names(got) != c.want || got.Common != c.common || got.Diverse() != c.diverse || !got.Exact {
				t.Errorf("%s with %d in common, diverse %v, exact %v; want %s with %d, %v", names(got), got.Common, got.Diverse(), got.Exact, c.want, c.common, c.diverse)
			}
		})
	}
}

func TestExplanation(t *testing.T) {
	paths := []Path{way("a", "home", 1, 100, 1, 9), way("b", "home", 2, 100, 2, 1, 9), way("c", "home", 3, 100, 3, 2, 9, 0), way("d", "home", 4, 100, 5, 5, 9)}
	c, err := Choose(paths, Options{Paths: 3, AvoidAS: []AS{5}, Ends: []AS{9}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(struct {
		Pairs                   []Pair
		Everywhere, Unavoidable []AS
		Refused                 []Refusal
		Usable                  int
	}{c.Pairs, c.Everywhere, c.Unavoidable, c.Refused, c.Usable})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"Pairs":[{"a":"a@home","b":"b@home","common":[1,100],"same_uplink":true},{"a":"a@home","b":"c@home","common":[100],"same_uplink":true},` +
		`{"a":"b@home","b":"c@home","common":[2,100],"same_uplink":true}],"Everywhere":[100],"Unavoidable":[100],` +
		`"Refused":[{"path":"d@home","why":"it passes AS5"}],"Usable":3}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestTooFew(t *testing.T) {
	paths := []Path{way("a", "home", 1, 1), way("a", "lte", 1, 2), way("b", "home", 1, 7)}
	for want, o := range map[string]Options{
		"1 nodes can be used, and 2 paths need as many (b@home: it passes AS7)": {Paths: 2, AvoidAS: []AS{7}},
		"2 nodes can be used, and 3 paths need as many":                         {Paths: 3},
		"a set has 1 to 8": {Paths: 9},
		"0 paths":          {},
	} {
		if _, err := Choose(paths, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}

// The search against all sets, on random paths with few ASes, few uplinks and equal round trips, so that ties abound.
func TestBestIsTheBestOfAll(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 400 {
		var paths []Path
		for i := range 1 + r.IntN(9) {
			p := way(fmt.Sprintf("n%d", r.IntN(7)), fmt.Sprintf("u%d", r.IntN(2)), 1+r.IntN(3))
			p.Name = fmt.Sprint(i)
			for range 1 + r.IntN(4) {
				p.ASes = append(p.ASes, AS(1+r.IntN(8)))
			}
			p.Hidden = r.IntN(2)
			paths = append(paths, p)
		}
		m := NewMatrix(paths, []AS{8})
		for want := 1; want <= 4; want++ {
			got, exact := m.Best(want, 0)
			best := everySet(m, want)
			switch {
			case !exact:
				t.Fatalf("seed %d: %d paths of %d: not exact", seed, want, len(paths))
			case (got == nil) != (best == nil), got != nil && m.judge(got) != m.judge(best):
				t.Fatalf("seed %d: %d paths of %+v: %v, want %v", seed, want, paths, got, best)
			}
		}
	}
}

// judge is the cost and weight of a set.
func (m *Matrix) judge(set []int) [2]int64 {
	var sum [2]int64
	for n, i := range set {
		sum[1] += m.weight[i]
		for _, j := range set[:n] {
			sum[0] += int64(m.between(i, j))
		}
	}
	return sum
}

// everySet tries all sets, one after the other.
func everySet(m *Matrix, want int) (best []int) {
	for mask := range 1 << len(m.paths) {
		var set []int
		for i := range m.paths {
			if mask>>i&1 == 1 {
				set = append(set, i)
			}
		}
		allowed := len(set) == want
		for n, i := range set {
			allowed = allowed && !slices.ContainsFunc(set[:n], func(j int) bool { return m.between(i, j) == never })
		}
		if a := m.judge(set); allowed && (best == nil || a[0] < m.judge(best)[0] || a[0] == m.judge(best)[0] && a[1] < m.judge(best)[1]) {
			best = set
		}
	}
	return best
}

func TestBoundedSearchSaysSo(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var paths []Path
	for i := range 200 {
		p := way(fmt.Sprint(i), "home", 1+r.IntN(50))
		for range 8 {
			p.ASes = append(p.ASes, AS(1+r.IntN(40)))
		}
		paths = append(paths, p)
	}
	c, err := Choose(paths, Options{Paths: 6, Steps: 1000})
	if err != nil || c.Exact || len(c.Paths) != 6 {
		t.Errorf("%d paths, exact %v, %v", len(c.Paths), c.Exact, err)
	}
}

func TestParseAS(t *testing.T) {
	for text, want := range map[string]AS{"64500": 64500, "AS64500": 64500, "as1": 1, "AS4294967295": 4294967295} {
		if got, err := ParseAS(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "AS", "0", "AS0", "-1", "+1", "AS+1", "4294967296", "1.10", "ASN5"} {
		if got, err := ParseAS(text); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

func BenchmarkBest(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{100, 1000} {
		var paths []Path
		for i := range n {
			p := way(fmt.Sprint(i), "home", 1+r.IntN(300), 1)
			for range 8 {
				p.ASes = append(p.ASes, AS(2+r.IntN(20)*r.IntN(20)))
			}
			paths = append(paths, p)
		}
		for _, want := range []int{2, 3, 4} {
			b.Run(fmt.Sprintf("%dof%d", want, n), func(b *testing.B) {
				for b.Loop() {
					NewMatrix(paths, nil).Best(want, 0)
				}
			})
		}
	}
}
