package reconstruct

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"math"
	"regexp"
	"strconv"
)

// Format is the layout of an uncompressed picture in a file. The observer is assumed to have guessed it.
type Format struct {
	Width, Height int
	// Start is the offset of the first pixel, and Stride the distance between rows, in bytes.
	Start, Stride int
	// Pixel is the length of a pixel in bytes; Red, Green and Blue are the offsets of the colours in it.
	Pixel            int
	Red, Green, Blue int
	Upwards          bool // the lowest row is first
}

const maxSide = 1 << 15

// ReadFormat reads the header of an uncompressed picture: BMP with 24 or 32 bits a pixel, or PPM (P6, 8 bits a colour).
func ReadFormat(file []byte) (Format, error) {
	var f Format
	var err error
	switch {
	case bytes.HasPrefix(file, []byte("BM")):
		f, err = bmp(file)
	case bytes.HasPrefix(file, []byte("P6")):
		f, err = ppm(file)
	default:
		return f, fmt.Errorf("it is neither BMP nor binary PPM")
	}
	if err == nil && (f.Width < 1 || f.Height < 1 || f.Width > maxSide || f.Height > maxSide) {
		err = fmt.Errorf("a picture of %d x %d pixels, where each side may have 1 to %d", f.Width, f.Height, maxSide)
	}
	return f, err
}

func bmp(file []byte) (Format, error) {
	if len(file) < 54 {
		return Format{}, fmt.Errorf("a BMP of %d bytes is cut short", len(file))
	}
	start, height := binary.LittleEndian.Uint32(file[10:]), int32(binary.LittleEndian.Uint32(file[22:]))
	bits, packed := binary.LittleEndian.Uint16(file[28:]), binary.LittleEndian.Uint32(file[30:])
	if bits != 24 && bits != 32 || packed != 0 && packed != 3 || start > 1<<16 {
		return Format{}, fmt.Errorf("a BMP of %d bits a pixel and compression %d, where 24 or 32 bits without compression are read", bits, packed)
	}
	f := Format{Width: int(int32(binary.LittleEndian.Uint32(file[18:]))), Height: int(height), Start: int(start), Pixel: int(bits / 8),
		Red: 2, Green: 1, Blue: 0, Upwards: true}
	if height < 0 {
		f.Height, f.Upwards = -f.Height, false
	}
	f.Stride = (f.Width*f.Pixel + 3) &^ 3
	return f, nil
}

// ppmHead is the header of a PPM: width, height and highest colour value, separated by spaces and comments.
var ppmHead = regexp.MustCompile(`^P6(?:\s|#.*\n)+(\d{1,6})(?:\s|#.*\n)+(\d{1,6})(?:\s|#.*\n)+(\d{1,6})\s`)

func ppm(file []byte) (Format, error) {
	head := ppmHead.FindSubmatch(file)
	if head == nil {
		return Format{}, fmt.Errorf("the head of the PPM is cut short or holds no width, height and highest colour")
	}
	if string(head[3]) != "255" {
		return Format{}, fmt.Errorf("a PPM whose colours go to %s, where 255 is read", head[3])
	}
	width, _ := strconv.Atoi(string(head[1]))
	height, _ := strconv.Atoi(string(head[2]))
	return Format{Width: width, Height: height, Start: len(head[0]), Stride: 3 * width, Pixel: 3, Red: 0, Green: 1, Blue: 2}, nil
}

// Picture is the drawn picture, and how much of it is right.
type Picture struct {
	Image *image.NRGBA
	// Pixels counts all pixels, Drawn those with any byte or share of one seen, and Right those that equal the original.
	Pixels, Drawn, Right int
	PSNR                 float64 // peak signal-to-noise ratio to the original in dB, over all pixels; unknown ones are grey
}

var blank = color.NRGBA{0x80, 0x80, 0x80, 0xff}

// Draw draws the pieces of a stream that carried the file original from offset skip on. The bytes of a share are drawn
// in place of the bytes that it stands for.
func Draw(d Direction, original []byte, skip uint64) (Picture, error) {
	f, err := ReadFormat(original)
	if err != nil {
		return Picture{}, err
	}
	if need := f.Start + f.Stride*(f.Height-1) + f.Width*f.Pixel; len(original) < need {
		return Picture{}, fmt.Errorf("the picture has %d bytes and should have %d", len(original), need)
	}
	seen, known := d.Fill(skip, len(original))
	p := Picture{Image: image.NewNRGBA(image.Rect(0, 0, f.Width, f.Height)), Pixels: f.Width * f.Height}
	var squares float64
	for y := range f.Height {
		row := y
		if f.Upwards {
			row = f.Height - 1 - y
		}
		for x := range f.Width {
			at := f.Start + row*f.Stride + x*f.Pixel
			truth, got := f.colour(original[at:]), blank
			if known[at+f.Red] && known[at+f.Green] && known[at+f.Blue] {
				got = f.colour(seen[at:])
				p.Drawn++
				if got == truth {
					p.Right++
				}
			}
			p.Image.SetNRGBA(x, y, got)
			for _, gap := range []int{int(got.R) - int(truth.R), int(got.G) - int(truth.G), int(got.B) - int(truth.B)} {
				squares += float64(gap * gap)
			}
		}
	}
	p.PSNR = 10 * math.Log10(255*255*3*float64(p.Pixels)/max(squares, 1e-9))
	return p, nil
}

func (f Format) colour(pixel []byte) color.NRGBA {
	return color.NRGBA{pixel[f.Red], pixel[f.Green], pixel[f.Blue], 0xff}
}

// Fill returns length bytes of the stream from the offset on, and which of them are known. Unknown bytes are 0.
func (d Direction) Fill(offset uint64, length int) (stream []byte, known []bool) {
	stream, known = make([]byte, length), make([]bool, length)
	for _, p := range d.Pieces {
		payload := p.Payload[:min(len(p.Payload), int(p.Size))]
		for i, b := range payload {
			if at := p.Offset + uint64(i); at >= offset && at-offset < uint64(length) {
				stream[at-offset], known[at-offset] = b, true
			}
		}
	}
	return stream, known
}
