package quicprobe

import (
	"errors"
	"testing"
)

func TestFailedStepIsRepeatedBeforeItIsAVerdict(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		outcomes string // what each try gives: good, bad, or an error
		once     bool   // nothing may be repeated
		want     Tries
		verdict  bool
		err      error
	}{
		{"g", false, Tries{1, 1}, true, nil},
		{"bb", false, Tries{2, 0}, false, nil},
		{"bgg", false, Tries{3, 2}, true, nil},
		{"bgb", false, Tries{3, 1}, false, nil},
		{"b", true, Tries{1, 0}, false, nil},
		{"e", false, Tries{}, false, broken},
		{"be", false, Tries{1, 0}, false, broken},
		{"bge", false, Tries{2, 1}, false, broken},
	} {
		n := 0
		last, tries, err := repeated(func() (byte, bool, error) {
			outcome := c.outcomes[n]
			n++
			if outcome == 'e' {
				return 'e', false, broken
			}
			return outcome, outcome == 'g', nil
		}, func() bool { return !c.once })
		want := map[bool]byte{true: 'g', false: 'b'}[c.verdict]
		if tries.Tried == 0 {
			want = 'e'
		}
		if tries != c.want || tries.good() != c.verdict || err != c.err || n != len(c.outcomes) || last != want {
			t.Errorf("%s: %v after %d, result %c, error %v; want %v, %c", c.outcomes, tries, n, last, err, c.want, want)
		}
	}
}
