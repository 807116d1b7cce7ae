package inspect

import (
	"math"
	"testing"
)

func TestContents(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, c := range []struct {
		name               string
		payload            []byte
		entropy, printable float64
	}{
		{"nothing", nil, 0, 0},
		{"one value", []byte("aaaa"), 0, 1},
		{"two values", []byte{'a', 0, 'a', 0}, 1, 0.5},
		{"ends of the printable range", []byte{' ' - 1, ' ', '~', '~' + 1}, 2, 0.5},
		{"all values", all, 8, 95.0 / 256},
	} {
		entropy, printable := Contents(c.payload)
		if math.Abs(entropy-c.entropy) > 1e-12 || printable != c.printable {
			t.Errorf("%s: %g bits, %g printable, want %g and %g", c.name, entropy, printable, c.entropy, c.printable)
		}
	}
}
