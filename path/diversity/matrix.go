package diversity

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// Matrix says, for each pair of paths, how many ASes both pass.
type Matrix struct {
	paths  []Path
	sets   [][]uint64 // each path's ASes, of those that paths through several nodes pass
	weight []int64
}

// NewMatrix prepares to compare paths; ends are ASes that do not count.
func NewMatrix(paths []Path, ends []AS) *Matrix {
	m := &Matrix{paths: paths, sets: bitsets(paths, ends), weight: make([]int64, len(paths))}
	for i := range paths {
		m.weight[i] = paths[i].weight()
	}
	return m
}

// Common is how many ASes the paths i and j both pass. Paths through one node have no such number: it is -1.
func (m *Matrix) Common(i, j int) int {
	if cost := m.between(i, j); cost != never {
		return cost / uplinkUnit
	}
	return -1
}

// A shared uplink counts less than any common AS: even the pairs of [MaxPaths] paths together stay below one unit.
const uplinkUnit = MaxPaths * MaxPaths

// never is the cost of a pair that must not be.
const never = math.MaxUint16

// between is the cost of a pair: common ASes times uplinkUnit, and 1 for a shared uplink.
func (m *Matrix) between(i, j int) int {
	if m.paths[i].Node == m.paths[j].Node {
		return never
	}
	shared := 0
	for w, word := range m.sets[i] {
		shared += bits.OnesCount64(word & m.sets[j][w])
	}
	cost := min(shared, never/uplinkUnit-1) * uplinkUnit
	if m.paths[i].Uplink == m.paths[j].Uplink {
		cost++
	}
	return cost
}

// worthwhile leaves out paths without which there is a set of want paths as good as with them: those for which there is
// another by the same uplink that passes no AS besides theirs and weighs no more. In a set the other can stand in for
// such a path, unless the set already goes through the other's node; so there must be as many others as the set has
// paths, through different nodes, or one through the path's own.
func (m *Matrix) worthwhile(want int) []int {
	order := make([]int, len(m.paths))
	size := make([]int, len(m.paths))
	for i, set := range m.sets {
		order[i] = i
		for _, word := range set {
			size[i] += bits.OnesCount64(word)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(size[a], size[b]), cmp.Compare(m.weight[a], m.weight[b]))
	})
	var kept []int
	for _, i := range order {
		if !m.replaceable(i, kept, want) {
			kept = append(kept, i)
		}
	}
	slices.Sort(kept)
	return kept
}

func (m *Matrix) replaceable(i int, by []int, want int) bool {
	var others [MaxPaths]string // the nodes of those that can stand in for it
	n := 0
	for _, j := range by {
		if m.weight[j] > m.weight[i] || m.paths[j].Uplink != m.paths[i].Uplink || !within(m.sets[j], m.sets[i]) {
			continue
		}
		node := m.paths[j].Node
		if node == m.paths[i].Node {
			return true
		}
		if !slices.Contains(others[:n], node) {
			others[n] = node
			n++
		}
		if n == want {
			return true
		}
	}
	return false
}

// within reports whether a has nothing besides b.
func within(a, b []uint64) bool {
	for w := range a {
		if a[w]&^b[w] != 0 {
			return false
		}
	}
	return true
}

// bitsets numbers the ASes that paths through more than one node pass, and gives each path the set of its own.
func bitsets(paths []Path, ends []AS) [][]uint64 {
	const several = "\x00"    // the name of no node
	passed := map[AS]string{} // through which node
	lists := make([][]AS, len(paths))
	for i, p := range paths {
		lists[i] = without(tidy(p.ASes), ends)
		for _, a := range lists[i] {
			if node, known := passed[a]; !known {
				passed[a] = p.Node
			} else if node != p.Node {
				passed[a] = several
			}
		}
	}
	number := map[AS]int{}
	for a, node := range passed {
		if node == several {
			number[a] = len(number)
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
