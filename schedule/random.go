package schedule

import (
	crand "crypto/rand"
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// systemSource reads crypto/rand: an observer who could predict the schedule could undo it.
type systemSource struct{}

func (systemSource) Uint64() uint64 {
	var b [8]byte
	crand.Read(b[:]) // never fails: the runtime ends the program first
	return binary.LittleEndian.Uint64(b[:])
}

func newRand(seed *uint64) *rand.Rand {
	if seed == nil {
		return rand.New(systemSource{})
	}
	return rand.New(rand.NewPCG(*seed, 0x686564646c65)) // the second word is fixed, so that one number is the whole seed
}

// dirichlet draws n weights with sum 1 from the symmetric Dirichlet distribution, as normalised gamma variates.
func dirichlet(rng *rand.Rand, alpha float64, n int) []float64 {
	logs := make([]float64, n)
	top := math.Inf(-1)
	for i := range logs {
		logs[i] = logGamma(rng, alpha)
		top = max(top, logs[i])
	}
	sum := 0.0
	for i := range logs {
		logs[i] = math.Exp(logs[i] - top)
		sum += logs[i]
	}
	for i := range logs {
		logs[i] /= sum
	}
	return logs
}

// logGamma draws the logarithm of a Gamma(shape, 1) variate (Marsaglia and Tsang, "A simple method for generating gamma
// variables", 2000). Logarithms prevent underflow to a vector of zeros for shapes near 0.
func logGamma(rng *rand.Rand, shape float64) float64 {
	boost := 0.0
	if shape < 1 {
		boost = math.Log(1-rng.Float64()) / shape
		shape++
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := rng.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		u := 1 - rng.Float64()
		if math.Log(u) < x*x/2+d-d*v+d*math.Log(v) {
			return math.Log(d*v) + boost
		}
	}
}
