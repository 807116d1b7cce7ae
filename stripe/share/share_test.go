package share

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"heddle/path"
)

func TestParse(t *testing.T) {
	for _, text := range []string{"none", "2of3", "3of3", "2of16", "shamir:2of3", "xor:2", "xor:16"} {
		s, err := Parse(text)
		if err != nil || s.String() != text || s.Claim() == "" {
			t.Errorf("%s: %v, %v", text, s, err)
		}
	}
	if s, err := Parse(""); err != nil || !s.None() {
		t.Errorf("nothing asked for: %v, %v", s, err)
	}
	for _, text := range []string{"1of3", "4of3", "2of17", "xor:1", "xor:17", "shamir:", "2", "of", "2of3of4", "02of3", "+2of3", "-1of2", "2 of 3", "xor:2of3", "rot:13", "2of99999999999999999999"} {
		_, err := Parse(text)
		var explained *path.Error
		if !errors.As(err, &explained) || explained.Hint == "" {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("shamir:2of3")
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := Parse(text); err == nil && text != "" && s.String() != text {
			t.Errorf("%q was read as %v", text, s)
		}
	})
}

func parse(t testing.TB, text string) (Scheme, *Codec) {
	t.Helper()
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(b)
	return b
}

func split(t testing.TB, c *Codec, number uint64, piece []byte) [][]byte {
	t.Helper()
	into := make([][]byte, c.scheme.N)
	for i := range into {
		into[i] = make([]byte, c.scheme.Size(len(piece)))
	}
	if err := c.Split(number, piece, into); err != nil {
		t.Fatal(err)
	}
	return into
}

// subsets calls visit with each set of k of the shares, the others nil.
func subsets(shares [][]byte, k int, visit func([][]byte)) {
	for mask := range 1 << len(shares) {
		var some [][]byte
		count := 0
		for i, b := range shares {
			if mask>>i&1 == 0 {
				b = nil
			} else {
				count++
			}
			some = append(some, b)
		}
		if count == k {
			visit(some)
		}
	}
}

var schemes = []string{"2of2", "2of3", "3of4", "4of7", "5of5", "shamir:2of3", "shamir:3of5", "shamir:4of4", "xor:2", "xor:3"}

func TestAnyKRestore(t *testing.T) {
	for _, text := range schemes {
		s, c := parse(t, text)
		for i, size := range []int{0, 1, 2, 15, 16, 17, 1000, 1448, 16352} {
			piece := random(uint64(i), size)
			shares := split(t, c, 7, piece)
			subsets(shares, s.K, func(some [][]byte) {
				if got, err := c.Join(7, size, some); err != nil || !bytes.Equal(got, piece) {
					t.Fatalf("%s, %d bytes: %v", text, size, err)
				}
			})
			subsets(shares, s.K-1, func(some [][]byte) {
				if got, err := c.Join(7, size, some); err == nil {
					t.Fatalf("%s, %d bytes: %d shares gave %d bytes", text, size, s.K-1, len(got))
				}
			})
		}
	}
}

func TestCapacityIsTheMostThatFits(t *testing.T) {
	for _, text := range append(slices.Clone(schemes), "none") {
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for size := range 2000 {
			piece := s.Capacity(size)
			if piece > 0 && s.Size(piece) > size || s.Size(piece+1) <= size {
				t.Fatalf("%s: %d bytes hold a piece of %d, whose shares have %d bytes", text, size, piece, s.Size(piece))
			}
		}
	}
}

// changes are what somebody may do to a share.
var changes = map[string]func([]byte) []byte{
	"first byte": func(b []byte) []byte { b[0] ^= 1; return b },
	"last byte":  func(b []byte) []byte { b[len(b)-1] ^= 0x80; return b },
	"cut":        func(b []byte) []byte { return b[:len(b)-1] },
	"zeros":      func(b []byte) []byte { clear(b); return b },
}

func TestAChangedShareIsNamed(t *testing.T) {
	for _, text := range schemes {
		s, c := parse(t, text)
		for name, change := range changes {
			for i := range s.N {
				piece := random(3, 1001)
				shares := split(t, c, 1, piece)
				shares[i] = change(shares[i])
				got, err := c.Join(1, len(piece), shares)
				changed, ok := errors.AsType[*ChangedError](err)
				used := i < s.K // without the first K in order, the others are not looked at
				switch {
				case !used && name != "cut":
					if err != nil || !bytes.Equal(got, piece) {
						t.Errorf("%s, %s of %d: %v", text, name, i, err)
					}
				case s.K == s.N && name != "cut":
					if !ok || changed.Sure || got != nil || !slices.Contains(changed.Shares, i) {
						t.Errorf("%s, %s of %d: %v, %v", text, name, i, got != nil, err)
					}
				default:
					if !ok || !changed.Sure || !slices.Equal(changed.Shares, []int{i}) || s.K < s.N && !bytes.Equal(got, piece) {
						t.Errorf("%s, %s of %d: %v", text, name, i, err)
					}
				}
			}
		}
	}
}

func TestSeveralChangedSharesAreNamed(t *testing.T) {
	for _, text := range []string{"3of7", "shamir:3of7"} {
		_, c := parse(t, text)
		piece := random(9, 500)
		shares := split(t, c, 1, piece)
		for _, i := range []int{1, 2, 4, 5} {
			shares[i][40] ^= byte(i)
		}
		got, err := c.Join(1, len(piece), shares)
		changed, ok := errors.AsType[*ChangedError](err)
		if !ok || !changed.Sure || !slices.Equal(changed.Shares, []int{1, 2, 4, 5}) || !bytes.Equal(got, piece) {
			t.Errorf("%s: %v", text, err)
		}
		if !strings.Contains(err.Error(), "2, 3, 5, 6") {
			t.Errorf("people count from 1: %v", err)
		}
	}
}

func TestSharesOfAnotherPlaceDoNotFit(t *testing.T) {
	for _, text := range schemes {
		_, c := parse(t, text)
		shares := split(t, c, 1, random(1, 64))
		if _, err := c.Join(2, 64, shares); err == nil {
			t.Errorf("%s: joined as another piece", text)
		}
	}
}

func FuzzJoin(f *testing.F) {
	f.Add(byte(1), 5, []byte("some bytes that are no shares at all, but long enough for several of them"))
	f.Fuzz(func(t *testing.T, which byte, size int, data []byte) {
		s, c := parse(t, schemes[int(which)%len(schemes)])
		shares := make([][]byte, s.N)
		for i := range shares {
			n := min(len(data), len(data)/s.N+i%2)
			shares[i], data = slices.Clone(data[:n]), data[n:]
		}
		if piece, err := c.Join(0, size, shares); err == nil {
			t.Errorf("%v: %d bytes out of rubbish", s, len(piece))
		}
	})
}

func BenchmarkShares(b *testing.B) {
	for _, text := range []string{"2of3", "3of4", "shamir:2of3", "shamir:3of4", "xor:3"} {
		s, c := parse(b, text)
		piece := random(1, s.Capacity(16352))
		shares := split(b, c, 0, piece)
		b.Run(fmt.Sprintf("split/%s", text), func(b *testing.B) {
			b.SetBytes(int64(len(piece)))
			for b.Loop() {
				if err := c.Split(1, piece, shares); err != nil {
					b.Fatal(err)
				}
			}
		})
		for i := range s.N - s.K {
			shares[i] = nil
		}
		b.Run(fmt.Sprintf("join/%s", text), func(b *testing.B) {
			b.SetBytes(int64(len(piece)))
			for b.Loop() {
				if _, err := c.Join(1, len(piece), shares); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
