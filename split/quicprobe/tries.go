package quicprobe

import "fmt"

// mostTries is how often a step is tried. The first success is taken at once, since only a server that follows can cause it. A
// failure may come from the network, so it counts once most of the tries have failed.
const mostTries = 3

// repeated tries a step until its verdict is sure, or again says no. It returns the last result that agrees with the verdict.
// An error ends it, with what was learned before.
func repeated[T any](step func() (result T, good bool, err error), again func() bool) (T, Tries, error) {
	var good, bad T
	var t Tries
	for {
		result, ok, err := step()
		if err != nil && t.Tried == 0 {
			return result, t, err
		}
		if err == nil {
			t.Tried++
			if ok {
				t.Good++
				good = result
			} else {
				bad = result
			}
		}
		failed := t.Tried - t.Good
		if err != nil || failed == 0 || 2*failed > mostTries || 2*t.Good > mostTries || !again() {
			if t.good() {
				return good, t, err
			}
			return bad, t, err
		}
	}
}

func always() bool { return true }

// good reports whether most tries were good.
func (t Tries) good() bool { return 2*t.Good > t.Tried }

// String is how people read it.
func (t Tries) String() string { return fmt.Sprintf("%d of %d tries", t.Good, t.Tried) }
