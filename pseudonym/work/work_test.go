package work

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestPuzzle(t *testing.T) {
	g, now := NewGate([]byte("a key")), time.Unix(1_800_000_000, 0)
	p := g.Puzzle(now, 12)
	answer, err := Solve(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	id, until, err := g.Check(now.Add(time.Minute), p.Text, answer)
	if err != nil || len(id) != IDSize || !until.Equal(now.Add(Life)) {
		t.Fatalf("%x, %v, %v", id, until, err)
	}
	if again, _, err := NewGate([]byte("a key")).Check(now, p.Text, answer); err != nil || string(again) != string(id) {
		t.Errorf("another process: %x, %v", again, err)
	}
	other := g.Puzzle(now, 12)
	easy := NewGate([]byte("another key")).Puzzle(now, MinBits)
	easyAnswer, err := Solve(t.Context(), easy)
	if err != nil {
		t.Fatal(err)
	}
	numbers := strings.Split(answer, ",")
	for name, c := range map[string]struct {
		text, answer string
		at           time.Time
	}{
		"late":                 {p.Text, answer, now.Add(Life + time.Second)},
		"of the future":        {p.Text, answer, now.Add(-Life - time.Second)},
		"another puzzle":       {other.Text, answer, now},
		"of no puzzle":         {"", answer, now},
		"none":                 {p.Text, "", now},
		"a part is missing":    {p.Text, strings.Join(numbers[1:], ","), now},
		"one part too many":    {p.Text, answer + ",0", now},
		"parts moved":          {p.Text, strings.Join(append(numbers[1:], numbers[0]), ","), now},
		"of another gate":      {easy.Text, easyAnswer, now},
		"another way to spell": {p.Text + "=", answer, now},
		"a huge number":        {p.Text, strings.Repeat("9", 21) + answer[len(numbers[0]):], now},
	} {
		if _, _, err := g.Check(c.at, c.text, c.answer); !errors.Is(err, ErrBad) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Who asks for more pays more.
func TestCost(t *testing.T) {
	g := NewGate(nil)
	for cost, bits := range map[int]int{0: MinBits - partBits, 20: 16, 100: MaxBits - partBits} {
		if p := g.Puzzle(time.Now(), cost); p.Bits != bits || p.Parts != parts {
			t.Errorf("%d: %+v", cost, p)
		}
	}
}

// A hostile server cannot keep a client busy.
func TestSolveRefuses(t *testing.T) {
	for _, p := range []Puzzle{{"x", 200, 1}, {"x", 1, 1 << 20}, {"x", 1, 0}, {strings.Repeat("x", 1000), 1, 1}, {"x", -1, 1}} {
		if answer, err := Solve(t.Context(), p); err == nil {
			t.Errorf("%+v: %s", p, answer)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Solve(ctx, Puzzle{"x", MaxBits - partBits, parts}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func FuzzCheck(f *testing.F) {
	g, now := NewGate([]byte("a key")), time.Unix(1_800_000_000, 0)
	p := g.Puzzle(now, MinBits)
	f.Add(p.Text, "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16")
	f.Fuzz(func(t *testing.T, text, answer string) {
		if id, _, err := g.Check(now, text, answer); err == nil && (len(id) != IDSize || text != p.Text) {
			t.Errorf("%q with %q is taken", text, answer)
		}
	})
}
