package record

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"heddle/disguise/cover/embed"
)

// rtp returns the header of RTP (RFC 3550 section 5.1), or nil if the packets are not all of one RTP stream. The padding,
// extension and CSRC bits are cleared: they would announce what blocks do not hold.
func rtp(heads [][]byte) (embed.Header, string) {
	const version, controlFirst, controlLast = 2, 72, 76 // payload types of RTCP (RFC 5761)
	sequence, timestamp := make([]uint64, len(heads)), make([]uint64, len(heads))
	marks := make([]uint64, len(heads))
	for i, b := range heads {
		if len(b) < 12 || b[0]>>6 != version || b[1]&0x7f != heads[0][1]&0x7f || !bytes.Equal(b[8:12], heads[0][8:12]) {
			return nil, ""
		}
		marks[i], sequence[i], timestamp[i] = uint64(b[1]), uint64(binary.BigEndian.Uint16(b[2:])), uint64(binary.BigEndian.Uint32(b[4:]))
		if i > 0 && uint16(sequence[i]-sequence[i-1]) > 100 && uint16(sequence[i-1]-sequence[i]) > 100 {
			return nil, ""
		}
	}
	kind := heads[0][1] & 0x7f
	if kind >= controlFirst && kind <= controlLast {
		return nil, ""
	}
	return embed.Header{
		{Kind: embed.Literal, Bytes: 1, Value: []byte{version << 6}},
		number(marks, 1, true),
		number(sequence, 2, false),
		number(timestamp, 4, false),
		{Kind: embed.Session, Bytes: 4},
	}, fmt.Sprintf("RTP, payload type %d", kind)
}

// number returns the field of a number with these values. A number that is not fixed begins at random.
func number(values []uint64, width int, fixed bool) embed.Field {
	mask := ^uint64(0) >> (64 - 8*width)
	steps := make([]uint64, len(values))
	for i := 1; i < len(values); i++ {
		steps[i] = (values[i] - values[i-1]) & mask
	}
	steps[0] = 1
	if len(steps) > 1 {
		steps[0] = steps[1] // from the last packet of a loop to its first one
	}
	f := embed.Field{Kind: embed.Steps, Bytes: width, Steps: steps}
	if !slices.ContainsFunc(steps, func(s uint64) bool { return s != steps[0] }) {
		f = embed.Field{Kind: embed.Counter, Bytes: width, Step: steps[0]}
	}
	if !fixed {
		return f
	}
	f.Value = binary.BigEndian.AppendUint64(nil, values[0])[8-width:]
	if f.Kind == embed.Counter && f.Step == 0 {
		return embed.Field{Kind: embed.Literal, Bytes: width, Value: f.Value}
	}
	return f
}

const (
	mostDetected = 24 // bytes of a header
	enough       = 10 // packets: fewer prove nothing
)

// detect returns the longest header, from the first byte on, of constant bytes, numbers that grow with each packet, and bytes
// that hardly change, such as the upper ones of a number.
func detect(heads [][]byte) (h embed.Header) {
	if len(heads) < enough {
		return nil
	}
	shortest := slices.MinFunc(heads, func(a, b []byte) int { return len(a) - len(b) })
	for at, end := 0, min(len(shortest), mostDetected); at < end; {
		f, ok := fieldAt(heads, at, end)
		if !ok {
			break
		}
		if last := len(h) - 1; f.Kind == embed.Literal && last >= 0 && h[last].Kind == embed.Literal {
			h[last].Bytes++
			h[last].Value = append(h[last].Value, f.Value...)
		} else {
			h = append(h, f)
		}
		at += f.Bytes
	}
	return h
}

// mostGrowth is how much a number may grow with each packet, by its width in bytes. Random bytes that a window takes for the
// lower ones of a number let it grow by more.
var mostGrowth = map[int]uint64{2: 1 << 7, 4: 1 << 12}

// fieldAt finds a field that begins at a place.
func fieldAt(heads [][]byte, at, end int) (f embed.Field, ok bool) {
	f = number(valuesAt(heads, at, 1, false), 1, true)
	if f.Kind != embed.Steps {
		return f, true
	}
	for _, width := range []int{2, 4} {
		for _, little := range []bool{false, true} {
			if at+width > end {
				continue
			}
			wide := number(valuesAt(heads, at, width, little), width, true)
			if wide.Little = little; little {
				slices.Reverse(wide.Value)
			}
			if wide.Kind == embed.Counter || !slices.ContainsFunc(wide.Steps, func(s uint64) bool { return s == 0 || s > mostGrowth[width] }) {
				return wide, true
			}
		}
	}
	changes := 0
	for _, step := range f.Steps[1:] {
		if step != 0 {
			changes++
		}
	}
	return f, changes*4 <= len(heads)
}

func valuesAt(heads [][]byte, at, width int, little bool) []uint64 {
	values := make([]uint64, len(heads))
	for i, b := range heads {
		for j := range width {
			k := j
			if little {
				k = width - 1 - j
			}
			values[i] = values[i]<<8 | uint64(b[at+k])
		}
	}
	return values
}
