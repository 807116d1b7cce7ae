package pseudonym

import (
	"bytes"
	"encoding/binary"
)

// fontAdvance is how wide the letter a is in the font of [font], of 1000.
const fontAdvance = 230

// font returns a TrueType font of two glyphs without outlines: a browser that has it knows only the widths (OpenType 1.9, the required tables).
func font() []byte {
	const unit = 1000
	words := func(all ...uint16) []byte {
		var b []byte
		for _, n := range all {
			b = binary.BigEndian.AppendUint16(b, n)
		}
		return b
	}
	tables := []struct {
		tag     string
		content []byte
	}{
		{"OS/2", bytes.Join([][]byte{words(0, fontAdvance, 400, 5), make([]byte, 60), words('a', 'a', 800, 0xff38, 0, 800, 200)}, nil)}, // version 0
		{"cmap", words(0, 1, 3, 1, 0, 12, 4, 32, 0, 4, 4, 1, 0, 'a', 0xffff, 0, 'a', 0xffff, 0xffa0, 1, 0, 0)},                          // a is glyph 1
		{"glyf", make([]byte, 4)},
		{"head", words(1, 0, 1, 0, 0, 0, 0x5f0f, 0x3cf5, 0, unit, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, unit, unit, 0, 8, 2, 0, 0)},
		{"hhea", words(1, 0, 800, 0xff38, 0, unit, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2)},
		{"hmtx", words(unit, 0, fontAdvance, 0)},
		{"loca", words(0, 0, 0)},
		{"maxp", words(1, 0, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0)},
		{"name", words(0, 0, 6)},
		{"post", words(3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)},
	}
	sum := func(b []byte) (s uint32) {
		for ; len(b) >= 4; b = b[4:] {
			s += binary.BigEndian.Uint32(b)
		}
		return s
	}
	head, body := words(1, 0, uint16(len(tables)), 128, 3, 32), []byte{}
	for _, t := range tables {
		padded := append(t.content, make([]byte, (4-len(t.content)%4)%4)...)
		head = append(head, t.tag...)
		for _, n := range []uint32{sum(padded), uint32(12 + 16*len(tables) + len(body)), uint32(len(t.content))} {
			head = binary.BigEndian.AppendUint32(head, n)
		}
		body = append(body, padded...)
	}
	return append(head, body...)
}
