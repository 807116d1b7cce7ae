package share

import (
	"math/rand/v2"
	"testing"
)

// A second field, by logarithms of the generator 2, so that what the package computes is not checked by itself.
var exponent, logarithm = tables()

func tables() (exp [510]byte, log [256]int) {
	x := 1
	for i := range 255 {
		exp[i], exp[i+255], log[x] = byte(x), byte(x), i
		if x <<= 1; x > 255 {
			x ^= 0x11d
		}
	}
	return exp, log
}

func times(a, b byte) byte {
	if a == 0 || b == 0 {
		return 0
	}
	return exponent[logarithm[a]+logarithm[b]]
}

func over(a, b byte) byte {
	if a == 0 {
		return 0
	}
	return exponent[logarithm[a]+255-logarithm[b]]
}

// through gives the coefficients of the polynomial of degree below len(xs) through the points (Gauss).
func through(xs, ys []byte) []byte {
	n := len(xs)
	rows := make([][]byte, n)
	for i := range rows {
		power := byte(1)
		for range n {
			rows[i] = append(rows[i], power)
			power = times(power, xs[i])
		}
		rows[i] = append(rows[i], ys[i])
	}
	for column := range n {
		pivot := column
		for rows[pivot][column] == 0 {
			pivot++ // there is one: the points differ
		}
		rows[column], rows[pivot] = rows[pivot], rows[column]
		lead := rows[column][column]
		for j := range rows[column] {
			rows[column][j] = over(rows[column][j], lead)
		}
		for i := range rows {
			if factor := rows[i][column]; i != column && factor != 0 {
				for j := range rows[i] {
					rows[i][j] ^= times(factor, rows[column][j])
				}
			}
		}
	}
	var coefficients []byte
	for i := range rows {
		coefficients = append(coefficients, rows[i][n])
	}
	return coefficients
}

func at(coefficients []byte, x byte) byte {
	value, power := byte(0), byte(1)
	for _, c := range coefficients {
		value ^= times(c, power)
		power = times(power, x)
	}
	return value
}

// Whatever byte one takes for the secret, there is exactly one polynomial through k-1 shares and that byte at 0; so each
// byte is as likely as before. That the k-th share lies on the polynomial of the true byte shows that these are the
// polynomials that shares are made of.
func TestTooFewSharesFitAnySecret(t *testing.T) {
	for _, text := range []string{"shamir:2of3", "shamir:3of5", "shamir:4of4"} {
		s, c := parse(t, text)
		seed := rand.Uint64()
		secret := random(seed, 200)
		shares := make([][]byte, s.N)
		for i := range shares {
			shares[i] = make([]byte, len(secret))
		}
		c.splitSecret(secret, shares)
		for position, truth := range secret {
			xs, ys := []byte{0}, []byte{0}
			for i := range s.K - 1 {
				xs, ys = append(xs, byte(i+1)), append(ys, shares[i][position])
			}
			seen := map[byte]bool{}
			for candidate := range 256 {
				ys[0] = byte(candidate)
				polynomial := through(xs, ys)
				for i, x := range xs {
					if at(polynomial, x) != ys[i] {
						t.Fatalf("%s, seed %d: no polynomial fits the byte %d", text, seed, candidate)
					}
				}
				next := at(polynomial, byte(s.K))
				seen[next] = true
				if byte(candidate) == truth && next != shares[s.K-1][position] {
					t.Fatalf("%s, seed %d: the shares lie on no polynomial of degree %d", text, seed, s.K-1)
				}
			}
			if len(seen) != 256 {
				t.Fatalf("%s, seed %d: of 256 secrets the next share can tell %d apart", text, seed, len(seen))
			}
		}
	}
}

// For any other piece there is a last share that, with the n-1 others, gives that piece, check and all.
func TestTooFewSharesFitAnyPiece(t *testing.T) {
	for _, text := range []string{"xor:2", "xor:4", "shamir:2of2", "shamir:3of4"} {
		s, c := parse(t, text)
		shares := split(t, c, 5, random(1, 300))
		for seed := range uint64(20) {
			other := random(100+seed, 300)
			forged := append([]byte(nil), c.secret(5, other)...)
			last := make([]byte, len(forged))
			if s.kind == xor {
				copy(last, forged)
				for _, b := range shares[:s.N-1] {
					for i := range last {
						last[i] ^= b[i]
					}
				}
			} else {
				for i := range last {
					xs, ys := []byte{0}, []byte{forged[i]}
					for j := range s.K - 1 {
						xs, ys = append(xs, byte(j+1)), append(ys, shares[j][i])
					}
					last[i] = at(through(xs, ys), byte(s.K))
				}
			}
			some := make([][]byte, s.N)
			copy(some, shares[:s.K-1])
			some[s.K-1] = last
			got, err := c.Join(5, 300, some)
			if err != nil || string(got) != string(other) {
				t.Fatalf("%s: the first shares do not fit another piece: %v", text, err)
			}
		}
	}
}

// One share of a constant piece must look like noise: 256 values, none far from its due (chi-squared with 255 degrees of
// freedom stays below 400 but once in 10^8).
func TestAShareLooksLikeNoise(t *testing.T) {
	for _, text := range []string{"2of3", "shamir:2of3", "xor:2"} {
		s, c := parse(t, text)
		piece := make([]byte, 64<<10)
		for i, b := range split(t, c, 1, piece) {
			var counts [256]float64
			for _, v := range b {
				counts[v]++
			}
			due, sum := float64(len(b))/256, 0.0
			for _, n := range counts {
				sum += (n - due) * (n - due) / due
			}
			if sum > 400 {
				t.Errorf("%v: share %d of zeros has a chi-squared of %.0f", s, i+1, sum)
			}
		}
	}
}
