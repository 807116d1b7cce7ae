package carrier

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// photo hides bytes in JPEG (ITU-T T.81): in the least bits of coefficients of waves that are 2 or more either way, as JSteg does. No code
// of the entropy coding changes, but the picture does, by one step of the quantisation for every second such coefficient. It takes what
// is coded by Huffman codes, sequential or progressive.
type photo struct{}

// jpegFile is the part of a picture that hides something.
type jpegFile struct {
	parts []entropy
	room  int // bits
}

// entropy is the coded data between two markers.
type entropy struct {
	span        // in the file
	bits []byte // without stuffing
	mask []byte // 1 where a bit is hidden; as long as bits
}

const (
	maxPoints = 32 << 20 // of a picture: what a small file can claim
	maxTables = 64       // definitions of Huffman codes
	maxParts  = 65536    // between restarts
)

var errJPEG = errors.New("the picture is damaged, or of another kind")

// Capacity implements [Carrier].
func (photo) Capacity(original []byte) int {
	p, err := readJPEG(original)
	if err != nil {
		return 0
	}
	return p.room / 8
}

// Embed implements [Carrier].
func (photo) Embed(original, payload []byte) ([]byte, error) {
	p, err := readJPEG(original)
	if err != nil || p.room < 8 {
		if len(payload) > 0 {
			return nil, wrongSize(len(payload))
		}
		return original, nil
	}
	if len(payload) != p.room/8 {
		return nil, wrongSize(len(payload))
	}
	out := make([]byte, 0, len(original)+len(original)/64)
	last, n := 0, 0
	for _, e := range p.parts {
		out = append(out, original[last:e.at]...)
		e.each(func(b *byte, one byte) {
			if n < len(payload)*8 {
				if *b &^= one; payload[n/8]>>(n%8)&1 != 0 {
					*b |= one
				}
				n++
			}
		})
		out, last = stuff(out, e.bits), e.end
	}
	return append(out, original[last:]...), nil
}

// each calls visit with each hidden bit.
func (e *entropy) each(visit func(b *byte, one byte)) {
	for i, m := range e.mask {
		for one := byte(0x80); m != 0; one >>= 1 {
			if m&one != 0 {
				m &^= one
				visit(&e.bits[i], one)
			}
		}
	}
}

// Extract implements [Carrier].
func (c photo) Extract(original, changed []byte) ([]byte, error) {
	var payload []byte
	if p, err := readJPEG(original); err == nil && p.room >= 8 {
		payload = make([]byte, p.room/8)
		rest, last, n := changed, 0, 0
		for _, e := range p.parts {
			if len(rest) < e.at-last {
				return nil, ErrForeign
			}
			rest, last = rest[e.at-last:], e.end
			size, bits := unstuff(rest)
			if rest = rest[size:]; len(bits) != len(e.bits) {
				return nil, ErrForeign
			}
			e.bits = bits
			e.each(func(b *byte, one byte) {
				if n < len(payload)*8 && *b&one != 0 {
					payload[n/8] |= 1 << (n % 8)
				}
				n++
			})
		}
	}
	return only(c, original, changed, payload)
}

// unstuff returns how many bytes are before the next marker, and what they say: a byte 0 follows each 0xff.
func unstuff(coded []byte) (size int, bits []byte) {
	for size < len(coded) {
		b := coded[size]
		if b == 0xff && (size+1 == len(coded) || coded[size+1] != 0) {
			break
		}
		if size++; b == 0xff {
			size++
		}
		bits = append(bits, b)
	}
	return size, bits
}

func stuff(out, bits []byte) []byte {
	for _, b := range bits {
		if out = append(out, b); b == 0xff {
			out = append(out, 0)
		}
	}
	return out
}

// readJPEG finds the hidden bits. The bytes may be hostile.
func readJPEG(file []byte) (*jpegFile, error) {
	rest, found := bytes.CutPrefix(file, []byte{0xff, 0xd8})
	if !found {
		return nil, errJPEG
	}
	p, d := &jpegFile{}, &decoder{}
	for {
		if len(rest) < 2 || rest[0] != 0xff {
			return nil, errJPEG
		}
		kind := rest[1]
		switch {
		case kind == 0xff: // fill
			rest = rest[1:]
			continue
		case kind == 0xd9: // the end
			return p, nil
		case kind < 0xc0 || kind >= 0xd0 && kind <= 0xd8 || len(rest) < 4:
			return nil, errJPEG
		}
		size := 2 + int(binary.BigEndian.Uint16(rest[2:]))
		if size < 4 || size > len(rest) {
			return nil, errJPEG
		}
		body := &cursor{b: rest[4:size]}
		rest = rest[size:]
		if err := d.segment(kind, body); err != nil {
			return nil, err
		}
		if kind == startOfScan {
			used, err := p.scan(d, body, file, len(file)-len(rest))
			if err != nil {
				return nil, err
			}
			rest = rest[used:]
		}
	}
}

const startOfScan = 0xda

// scan reads a scan that begins at an offset, and returns how many bytes it has.
func (p *jpegFile) scan(d *decoder, head *cursor, file []byte, at int) (used int, err error) {
	s, err := d.begin(head)
	if err != nil {
		return 0, err
	}
	for start := at; ; {
		size, bits := unstuff(file[at:])
		e := entropy{span{at, at + size}, bits, make([]byte, len(bits))}
		n, whole := s.interval(e)
		if !whole {
			return 0, errJPEG
		}
		p.parts, p.room = append(p.parts, e), p.room+n
		at += size
		if s.left == 0 {
			return at - start, nil
		}
		if len(p.parts) == maxParts || len(file)-at < 2 || file[at+1] != 0xd0+byte(s.restarts&7) {
			return 0, errJPEG
		}
		at += 2
		s.restarts++
	}
}
