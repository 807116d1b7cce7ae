package diversity

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// Matrix holds the number of common ASes of each pair of paths.
type Matrix struct {
	paths  []Path
	sets   [][]uint64 // of each path: the ASes that paths through several nodes pass
	weight []int64
}

// NewMatrix returns the matrix of paths; ends are ASes that do not count.
func NewMatrix(paths []Path, ends []AS) *Matrix {
	m := &Matrix{paths: paths, sets: bitsets(paths, ends), weight: make([]int64, len(paths))}
	for i := range paths {
		m.weight[i] = paths[i].weight()
	}
	return m
}

// Common returns the number of common ASes of paths i and j, or -1 if both lead through one node.
func (m *Matrix) Common(i, j int) int {
	if cost := m.between(i, j); cost != never {
		return cost / uplinkUnit
	}
	return -1
}

// A shared uplink costs less than any common AS: even all pairs of [MaxPaths] paths together stay below uplinkUnit.
const uplinkUnit = MaxPaths * MaxPaths

const never = math.MaxUint16 // cost of a forbidden pair

// between returns the cost of a pair: uplinkUnit per common AS, plus 1 for a shared uplink.
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

// worthwhile removes paths that the best set of want paths does not need. A path can be replaced by another one with the
// same uplink, no ASes besides its own and no more weight, unless the set already uses the other's node. So a path is
// removed if it has want such replacements through different nodes, or one through its own node.
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
	var others [MaxPaths]string // nodes of its replacements
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

// within reports whether a is a subset of b.
func within(a, b []uint64) bool {
	for w := range a {
		if a[w]&^b[w] != 0 {
			return false
		}
	}
	return true
}

// bitsets numbers the ASes that paths through more than one node pass, and returns the set of each path.
func bitsets(paths []Path, ends []AS) [][]uint64 {
	const several = "\x00"    // marks an AS with several nodes; no node has this name
	passed := map[AS]string{} // the only node through which
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
