package draw

import "testing"

func TestBelow(t *testing.T) {
	for _, n := range []int{-1, 0} {
		if got := Below(n); got != 0 {
			t.Errorf("below %d: %d", n, got)
		}
	}
	seen := map[int]bool{}
	for range 1000 { // one of three is missing once in 10^175 runs
		seen[Below(3)] = true
	}
	if len(seen) != 3 || !seen[0] || !seen[1] || !seen[2] {
		t.Errorf("below 3: %v", seen)
	}
}
