package defence

import "math/bits"

// padPow2 sends each object whole, padded to a power of two, so that an observer learns only the order of its size.
type padPow2 struct{}

const leastPow2 = 1024

func (padPow2) Most() int { return 1 }

func (padPow2) Padded(n int) int {
	if n <= leastPow2 {
		return leastPow2
	}
	return 1 << bits.Len(uint(n-1))
}

func (padPow2) Claim() string {
	return "each object shows as a power of two bytes, and a page shows how many objects it has"
}
