package asim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"heddle/path/diversity"
)

func graph(t testing.TB, lines string) *Graph {
	t.Helper()
	g, err := Read(strings.NewReader(strings.ReplaceAll(lines, " ", "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// route is the way from one AS to another, such as "4 1 2".
func route(g *Graph, from, to diversity.AS) string {
	a, _ := g.Index(from)
	b, _ := g.Index(to)
	var words []string
	for _, i := range newRouter(g).routes(b).Way(a) {
		words = append(words, fmt.Sprint(uint32(g.Number(i))))
	}
	return strings.Join(words, " ")
}

// Hand-made graphs, with routes computed by hand. P|C|-1 is a provider and its customer, A|B|0 are peers.
func TestRoutesByHand(t *testing.T) {
	// 1 and 2 are peers at the top; 3 and 4 below 1, 5 below 2, 6 below 4 and 5; 7 and 8 are peers below 3 and 4.
	house := "1|2|0 1|3|-1 1|4|-1 2|5|-1 4|6|-1 5|6|-1 3|7|-1 4|8|-1 7|8|0"
	for _, c := range []struct {
		name, graph string
		from, to    diversity.AS
		want        string
	}{
		{"to itself", house, 3, 3, "3"},
		{"up and down", house, 3, 4, "3 1 4"},
		{"up, over a peer, down", house, 3, 5, "3 1 2 5"},
		{"by a customer before by a shorter peer", "1|2|-1 2|3|-1 1|3|0 3|4|-1", 1, 4, "1 2 3 4"},
		{"a longer route by a customer before a peer", "1|2|-1 2|3|-1 1|5|0 5|3|-1", 1, 3, "1 2 3"},
		{"a longer route by a customer before a provider", "1|2|-1 2|3|-1 9|1|-1 9|3|-1 3|4|-1", 1, 4, "1 2 3 4"},
		{"a longer route by a peer before a provider", "9|1|-1 9|4|-1 1|2|0 2|3|-1 3|4|-1", 1, 4, "1 2 3 4"},
		{"the shorter of two customers", "1|2|-1 2|4|-1 1|3|-1 3|5|-1 5|4|-1", 1, 4, "1 2 4"},
		{"the lower number of equal customers", "1|3|-1 1|2|-1 2|4|-1 3|4|-1", 1, 4, "1 2 4"},
		{"the lower number of equal peers", "1|3|0 1|2|0 2|4|-1 3|4|-1", 1, 4, "1 2 4"},
		{"the lower number of equal providers", "3|1|-1 2|1|-1 2|4|-1 3|4|-1", 1, 4, "1 2 4"},
		{"the lower number counts only where lengths are equal", "2|1|-1 3|1|-1 2|5|-1 5|4|-1 3|4|-1", 1, 4, "1 3 4"},
		{"a peer's link for its own customers", house, 7, 8, "7 8"},
		{"no valley: not through a customer of both", house, 4, 5, "4 1 2 5"},
		{"no peer of a peer", "1|2|0 2|3|0", 1, 3, ""},
		{"no provider's route for a peer", "9|2|-1 9|4|-1 1|2|0", 1, 4, ""},
		{"a provider passes on what it prefers, though it is longer", // 2 goes by its customer 5, so 1 takes 3
			"2|1|-1 3|1|-1 2|5|-1 5|6|-1 6|4|-1 2|4|0 3|7|-1 7|4|-1", 1, 4, "1 3 7 4"},
		{"a stub with two providers", house, 6, 2, "6 5 2"},
		{"nobody there", "1|2|-1 3|4|-1", 1, 4, ""},
	} {
		if got := route(graph(t, c.graph), c.from, c.to); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Random graphs: the routes are those that the ASes settle on who tell each other of theirs, again and again, as BGP
// does, until nobody changes its mind.
func TestRoutesAreWhatNeighboursSettleOn(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for range 150 {
		// Providers have lower numbers than customers, so that nobody is its own provider's provider.
		var lines []string
		n := 4 + r.IntN(14)
		numbers := r.Perm(n)
		for i := range n {
			for j := i + 1; j < n; j++ {
				switch x := r.IntN(10); {
				case x < 3:
					lines = append(lines, fmt.Sprintf("%d|%d|-1", numbers[i]+1, numbers[j]+1))
				case x < 5:
					lines = append(lines, fmt.Sprintf("%d|%d|0", numbers[i]+1, numbers[j]+1))
				}
			}
		}
		if len(lines) == 0 {
			continue
		}
		g := graph(t, strings.Join(lines, " "))
		for to := range int32(g.Len()) {
			got, want := newRouter(g).routes(to), settle(g, to)
			for from := range int32(g.Len()) {
				if !slices.Equal(got.Way(from), want[from]) {
					t.Fatalf("seed %d: from %v to %v: %v, want %v (indices) in %v", seed, g.Number(from), g.Number(to), got.Way(from), want[from], lines)
				}
			}
		}
	}
}

// settle lets each AS choose among its neighbours' routes until nothing changes.
func settle(g *Graph, to int32) [][]int32 {
	has := make([][]int32, g.Len())
	has[to] = []int32{to}
	relation := func(u, v int32) class { // what a route of u by v would be
		switch {
		case slices.Contains(g.customers[u], v):
			return byCustomer
		case slices.Contains(g.peers[u], v):
			return byPeer
		case slices.Contains(g.providers[u], v):
			return byProvider
		}
		return none
	}
	for changed := true; changed; {
		changed = false
		for u := range int32(g.Len()) {
			if u == to {
				continue
			}
			var best []int32
			bestClass := none
			for v := range int32(g.Len()) {
				c := relation(u, v)
				told := has[v]
				if c == none || told == nil || slices.Contains(told, u) {
					continue
				}
				// v tells its customers all, and the others only what it has from a customer, or is.
				if len(told) > 1 && relation(v, told[1]) != byCustomer && c != byProvider {
					continue
				}
				if best == nil || c < bestClass || c == bestClass && len(told)+1 < len(best) { // ascending numbers settle ties
					best, bestClass = append([]int32{u}, told...), c
				}
			}
			if !slices.Equal(best, has[u]) {
				has[u], changed = best, true
			}
		}
	}
	return has
}

func TestRead(t *testing.T) {
	g := graph(t, "#comment 3|1|-1 1|3|1 1|2|0 2|1|0 7|2|-1|bgp")
	if g.Len() != 4 || g.Links() != 3 || fmt.Sprint(g.numbers) != "[AS1 AS2 AS3 AS7]" {
		t.Errorf("%v, %d links", g.numbers, g.Links())
	}
	if fmt.Sprint(g.providers) != "[[2] [3] [] []]" || fmt.Sprint(g.customers) != "[[] [] [0] [1]]" || fmt.Sprint(g.peers) != "[[1] [0] [] []]" {
		t.Errorf("%v %v %v", g.providers, g.customers, g.peers)
	}
	for _, bad := range []string{"", "#x", "1|2", "1|2|2", "1|1|0", "0|1|0", "x|1|0", "1|4294967296|0", "1|2|-1\n2|1|-1", "1|2|-1\n1|2|0", "1,2,-1"} {
		if _, err := Read(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("# x\n1|2|-1\n2|1|1\n2|3|0|bgp\n")
	f.Fuzz(func(t *testing.T, text string) {
		g, err := Read(strings.NewReader(text))
		if err != nil {
			return
		}
		for to := range min(int32(g.Len()), 3) {
			routes := newRouter(g).routes(to)
			for from := range int32(g.Len()) {
				if way := routes.Way(from); len(way) > g.Len() {
					t.Fatalf("a way that goes round: %v", way)
				}
			}
		}
	})
}
