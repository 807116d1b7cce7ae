package inspect

import "math"

// Contents returns statistics of a payload: the Shannon entropy of its bytes, in bits per byte from 0 to 8, and the share of
// printable ASCII (from space to tilde). Both are 0 for an empty payload. A payload of n bytes has at most log2(n) bits.
func Contents(payload []byte) (entropy, printable float64) {
	if len(payload) == 0 {
		return 0, 0
	}
	var counts [256]int
	for _, b := range payload {
		counts[b]++
	}
	n, readable := float64(len(payload)), 0
	for b, count := range counts {
		if count == 0 {
			continue
		}
		share := float64(count) / n
		entropy -= share * math.Log2(share)
		if b >= ' ' && b <= '~' {
			readable += count
		}
	}
	return max(entropy, 0), float64(readable) / n
}
