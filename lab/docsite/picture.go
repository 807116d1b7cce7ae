package docsite

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
)

// The ground around a picture, in pixels.
const (
	margin = 40
	shadow = 20
	dark   = 70 // alpha of the shadow beside the picture, of 255
)

// shot is a picture as programs for screenshots make it: on a transparent ground, with a shadow. It is half as large as the original.
type shot struct{ image *image.NRGBA }

func newShot(file []byte) (*shot, error) {
	original, err := png.Decode(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	half := halved(original)
	size := half.Bounds().Size()
	out := image.NewNRGBA(image.Rect(0, 0, size.X+2*margin, size.Y+2*margin))
	inside := image.Rect(margin, margin, margin+size.X, margin+size.Y)
	for y := range out.Rect.Dy() {
		for x := range out.Rect.Dx() {
			out.SetNRGBA(x, y, color.NRGBA{A: darkness(distance(x, inside.Min.X, inside.Max.X), distance(y, inside.Min.Y, inside.Max.Y))})
		}
	}
	draw.Draw(out, inside, half, image.Point{}, draw.Src)
	return &shot{out}, nil
}

// halved has the mean of four pixels for each.
func halved(m image.Image) *image.NRGBA {
	b := m.Bounds()
	out := image.NewNRGBA(image.Rect(0, 0, b.Dx()/2, b.Dy()/2))
	for y := range out.Rect.Dy() {
		for x := range out.Rect.Dx() {
			var sum [4]uint32
			for i := range 4 {
				r, g, bl, a := m.At(b.Min.X+2*x+i%2, b.Min.Y+2*y+i/2).RGBA()
				sum[0], sum[1], sum[2], sum[3] = sum[0]+r, sum[1]+g, sum[2]+bl, sum[3]+a
			}
			mean := color.RGBA64{uint16(sum[0] / 4), uint16(sum[1] / 4), uint16(sum[2] / 4), uint16(sum[3] / 4)}
			out.Set(x, y, mean)
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
