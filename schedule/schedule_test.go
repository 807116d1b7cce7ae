package schedule

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func all(n int) []bool {
	u := make([]bool, n)
	for i := range u {
		u[i] = true
	}
	return u
}

func mustNew(t *testing.T, c Config, n int) *Schedule {
	t.Helper()
	s, err := New(c, n)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func seeded(v uint64) *uint64 { return &v }

// chiSquare is Pearson's statistic of counts against the expected probabilities.
func chiSquare(counts []int, p []float64) float64 {
	total := 0
	for _, c := range counts {
		total += c
	}
	x := 0.0
	for i, c := range counts {
		want := p[i] * float64(total)
		x += (float64(c) - want) * (float64(c) - want) / want
	}
	return x
}

func TestDrawsFollowTheWeights(t *testing.T) {
	const seed, draws = 7, 60000
	const critical = 16.27 // chi-square, 3 degrees of freedom, p = 0.001
	for _, c := range []Config{
		{Name: "uniform", Every: Every{Packets: 1}, Seed: seeded(seed)},
		{Name: "weighted", Every: Every{Packets: 1}, Seed: seeded(seed)},
		{Name: "weighted", Every: Every{Packets: 1}, Seed: seeded(seed), Weights: []float64{1, 2, 3, 4}},
	} {
		s := mustNew(t, c, 4)
		counts := make([]int, 4)
		for range draws {
			i, n, _ := s.Take(time.Time{}, all(4), 1)
			counts[i] += n
		}
		if x := chiSquare(counts, s.Weights()); x > critical {
			t.Errorf("%s seed %d: chi-square %.1f over %.2f, counts %v for weights %v", c.Name, seed, x, critical, counts, s.Weights())
		}
	}
}

func TestUniformPairsAreIndependent(t *testing.T) {
	const seed = 11
	s := mustNew(t, Config{Name: "uniform", Every: Every{Packets: 1}, Seed: seeded(seed)}, 3)
	counts, before := make([]int, 9), 0
	for k := range 45001 {
		i, _, _ := s.Take(time.Time{}, all(3), 1)
		if k > 0 {
			counts[before*3+i]++
		}
		before = i
	}
	ninth := slices.Repeat([]float64{1.0 / 9}, 9)
	if x := chiSquare(counts, ninth); x > 26.12 { // 8 degrees of freedom, p = 0.001
		t.Errorf("seed %d: chi-square %.1f of consecutive pairs %v", seed, x, counts)
	}
}

func TestWeightsAreDirichlet(t *testing.T) {
	const seed, sessions, n = 3, 20000, 3
	rng := rand.New(rand.NewPCG(seed, seed))
	for _, alpha := range []float64{0.3, 1, 5} {
		var mean, square float64
		for range sessions {
			w := dirichlet(rng, alpha, n)
			sum := 0.0
			for _, x := range w {
				sum += x
			}
			if math.Abs(sum-1) > 1e-9 {
				t.Fatalf("seed %d alpha %v: weights %v sum to %v", seed, alpha, w, sum)
			}
			mean += w[0] / sessions
			square += w[0] * w[0] / sessions
		}
		wantMean := 1.0 / n
		wantVar := wantMean * (1 - wantMean) / (n*alpha + 1)
		gotVar := square - mean*mean
		if math.Abs(mean-wantMean) > 5*math.Sqrt(wantVar/sessions) {
			t.Errorf("seed %d alpha %v: mean %v, want %v", seed, alpha, mean, wantMean)
		}
		if math.Abs(gotVar-wantVar) > 0.06*wantVar {
			t.Errorf("seed %d alpha %v: variance %v, want %v", seed, alpha, gotVar, wantVar)
		}
	}
	if w := dirichlet(rng, 1e-4, 3); math.IsNaN(w[0]) {
		t.Errorf("tiny alpha gives %v", w)
	}
}

func TestEachSessionDrawsItsOwnWeights(t *testing.T) {
	c := Config{Name: "weighted", Every: Every{Packets: 1}}
	if a, b := mustNew(t, c, 3).Weights(), mustNew(t, c, 3).Weights(); slices.Equal(a, b) {
		t.Errorf("two sessions drew the same weights %v", a)
	}
	c.Seed = seeded(5)
	if a, b := mustNew(t, c, 3).Weights(), mustNew(t, c, 3).Weights(); !slices.Equal(a, b) {
		t.Errorf("one seed gave %v and %v", a, b)
	}
}

func TestRoundRobinAlternatesExactly(t *testing.T) {
	s := mustNew(t, Config{Name: "round-robin", Every: Every{Packets: 1}}, 3)
	usable := all(3)
	var got []int
	for k := range 9 {
		if k == 5 {
			usable[1] = false
		}
		i, _, _ := s.Take(time.Time{}, usable, 1)
		got = append(got, i)
	}
	if want := []int{0, 1, 2, 0, 1, 2, 0, 2, 0}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestBatchesAreExactWhenBurstsArrive(t *testing.T) {
	const seed = 9
	rng := rand.New(rand.NewPCG(seed, seed))
	s := mustNew(t, Config{Name: "round-robin", Every: Every{Packets: 50}}, 3)
	var runs []int
	last := -1
	for range 400 {
		for burst := 1 + rng.IntN(130); burst > 0; {
			i, n, _ := s.Take(time.Time{}, all(3), burst)
			if n < 1 {
				t.Fatalf("seed %d: took %d of %d", seed, n, burst)
			}
			if i != last {
				runs = append(runs, 0)
				last = i
			}
			runs[len(runs)-1] += n
			burst -= n
		}
	}
	for k, r := range runs[:len(runs)-1] {
		if r != 50 {
			t.Fatalf("seed %d: batch %d has %d packets", seed, k, r)
		}
	}
}

func TestPeriodsKeepTheirGrid(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	s := mustNew(t, Config{Name: "round-robin", Every: Every{Period: 100 * time.Millisecond}}, 3)
	for _, step := range []struct {
		ms, path int
		began    bool
	}{{0, 0, true}, {99, 0, false}, {100, 1, true}, {199, 1, false}, {450, 2, true}, {499, 2, false}, {500, 0, true}} {
		i, n, began := s.Take(at(step.ms), all(3), 7)
		if i != step.path || n != 7 || began != step.began {
			t.Errorf("at %d ms: path %d, %d packets, began %v; want path %d, 7, %v", step.ms, i, n, began, step.path, step.began)
		}
	}
}

func TestUnusablePathEndsItsUnit(t *testing.T) {
	s := mustNew(t, Config{Name: "uniform", Every: Every{}, Seed: seeded(1)}, 2)
	first, _, _ := s.Take(time.Time{}, all(2), 1)
	usable := all(2)
	usable[first] = false
	if i, _, began := s.Take(time.Time{}, usable, 1); i != 1-first || !began {
		t.Errorf("path %d, began %v after path %d went", i, began, first)
	}
	if i, _, _ := s.Take(time.Time{}, make([]bool, 2), 1); i != -1 {
		t.Errorf("path %d although none is usable", i)
	}
	zero := mustNew(t, Config{Name: "weighted", Weights: []float64{1, 0}}, 2)
	if i, _, _ := zero.Take(time.Time{}, []bool{false, true}, 1); i != 1 {
		t.Errorf("the only usable path has weight 0 and was not taken: %d", i)
	}
}

func TestParseEvery(t *testing.T) {
	for text, want := range map[string]Every{
		"none": {}, "50p": {Packets: 50}, "100ms": {Period: 100 * time.Millisecond}, "1s": {Period: time.Second},
		"auto": {Period: AutoPeriod, Auto: true},
	} {
		got, err := ParseEvery(text)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		if back, err := ParseEvery(got.String()); err != nil || back != got {
			t.Errorf("%q does not survive: %v, %v", text, back, err)
		}
	}
	for _, text := range []string{"", "p", "0p", "-1p", "1.5p", "50", "0s", "1us", "2h", "-1s", "ms", "9999999999p"} {
		if got, err := ParseEvery(text); err == nil {
			t.Errorf("%q gave %v", text, got)
		}
	}
}

func TestBadConfigs(t *testing.T) {
	for _, c := range []Config{
		{Name: "fastest"}, {Name: "weighted", Alpha: -1}, {Name: "weighted", Weights: []float64{1}},
		{Name: "weighted", Weights: []float64{0, 0}}, {Name: "weighted", Weights: []float64{1, math.NaN()}},
	} {
		if _, err := New(c, 2); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
	if _, err := New(Config{Name: "uniform"}, 0); err == nil {
		t.Error("no paths were accepted")
	}
}

func FuzzParseEvery(f *testing.F) {
	for _, s := range []string{"50p", "100ms", "none", "p", "-0p"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ParseEvery(text)
		if err != nil {
			return
		}
		if again, err := ParseEvery(e.String()); err != nil || again != e {
			t.Errorf("%q: %v, then %v, %v", text, e, again, err)
		}
	})
}

func TestRoundRobinGoesOnAfterACut(t *testing.T) {
	s, err := New(Config{Name: "round-robin", Every: Every{Packets: 1}}, 3)
	if err != nil {
		t.Fatal(err)
	}
	now, all := time.Now(), []bool{true, true, true}
	var got []int
	for range 5 {
		i, _, began := s.Take(now, all, 1)
		if !began {
			t.Error("after a cut no unit begins")
		}
		got = append(got, i)
		s.Cut()
	}
	if want := []int{0, 1, 2, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("the units went by %v, want %v", got, want)
	}
}

func TestLengthenedUnitsAndTheirChanges(t *testing.T) {
	s := mustNew(t, Config{Name: "weighted", Every: Every{Period: 100 * time.Millisecond, Auto: true}, Weights: []float64{2, 1, 1}}, 3)
	if got := s.Changes(); got != 0.625 {
		t.Errorf("a unit changes the path with probability %v", got)
	}
	if got := mustNew(t, Config{Name: "round-robin"}, 2).Changes(); got != 1 {
		t.Errorf("round-robin changes with probability %v", got)
	}
	now := time.Unix(1000, 0)
	s.Turn(now, all(3))
	s.Lengthen(150 * time.Millisecond)
	if end := s.End().Sub(now); end != 100*time.Millisecond || s.Period() != 150*time.Millisecond {
		t.Errorf("the running unit ends after %v, and units take %v", end, s.Period())
	}
	now = s.End()
	s.Turn(now, all(3))
	if end := s.End().Sub(now); end != 150*time.Millisecond {
		t.Errorf("the next unit ends after %v", end)
	}
}
