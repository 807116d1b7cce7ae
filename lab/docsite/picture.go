package docsite

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math/rand/v2"
	"sync"
)

// markBytes is how long the mark of a visitor is.
const markBytes = 96

// The shadow of a picture.
const (
	shadow = 12 // pixels
	dark   = 70 // alpha beside the picture, of 255
)

// format is a form in which the site has a picture.
type format struct {
	ending string // of its name
	shrunk int    // how many pixels of the original become one, each way
	margin int    // of the ground around it, in pixels
}

var formats = []format{{"", 10, 66}, {"-card", 16, 56}, {"-icon", 24, 40}, {"-banner", 16, 116}}

// shot is a picture as programs for screenshots make it: on a transparent ground, with a shadow. Each answer has a mark of the visitor.
type shot struct {
	image *image.NRGBA

	mu     sync.Mutex
	random *rand.ChaCha8 // of this picture alone, so that its answers do not depend on the order in which pictures are asked for
	ready  [][]byte
}

func newShot(original image.Image, f format, random *rand.ChaCha8) *shot {
	small := scaled(original, f.shrunk)
	size := small.Bounds().Size()
	out := image.NewNRGBA(image.Rect(0, 0, size.X+2*f.margin, size.Y+2*f.margin))
	inside := image.Rect(0, 0, size.X, size.Y).Add(image.Pt(f.margin, f.margin))
	for y := range out.Rect.Dy() {
		for x := range out.Rect.Dx() {
			out.SetNRGBA(x, y, color.NRGBA{A: darkness(distance(x, inside.Min.X, inside.Max.X), distance(y, inside.Min.Y, inside.Max.Y))})
		}
	}
	draw.Draw(out, inside, small, image.Point{}, draw.Src)
	return &shot{image: out, random: random}
}

// prepare makes the next n answers.
func (s *shot) prepare(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.ready = append(s.ready, s.marked())
	}
}

// answer returns the next answer.
func (s *shot) answer() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ready) == 0 {
		return s.marked()
	}
	first := s.ready[0]
	s.ready = s.ready[1:]
	return first
}

// marked is the file with the mark of another visitor.
func (s *shot) marked() []byte {
	mark := make([]byte, markBytes)
	_, _ = s.random.Read(mark) // it never fails
	return s.png(mark)
}

// scaled has the mean of a square of n x n pixels for each.
func scaled(m image.Image, n int) *image.NRGBA {
	b := m.Bounds()
	out := image.NewNRGBA(image.Rect(0, 0, b.Dx()/n, b.Dy()/n))
	for y := range out.Rect.Dy() {
		for x := range out.Rect.Dx() {
			var sum [4]uint32
			for i := range n * n {
				r, g, bl, a := m.At(b.Min.X+n*x+i%n, b.Min.Y+n*y+i/n).RGBA()
				sum[0], sum[1], sum[2], sum[3] = sum[0]+r, sum[1]+g, sum[2]+bl, sum[3]+a
			}
			of := uint32(n * n)
			out.Set(x, y, color.RGBA64{uint16(sum[0] / of), uint16(sum[1] / of), uint16(sum[2] / of), uint16(sum[3] / of)})
		}
	}
	return out
}

// distance is how far a pixel is from a range of them.
func distance(at, from, to int) int { return max(0, from-at, at-to+1) }

// darkness is the alpha of the shadow at a distance from the picture.
func darkness(x, y int) uint8 {
	const most = shadow * shadow
	return uint8(dark * max(0, most-x*x-y*y) / most)
}

// png returns the file, with a mark of the visitor in the colours of the first transparent pixels: three bytes in each.
func (s *shot) png(mark []byte) []byte {
	out := *s.image
	out.Pix = bytes.Clone(out.Pix)
	for i := 0; i < len(out.Pix) && len(mark) >= 3; i += 4 {
		if out.Pix[i+3] == 0 {
			copy(out.Pix[i:i+3], mark[:3])
			mark = mark[3:]
		}
	}
	var file bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	_ = encoder.Encode(&file, &out) // a buffer takes all
	return file.Bytes()
}
