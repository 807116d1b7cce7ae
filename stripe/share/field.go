package share

import (
	"github.com/klauspost/reedsolomon"
)

// Shamir's scheme byte by byte over GF(256) with the polynomial 0x11d. Share i is the value at i+1 of a polynomial of
// degree k-1 whose value at 0 is the secret, and whose other coefficients are random.

// field multiplies slices, with the vector instructions of the machine.
var field reedsolomon.LowLevel

// multiply is the product of two elements.
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

// evaluate writes the value at x of the polynomial with these coefficients, the lowest first (Horner's rule). scratch is
// as long as out.
func evaluate(coefficients [][]byte, x byte, out, scratch []byte) {
	copy(out, coefficients[len(coefficients)-1])
	for i := len(coefficients) - 2; i >= 0; i-- {
		field.GalMulSlice(x, out, scratch)
		copy(out, coefficients[i])
		field.GalMulSliceXor(1, scratch, out)
	}
}

// interpolate writes the value at x of the polynomial of least degree that has values[j] at points[j] (Lagrange).
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
