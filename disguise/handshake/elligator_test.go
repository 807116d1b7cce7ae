package handshake

import (
	"bytes"
	"crypto/ecdh"
	"math"
	"sync"
	"testing"

	"filippo.io/edwards25519"
	"filippo.io/edwards25519/field"
	"gitlab.com/yawning/edwards25519-extra/elligator2"
)

const samples = 4096

// drawn are key pairs from fixed randomness, so that a test of chance always ends in the same way.
var drawn = sync.OnceValue(func() (all []*ephemeral) {
	random := dice(42)
	for range samples {
		e, err := newEphemeral(random)
		if err != nil {
			panic(err)
		}
		all = append(all, e)
	}
	return all
})

// near fails if a count is further than five standard deviations from what is expected.
func near(t *testing.T, what string, count int, chance float64) {
	t.Helper()
	mean, deviation := samples*chance, math.Sqrt(samples*chance*(1-chance))
	if math.Abs(float64(count)-mean) > 5*deviation {
		t.Errorf("%s: %d of %d, where %.0f are expected", what, count, samples, mean)
	}
}

func TestRepresentativesAreUniform(t *testing.T) {
	all := drawn()
	bit := func(r Representative, i int) int { return int(r[i/8] >> (i % 8) & 1) }
	seen := map[Representative]bool{}
	for i := range 256 {
		ones, likeNext := 0, 0
		for _, e := range all {
			ones += bit(e.public, i)
			likeNext += 1 ^ bit(e.public, i) ^ bit(e.public, (i+1)%256)
			seen[e.public] = true
		}
		near(t, "ones", ones, 0.5)
		near(t, "like the next bit", likeNext, 0.5)
	}
	if len(seen) != samples {
		t.Error("a representative came twice")
	}
	for at := range 32 { // 16 values of each half of a byte
		var counts [32]int
		for _, e := range all {
			counts[e.public[at]>>4]++
			counts[16+e.public[at]&15]++
		}
		for _, count := range counts {
			near(t, "half of a byte", count, 1.0/16)
		}
	}
}

// Points of all orders occur as often as they do on the curve, and both signs of the second coordinate. Representatives that fail
// this were how observers could know obfs4.
func TestPointsAreUniform(t *testing.T) {
	minusOne := edwards25519.NewScalar().Negate(scalarOne(t))
	identity := edwards25519.NewIdentityPoint()
	orders, negative := [4]int{}, 0
	for _, e := range drawn() {
		p := e.public
		p[31] &= 0x3f
		r, err := new(field.Element).SetBytes(p[:])
		if err != nil {
			t.Fatal(err)
		}
		_, v := elligator2.MontgomeryFlavor(r)
		negative += v.IsNegative()
		point := elligator2.EdwardsFlavor(r)
		torsion := new(edwards25519.Point).ScalarMult(minusOne, point)
		torsion.Add(torsion, point) // times the order of the subgroup
		order := 0
		for ; torsion.Equal(identity) == 0; order++ {
			torsion.Add(torsion, torsion)
		}
		orders[order]++
	}
	for order, chance := range []float64{1.0 / 8, 1.0 / 8, 1.0 / 4, 1.0 / 2} {
		near(t, "order of the torsion", orders[order], chance)
	}
	near(t, "negative v", negative, 0.5)
}

func scalarOne(t *testing.T) *edwards25519.Scalar {
	t.Helper()
	s, err := edwards25519.NewScalar().SetCanonicalBytes(append([]byte{1}, make([]byte, 31)...))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The map inverts, for each representative of a point, and both sides of X25519 agree on what the representative stands for.
func TestRepresentativesInvert(t *testing.T) {
	peer, err := ecdh.X25519().NewPrivateKey(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range drawn() {
		point, err := e.public.point()
		if err != nil {
			t.Fatal(err)
		}
		found := false
		distinct := map[Representative]bool{}
		for tweak := range byte(32) {
			if tweak&6 != 0 {
				continue // bits without meaning
			}
			r, ok := represent(point.Bytes(), tweak)
			if !ok {
				t.Fatalf("sample %d: a point that came from a representative has none", i)
			}
			again, err := r.point()
			if err != nil || !again.Equal(point) {
				t.Fatalf("sample %d, tweak %d: another point: %v", i, tweak, err)
			}
			distinct[r] = true
			found = found || r == e.public
		}
		if !found || len(distinct) != 8 {
			t.Fatalf("sample %d: %d representatives, this one among them: %v", i, len(distinct), found)
		}
		if i%64 > 0 {
			continue
		}
		ours, err := e.private.ECDH(peer.PublicKey())
		if err != nil {
			t.Fatal(err)
		}
		if theirs, err := peer.ECDH(point); err != nil || !bytes.Equal(ours, theirs) {
			t.Fatalf("sample %d: the ends disagree: %v", i, err)
		}
	}
}

// Half of all points have no representative.
func TestHalfOfThePointsHaveRepresentatives(t *testing.T) {
	with := 0
	for _, e := range drawn() {
		if _, ok := represent(e.private.PublicKey().Bytes(), 0); ok {
			with++
		}
	}
	// These keys were chosen for a representative of the sum with a point of low order, so 1/2 + 1/8 * 1/2 have one.
	near(t, "with a representative", with, 9.0/16)
	for _, u := range [][]byte{make([]byte, 32), new(field.Element).Negate(montgomeryA).Bytes()} {
		if _, ok := represent(u, 0); ok {
			t.Errorf("%x has a representative", u)
		}
	}
}

func BenchmarkEphemeral(b *testing.B) {
	random := dice(1)
	for b.Loop() {
		if _, err := newEphemeral(random); err != nil {
			b.Fatal(err)
		}
	}
}
