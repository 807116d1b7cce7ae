package asim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"heddle/path/diversity"
)

// random is a graph of three layers, as the Internet has them.
func random(t testing.TB, n int) *Graph {
	r := rand.New(rand.NewPCG(7, 7))
	var lines []string
	for i := 1; i <= n; i++ {
		switch {
		case i <= 3:
			for j := 1; j < i; j++ {
				lines = append(lines, fmt.Sprintf("%d|%d|0", j, i))
			}
		default:
			first := 1 + r.IntN(min(i-1, 20))
			lines = append(lines, fmt.Sprintf("%d|%d|-1", first, i))
			if second := 1 + r.IntN(min(i-1, 20)); r.IntN(2) == 0 && second != first {
				lines = append(lines, fmt.Sprintf("%d|%d|-1", second, i))
			}
		}
	}
	return graph(t, strings.Join(lines, " "))
}

func TestSameSeedSameResult(t *testing.T) {
	g := random(t, 120)
	o := Options{Seed: 3, Sets: 3, Clients: 20, Candidates: []int{4, 30}}
	var results []string
	for _, c := range []struct {
		workers int
		seed    uint64
	}{{1, 3}, {4, 3}, {4, 4}} {
		o.Workers, o.Seed = c.workers, c.seed
		r, err := Simulate(t.Context(), g, o)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(r.Rows)
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, string(text))
	}
	if results[0] != results[1] {
		t.Error("one worker and four come to different results")
	}
	if results[1] == results[2] {
		t.Error("another seed comes to the same result")
	}
}

func TestMoreChoiceIsNeverWorse(t *testing.T) {
	r, err := Simulate(t.Context(), random(t, 300), Options{Seed: 1, Sets: 4, Clients: 50, Candidates: []int{4, 100}})
	if err != nil {
		t.Fatal(err)
	}
	value := map[string]float64{}
	for _, row := range r.Rows {
		value[row.Case+" "+row.Metric] = row.Median
		if row.N != 4 {
			t.Errorf("%s: %d sets", row.Case, row.N)
		}
	}
	for _, h := range Homings {
		few, many := value[fmt.Sprintf("%s/4/best-pair %s", h, metricCommon)], value[fmt.Sprintf("%s/100/best-pair %s", h, metricCommon)]
		drawn := value[fmt.Sprintf("%s/4/random-pair %s", h, metricCommon)]
		if !(many <= few && few < drawn) {
			t.Errorf("%s: of 100 %.2f, of 4 %.2f, drawn %.2f", h, many, few, drawn)
		}
		var sum float64
		for _, m := range metricShares {
			sum += value[fmt.Sprintf("%s/4/best-triple %s", h, m)]
		}
		if sum < 0.9 || sum > 1.1 { // medians of shares that sum to 1
			t.Errorf("%s: shares sum to %.2f", h, sum)
		}
	}
	if one := value["single/100/best-pair "+metricCommon]; one < 1 {
		t.Errorf("with one network it sees both paths, and %.2f do", one)
	}
}

// A client in 10 and 11, nodes in 20, 21 and 22, a server in 30; by hand.
func TestChoiceOnAKnownGraph(t *testing.T) {
	g := graph(t, "1|10|-1 2|11|-1 1|2|0 1|20|-1 2|21|-1 1|22|-1 2|22|-1 1|30|-1 2|30|-1 3|10|-1 3|1|0 3|2|0 12|40|-1 1|12|-1 2|40|-1")
	at := func(as diversity.AS) int32 { i, _ := g.Index(as); return i }
	r := newRouter(g)
	var nodes []Routes
	for _, as := range []diversity.AS{20, 21, 22} {
		nodes = append(nodes, r.routes(at(as)))
	}
	d := drawn{server: at(30), access: [2]int32{at(10), at(11)}, customer: at(40), providers: [2]int32{at(12), at(2)}}
	for _, c := range []struct {
		h    Homing
		want map[string]outcome
	}{
		// 10-1-20-1-30, 10-1-2-21-2-30 (1 before 3), 10-1-22-1-30: 10 and 1 see all three.
		{Single, map[string]outcome{"best-pair": {2, 1, true}, "best-triple": {2, 1, true}}},
		// By 10 to 20: 10-1-20-1-30; by 11 to 21: 11-2-21-2-30.
		{Dual, map[string]outcome{"best-pair": {0, 0, true}, "best-triple": {2. / 3, 1. / 3, true}}}, // 22 by 10 too
		// By 12 to 20: 40-12-1-20-1-30; by 2 to 21: 40-2-21-2-30; 40 is the client's own.
		{Multihomed, map[string]outcome{"best-pair": {0, 0, true}}},
	} {
		ways, ends := d.uplinks(c.h)
		all := paths(g, ways, nodes, r.routes(d.server))
		got := map[string]outcome{}
		chooser{all, numbers(g, ends), numbers(g, d.accessOf(c.h))}.choose(rand.New(rand.NewPCG(1, 1)), func(pick string, o outcome) { got[pick] = o })
		for pick, want := range c.want {
			if !reflect.DeepEqual(got[pick], want) {
				t.Errorf("%s, %s: %+v, want %+v; paths %+v", c.h, pick, got[pick], want, all)
			}
		}
	}
}

func TestAllPairs(t *testing.T) {
	// 1 and 2 are peers, each with two customers; 9 and 10 are elsewhere.
	a, err := RouteAll(t.Context(), graph(t, "1|2|0 1|3|-1 1|4|-1 2|5|-1 2|6|-1 9|10|0"), 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Of 56 ordered pairs 32 are between the two parts of 6 and 2. A customer's routes are all by its provider.
	a.Seconds = 0
	want := AllPairs{ASes: 8, Links: 6, Pairs: 32, Unreachable: 24, ByCustomer: 4, ByPeer: 8, ByProvider: 20, Lengths: []int64{0, 12, 12, 8}, Workers: 2}
	if !reflect.DeepEqual(a, want) {
		t.Errorf("%+v\nwant %+v", a, want)
	}
}

func TestStopsWhenTold(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Simulate(ctx, random(t, 50), Options{Sets: 2, Clients: 2, Candidates: []int{3}}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestTables(t *testing.T) {
	lines := []string{"1|1930|-1", "2|12353|-1", "1|2|0", "1|16509|-1", "2|16509|-1"}
	for i, p := range nodePlaces {
		lines = append(lines, fmt.Sprintf("%d|%d|-1", 1+i%2, p.AS))
	}
	g := graph(t, strings.Join(lines, " "))
	r, err := Tables(g, Places())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, row := range r.Rows {
		got[row.Case+", "+row.Metric] = row.Median
	}
	// Frankfurt is a customer of 1: 1930-1-3320-1-16509; California too; N. Virginia of 2: 1930-1-2-40220-2-16509.
	for name, want := range map[string]float64{
		"table1/Frankfurt, Seoul, single-homed":               3, // 1930, 1, 16509
		"table1/Singapore, Tokyo, single-homed":               3,
		"table1/Singapore, Tokyo, but for those on all paths": 0,
		"table2/Frankfurt, Seoul, dual-homed":                 1, // the second is 12353-2-4766-2-16509
		"table2/Frankfurt, California, dual-homed":            2, // 12353-2-1-2152-1-16509
	} {
		if got[name] != want {
			t.Errorf("%s: %v, want %v", name, got[name], want)
		}
	}
	if _, err := ParsePlaces([]string{"Tokio=AS1"}); err == nil || !strings.Contains(err.Error(), "NAME=AS") {
		t.Errorf("%v", err)
	}
	places, err := ParsePlaces([]string{"n. virginia=64500"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Tables(g, places); err == nil || !strings.Contains(err.Error(), "AS64500 is not in the graph") {
		t.Errorf("%v", err)
	}
}
