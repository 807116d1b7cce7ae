// Package picture sends a picture over overlay nodes and draws what an observer behind each of them could rebuild if
// the ciphers were broken: figures 7 and 8 of MACHETE.
package picture

import (
	"encoding/binary"
	"image"
	"image/color"
	"math"
)

// Draw makes a picture of about bytes as a 24-bit BMP: crossing threads behind a disc, so that missing parts are visible.
func Draw(bytes int) *image.NRGBA {
	side := max(int(math.Sqrt(float64(bytes)/3)), 16)
	img := image.NewNRGBA(image.Rect(0, 0, side, side))
	thread := max(side/16, 2)
	for y := range side {
		for x := range side {
			img.SetNRGBA(x, y, at(x, y, side, thread))
		}
	}
	return img
}

func at(x, y, side, thread int) color.NRGBA {
	dx, dy := float64(x)-float64(side)/2, float64(y)-float64(side)/2
	if r := math.Hypot(dx, dy) / float64(side); r < 0.3 {
		shade := uint8(60 + 180*(0.3-r)/0.3)
		if r > 0.12 && r < 0.17 {
			return color.NRGBA{20, 30, 60, 255}
		}
		return color.NRGBA{shade, uint8(200 - shade/2), 230, 255}
	}
	warp := (x/thread+y/thread)%2 == 0
	along, across := y%thread, x%thread
	if warp {
		along, across = across, along
	}
	light := 1 - math.Abs(float64(along)-float64(thread)/2)/float64(thread)
	base := color.NRGBA{220, 150, 60, 255}
	if warp {
		base = color.NRGBA{50, 110, 90, 255}
	}
	grain := uint8((across * 7) % 13)
	return color.NRGBA{uint8(float64(base.R)*light) + grain, uint8(float64(base.G)*light) + grain, uint8(float64(base.B)*light) + grain, 255}
}

// bmp writes the picture without compression, as in the paper.
func bmp(img *image.NRGBA) []byte {
	w, h := img.Rect.Dx(), img.Rect.Dy()
	stride := (3*w + 3) &^ 3
	const head = 54
	file := make([]byte, head, head+stride*h)
	copy(file, "BM")
	le := binary.LittleEndian
	le.PutUint32(file[2:], uint32(head+stride*h))
	le.PutUint32(file[10:], head)
	le.PutUint32(file[14:], 40)
	le.PutUint32(file[18:], uint32(w))
	le.PutUint32(file[22:], uint32(h))
	le.PutUint16(file[26:], 1)
	le.PutUint16(file[28:], 24)
	for y := h - 1; y >= 0; y-- {
		row := make([]byte, stride)
		for x := range w {
			c := img.NRGBAAt(x, y)
			row[3*x], row[3*x+1], row[3*x+2] = c.B, c.G, c.R
		}
		file = append(file, row...)
	}
	return file
}
