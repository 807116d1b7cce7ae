package diversity

import (
	"math"
	"math/bits"
	"slices"
)

// Matrix holds, for each pair of paths, how many ASes both pass.
type Matrix struct {
	n          int
	pair       []uint16 // n x n costs: common ASes times uplinkUnit, and 1 for a shared uplink; never where both have one node
	weight     []int64  // of each path
	least      []int    // the smallest cost of a pair with each path
	leastOfAll int
}

// A shared uplink counts less than any common AS: even the pairs of [MaxPaths] paths together stay below one unit.
const uplinkUnit = MaxPaths * MaxPaths

const never = math.MaxUint16

// NewMatrix compares all pairs of paths; ends are ASes that do not count.
func NewMatrix(paths []Path, ends []AS) *Matrix {
	m := &Matrix{n: len(paths), pair: make([]uint16, len(paths)*len(paths)), weight: make([]int64, len(paths)), least: make([]int, len(paths)), leastOfAll: never}
	sets := bitsets(paths, ends)
	for i := range paths {
		m.weight[i], m.least[i] = paths[i].weight(), never
	}
	for i := range paths {
		for j := range i {
			cost := never
			if paths[i].Node != paths[j].Node {
				shared := 0
				for w, word := range sets[i] {
					shared += bits.OnesCount64(word & sets[j][w])
				}
				cost = min(shared, never/uplinkUnit-1) * uplinkUnit
				if paths[i].Uplink == paths[j].Uplink {
					cost++
				}
			}
			m.pair[i*m.n+j], m.pair[j*m.n+i] = uint16(cost), uint16(cost)
			m.least[i], m.least[j] = min(m.least[i], cost), min(m.least[j], cost)
		}
		m.leastOfAll = min(m.leastOfAll, m.least[i])
		m.pair[i*m.n+i] = never
	}
	return m
}

// Common is how many ASes the paths i and j both pass. Paths through one node have no such number: it is -1.
func (m *Matrix) Common(i, j int) int {
	if cost := m.between(i, j); cost != never {
		return int(cost) / uplinkUnit
	}
	return -1
}

// bitsets numbers the ASes that more than one path passes, and gives each path the set of its own.
func bitsets(paths []Path, ends []AS) [][]uint64 {
	passes := map[AS]int{} // how many paths pass it; then its number
	lists := make([][]AS, len(paths))
	for i, p := range paths {
		lists[i] = without(tidy(p.ASes), ends)
		for _, a := range lists[i] {
			passes[a]++
		}
	}
	number := map[AS]int{}
	for i := range lists {
		for _, a := range lists[i] {
			if _, known := number[a]; !known && passes[a] > 1 {
				number[a] = len(number)
			}
		}
	}
	words := (len(number) + 63) / 64
	sets := make([][]uint64, len(paths))
	for i := range lists {
		sets[i] = make([]uint64, words)
		for _, a := range lists[i] {
			if bit, ok := number[a]; ok {
				sets[i][bit/64] |= 1 << (bit % 64)
			}
		}
	}
	return sets
}

// defaultSteps is about a second's worth of comparisons.
const defaultSteps = 500_000_000

// Best finds the want paths with the least cost, by branch and bound, in the order of the paths. It gives nil where
// there are none, and exact false where it would take more than so many steps (0 for the default), so that a better set
// may exist.
func (m *Matrix) Best(want, steps int) (chosen []int, exact bool) {
	if want < 1 || want > m.n {
		return nil, true
	}
	if steps <= 0 {
		steps = defaultSteps
	}
	s := &search{Matrix: m, want: want, left: steps, cost: math.MaxInt, with: make([][]int32, want), lightest: make([]int64, m.n+1)}
	for i := range s.with {
		s.with[i] = make([]int32, m.n)
	}
	s.lightest[m.n] = math.MaxInt64 / MaxPaths
	for i := m.n - 1; i >= 0; i-- {
		s.lightest[i] = min(s.lightest[i+1], m.weight[i])
	}
	s.greedy()
	s.extend(0, 0, 0)
	return s.best, s.left > 0
}

// search is one run of branch and bound. Paths are taken in ascending order.
type search struct {
	*Matrix
	want, left int
	now        []int     // the paths taken so far
	with       [][]int32 // by how many are taken: each path's cost with those, or -1 where it cannot join them
	lightest   []int64   // the least weight of a path and all after it
	best       []int     // nil until there is one
	cost       int
	weighs     int64
}

// take notes a complete set, if it is better.
func (s *search) take(set []int, cost int, weighs int64) {
	if cost < s.cost || cost == s.cost && weighs < s.weighs {
		s.best, s.cost, s.weighs = append(s.best[:0], set...), cost, weighs
	}
}

// greedy makes a first set, which spares much of the search: the best pair, and then the best path to it each time.
func (s *search) greedy() {
	first := slices.Index(s.least, slices.Min(s.least))
	set, cost, with := []int{first}, 0, make([]int, s.n)
	for len(set) < s.want {
		last, next := set[len(set)-1], -1
		for k := range s.n {
			with[k] = min(with[k]+int(s.between(last, k)), math.MaxInt32)
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

// free reports whether path k may join the set.
func (s *search) free(set []int, k int) bool {
	return !slices.ContainsFunc(set, func(i int) bool { return s.between(i, k) == never })
}

func (m *Matrix) between(i, j int) uint16 { return m.pair[i*m.n+j] }

// extend tries all ways to go on from the paths taken so far, with paths from the index on.
func (s *search) extend(from, cost int, weighs int64) {
	depth := len(s.now)
	rest := s.want - depth - 1 // to be taken after the next
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
		// No pair costs less than the least of its paths, and none less than the least of all.
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

// join gives the later paths their costs with those taken so far and j.
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
