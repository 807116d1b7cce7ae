// Package draw draws numbers that nobody can foresee, for what an observer must not learn. Do not use it for simulations: they take a seed.
package draw

import (
	"crypto/rand"
	"math/big"
)

// Below draws a number from 0 to n-1, each as likely as any other, or 0 for no n.
func Below(n int) int {
	if n <= 0 {
		return 0
	}
	drawn, _ := rand.Int(rand.Reader, big.NewInt(int64(n))) // it never fails
	return int(drawn.Int64())
}
