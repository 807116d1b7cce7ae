package diversity

import (
	"math"
	"slices"
)

// defaultSteps takes about a second.
const defaultSteps = 500_000_000

// Best finds the want paths with the least cost by branch and bound, in the order of the paths, or nil if there is no such
// set. After steps comparisons (0 for the default) it stops and returns exact false: a better set may exist.
func (m *Matrix) Best(want, steps int) (chosen []int, exact bool) {
	if want < 1 || want > MaxPaths {
		return nil, true
	}
	if steps <= 0 {
		steps = defaultSteps
	}
	kept := m.worthwhile(want)
	s := newSearch(m, kept, want, steps)
	if want > s.n {
		return nil, true
	}
	s.greedy()
	s.extend(0, 0, 0)
	for _, i := range s.best {
		chosen = append(chosen, kept[i])
	}
	return chosen, s.left > 0
}

// search is one run of branch and bound. It takes paths in ascending order.
type search struct {
	n, want, left int
	pair          []uint16 // n x n costs
	weight        []int64
	least         []int // smallest cost of a pair with each path
	leastOfAll    int
	now           []int     // paths taken so far
	with          [][]int32 // for each number of taken paths: the cost of each path with those, or -1 if it cannot join them
	lightest      []int64   // least weight of a path and all after it
	best          []int     // nil until a set is found
	cost          int
	weighs        int64
}

func newSearch(m *Matrix, some []int, want, steps int) *search {
	n := len(some)
	s := &search{n: n, want: want, left: steps, pair: make([]uint16, n*n), weight: make([]int64, n), least: make([]int, n), leastOfAll: never,
		with: make([][]int32, want), lightest: make([]int64, n+1), cost: math.MaxInt}
	for i := range s.with {
		s.with[i] = make([]int32, n)
	}
	s.lightest[n] = math.MaxInt64 / MaxPaths
	for i := n - 1; i >= 0; i-- {
		s.weight[i] = m.weight[some[i]]
		s.lightest[i] = min(s.lightest[i+1], s.weight[i])
		s.least[i] = never
		for j := range n {
			cost := m.between(some[i], some[j])
			s.pair[i*n+j] = uint16(cost)
			s.least[i] = min(s.least[i], cost)
		}
		s.leastOfAll = min(s.leastOfAll, s.least[i])
	}
	return s
}

// take records a complete set if it is the best so far.
func (s *search) take(set []int, cost int, weighs int64) {
	if cost < s.cost || cost == s.cost && weighs < s.weighs {
		s.best, s.cost, s.weighs = append(s.best[:0], set...), cost, weighs
	}
}

// greedy finds a first set, which prunes much of the search: the best pair, then repeatedly the cheapest path to add.
func (s *search) greedy() {
	first := slices.Index(s.least, slices.Min(s.least))
	set, cost, with := []int{first}, 0, make([]int, s.n)
	for len(set) < s.want {
		last, next := set[len(set)-1], -1
		for k := range s.n {
			with[k] = min(with[k]+s.between(last, k), math.MaxInt32)
			if s.free(set, k) && (next < 0 || with[k] < with[next]) {
				next = k
			}
		}
		if next < 0 {
			return
		}
		cost += with[next]
		set = append(set, next)
	}
	slices.Sort(set)
	var weighs int64
	for _, i := range set {
		weighs += s.weight[i]
	}
	s.take(set, cost, weighs)
}

func (s *search) free(set []int, k int) bool {
	return !slices.ContainsFunc(set, func(i int) bool { return s.between(i, k) == never })
}

func (s *search) between(i, j int) int { return int(s.pair[i*s.n+j]) }

// extend tries all continuations of the taken paths with paths from the index on.
func (s *search) extend(from, cost int, weighs int64) {
	depth := len(s.now)
	rest := s.want - depth - 1 // paths to take after the next one
	with := s.with[depth]
	lowest := math.MaxInt32
	for _, c := range with[from:] {
		if c >= 0 {
			lowest = min(lowest, int(c))
		}
	}
	s.left -= s.n - from
	for j := from; j+rest < s.n && s.left > 0; j++ {
		if with[j] < 0 {
			continue
		}
		// A pair costs at least the least of each of its paths, and at least the least of all.
		next, heavier := cost+int(with[j]), weighs+s.weight[j]
		bound := next + rest*(lowest+s.least[j]) + rest*(rest-1)/2*s.leastOfAll
		if bound > s.cost || bound == s.cost && heavier+int64(rest)*s.lightest[j+1] >= s.weighs {
			continue
		}
		s.now = append(s.now, j)
		if rest == 0 {
			s.take(s.now, next, heavier)
		} else {
			s.join(depth, j)
			s.extend(j+1, next, heavier)
		}
		s.now = s.now[:depth]
	}
}

// join computes the costs of the later paths with the taken ones and j.
func (s *search) join(depth, j int) {
	row, with, next := s.pair[j*s.n:(j+1)*s.n], s.with[depth], s.with[depth+1]
	for k := j + 1; k < s.n; k++ {
		next[k] = -1
		if with[k] >= 0 && row[k] != never {
			next[k] = with[k] + int32(row[k])
		}
	}
	s.left -= s.n - j
}
