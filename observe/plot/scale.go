package plot

import (
	"math"
	"strconv"
)

// scale maps values to coordinates.
type scale struct {
	min, max float64 // of the values
	from, to float64 // coordinates
	log      bool
}

func (s scale) at(v float64) float64 {
	low, high := s.min, s.max
	if s.log {
		low, high, v = math.Log10(low), math.Log10(high), math.Log10(math.Max(v, s.min))
	}
	if high == low {
		return s.from
	}
	return s.from + (s.to-s.from)*(v-low)/(high-low)
}

// ticks returns up to about n round values within the scale; powers of ten on a logarithmic one.
func (s scale) ticks(n int) []float64 {
	var at []float64
	if s.log {
		first, last := math.Ceil(math.Log10(s.min)-1e-9), math.Floor(math.Log10(s.max)+1e-9)
		step := math.Max(1, math.Ceil((last-first)/float64(n)))
		for e := first; e <= last; e += step {
			at = append(at, math.Pow(10, e))
		}
		return at
	}
	step := niceStep((s.max - s.min) / float64(n))
	if step <= 0 || math.IsInf(step, 0) || math.IsNaN(step) {
		return []float64{s.min}
	}
	for i := math.Ceil(s.min/step - 1e-9); i*step <= s.max+step*1e-9; i++ {
		at = append(at, i*step+0) // turns -0 into 0
	}
	return at
}

// niceStep rounds a step up to 1, 2 or 5 times a power of ten.
func niceStep(raw float64) float64 {
	if raw <= 0 {
		return 0
	}
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= raw*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// plain formats a tick's value in its shortest form.
func plain(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
