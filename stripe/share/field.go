package share

import (
	"github.com/klauspost/reedsolomon"
)

// Shamir's scheme for each byte over GF(256) with the polynomial 0x11d. Share i is the value at i+1 of a polynomial of
// degree k-1 with the secret as its value at 0 and random other coefficients.

// field multiplies slices with vector instructions.
var field reedsolomon.LowLevel

// multiply returns the product of two elements.
func multiply(a, b byte) byte {
	var product byte
	for ; b != 0; b >>= 1 {
		if b&1 != 0 {
			product ^= a
		}
		carry := a >> 7
		a = a<<1 ^ carry*0x1d
	}
	return product
}

// evaluate computes a polynomial's value at x by Horner's rule, lowest coefficient first. scratch is as long as out.
func evaluate(coefficients [][]byte, x byte, out, scratch []byte) {
	copy(out, coefficients[len(coefficients)-1])
	for i := len(coefficients) - 2; i >= 0; i-- {
		field.GalMulSlice(x, out, scratch)
		copy(out, coefficients[i])
		field.GalMulSliceXor(1, scratch, out)
	}
}

// interpolate writes the value at x of the Lagrange polynomial through (points[j], values[j]).
func interpolate(points []byte, values [][]byte, x byte, out []byte) {
	clear(out)
	for j, at := range points {
		factor := byte(1)
		for m, other := range points {
			if m != j {
				factor = multiply(factor, multiply(x^other, reedsolomon.Inv(at^other)))
			}
		}
		if factor != 0 {
			field.GalMulSliceXor(factor, values[j][:len(out)], out)
		}
	}
}
