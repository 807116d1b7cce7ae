package site

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"math"
	"regexp"
)

var uris = regexp.MustCompile(`data:([a-z]+/[a-z0-9+.-]+)(?:;charset=[A-Za-z0-9-]+)?;base64,([A-Za-z0-9+/=]*)`)

// sameURIs asks the judges of what data URIs hold.
func sameURIs(ctx context.Context, original, changed []byte) error {
	before, now := uris.FindAllSubmatch(original, -1), uris.FindAllSubmatch(changed, -1)
	if len(before) != len(now) {
		return errors.New("the data URIs changed")
	}
	for i := range before {
		if bytes.Equal(before[i][0], now[i][0]) {
			continue
		}
		if !bytes.Equal(before[i][1], now[i][1]) {
			return errors.New("a data URI has another type")
		}
		a, errA := base64.StdEncoding.DecodeString(string(before[i][2]))
		b, errB := base64.StdEncoding.DecodeString(string(now[i][2]))
		if err := errors.Join(errA, errB); err != nil {
			return err
		}
		for _, j := range judges(string(before[i][1])) {
			if err := j.same(ctx, a, b); err != nil && !errors.Is(err, errNoVerdict) {
				return fmt.Errorf("%s: %w", j.name, err)
			}
		}
	}
	return nil
}

const (
	mostNoise = 64       // mean square of a sample's difference, of 255: 30 dB
	maxPoints = 32 << 20 // of a picture
)

// similarPhoto compares pictures as they are shown: they may differ by noise.
func similarPhoto(_ context.Context, original, changed []byte) error {
	before, errA := photo(original)
	now, errB := photo(changed)
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	if before.Bounds() != now.Bounds() {
		return errors.New("the picture has another size")
	}
	noise := 0.
	size := before.Bounds()
	for y := range size.Dy() {
		for x := range size.Dx() {
			r1, g1, b1, _ := before.At(x, y).RGBA()
			r2, g2, b2, _ := now.At(x, y).RGBA()
			for _, d := range [3]float64{float64(r1) - float64(r2), float64(g1) - float64(g2), float64(b1) - float64(b2)} {
				noise += d * d / 257 / 257 / 3
			}
		}
	}
	if noise /= float64(size.Dx() * size.Dy()); noise > mostNoise {
		return fmt.Errorf("the picture changed by %.0f dB below white", 10*math.Log10(255*255/noise))
	}
	return nil
}

func photo(file []byte) (image.Image, error) {
	head, err := jpeg.DecodeConfig(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	if head.Width*head.Height > maxPoints {
		return nil, errors.New("the picture is too large to be compared")
	}
	return jpeg.Decode(bytes.NewReader(file))
}

// sameTags compares the tags of two SWF files: data of scripts, marks of compilers and unknown tags may differ in their content.
func sameTags(_ context.Context, original, changed []byte) error {
	before, errA := tags(original)
	now, errB := tags(changed)
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	if len(before) != len(now) {
		return errors.New("the file has another number of tags")
	}
	for i := range before {
		a, b := before[i], now[i]
		switch {
		case a.kind != b.kind || len(a.content) != len(b.content):
			return fmt.Errorf("tag %d has another type or length", i)
		case a.kind == 87 && len(a.content) >= 6: // DefineBinaryData, after its number
			a.content, b.content = a.content[:6], b.content[:6]
		case a.kind == 63 || a.kind >= 95: // DebugID, and what no specification has
			continue
		}
		if !bytes.Equal(a.content, b.content) {
			return fmt.Errorf("tag %d of type %d changed", i, a.kind)
		}
	}
	return nil
}

type tag struct {
	kind    int
	content []byte
}

// tags reads an SWF file. The first one is made up of its head.
func tags(file []byte) ([]tag, error) {
	damaged := errors.New("it is no SWF, or damaged")
	if len(file) < 8 {
		return nil, damaged
	}
	body, head, size := io.Reader(bytes.NewReader(file[8:])), file[:4], int64(binary.LittleEndian.Uint32(file[4:]))
	if string(head[:3]) == "CWS" {
		z, err := zlib.NewReader(body)
		if err != nil {
			return nil, err
		}
		body = z
	} else if string(head[:3]) != "FWS" {
		return nil, damaged
	}
	b, err := io.ReadAll(io.LimitReader(body, MaxBody))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) != size-8 || len(b) == 0 {
		return nil, damaged
	}
	frame := (5+4*int(b[0]>>3)+7)/8 + 4
	if frame > len(b) {
		return nil, damaged
	}
	all := []tag{{0, append(bytes.Clone(head), b[:frame]...)}}
	for b = b[frame:]; len(b) > 0; {
		if len(b) < 2 {
			return nil, damaged
		}
		word := binary.LittleEndian.Uint16(b)
		size := int64(word & 0x3f)
		if b = b[2:]; size == 0x3f && len(b) >= 4 {
			size, b = int64(binary.LittleEndian.Uint32(b)), b[4:]
		}
		if size > int64(len(b)) {
			return nil, damaged
		}
		all, b = append(all, tag{int(word >> 6), b[:size]}), b[size:]
	}
	return all, nil
}
