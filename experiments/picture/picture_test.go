package picture

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"heddle/lab/labtest"
	"heddle/observe/reconstruct"
)

func TestMain(m *testing.M) { labtest.Main(m) }

func TestThePictureIsWhole(t *testing.T) {
	file := bmp(Draw(100_000))
	whole := reconstruct.Direction{Pieces: []reconstruct.Piece{{Size: uint32(len(file)), Payload: file}}, Length: uint64(len(file))}
	p, err := reconstruct.Draw(whole, file, 0)
	if err != nil || p.Right != p.Pixels {
		t.Fatalf("%+v, %v", p, err)
	}
	img := Draw(100_000)
	colours := map[[3]uint8]bool{}
	for i := 0; i < len(img.Pix); i += 4 {
		colours[[3]uint8(img.Pix[i:])] = true
	}
	if len(colours) < 100 || math.Abs(float64(len(file))-100_000) > 2000 {
		t.Errorf("%d bytes, %d colours", len(file), len(colours))
	}
}

// What each observer behind a node has, as strict shares it out, and as shares hide it.
func TestWhatObserversHave(t *testing.T) {
	labtest.Need(t)
	out := t.TempDir()
	ways := []Way{{"strict", "none"}, {"strict", "3of4"}, {"strict", "xor:4"}}
	seen, err := Run(t.Context(), Options{Heddle: labtest.Heddle, Out: out, Bytes: 500_000, Ways: ways, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) != len(ways)*len(branches()) {
		t.Fatalf("%d observations", len(seen))
	}
	for _, s := range seen {
		if _, err := os.Stat(filepath.Join(out, s.File)); err != nil {
			t.Error(err)
		}
		switch s.Shares {
		case "none":
			if math.Abs(s.Stream-0.25) > 0.05 || math.Abs(s.Right-s.Stream) > 0.02 {
				t.Errorf("%s: %.3f of the stream, %.3f of the pixels", s.Path, s.Stream, s.Right)
			}
		default:
			// A pixel that is right by chance has three bytes that are.
			if s.Stream < 0.99 || s.Right > 0.001 {
				t.Errorf("%s, %s: shares of %.3f of the stream, %.4f of the pixels", s.Shares, s.Path, s.Stream, s.Right)
			}
		}
	}
}
