package carrier

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// inMedia finds what is encrypted in segments of fragmented MP4 with Common Encryption in counter mode (ISO/IEC 23001-7, scheme cenc):
// the ciphertext of each sample, all of which can be replaced, and the initialisation vectors. A player without the key sees no difference.
// One with the key would decode noise, so a site that hands keys to visitors is no place for this.
func inMedia(file []byte) (slots []slot) {
	var heads []slot // the vectors
	top := boxes(file, 0)
	for _, b := range top {
		if b.kind != "moof" {
			continue
		}
		for _, traf := range boxes(file[:b.end], b.body) {
			if traf.kind != "traf" {
				continue
			}
			if head, secret := samples(file, b.at, traf); len(secret) > 0 {
				heads, slots = append(heads, head), append(slots, secret...)
			}
		}
	}
	// A hostile file may place samples anywhere: they must lie in media data, in order and apart.
	last := 0
	for _, s := range slots {
		for len(top) > 0 && (top[0].kind != "mdat" || top[0].end <= s.at) {
			top = top[1:]
		}
		if len(top) == 0 || s.at < max(last, top[0].body) || s.size < 0 || s.at+s.size > top[0].end {
			return nil
		}
		last = s.at + s.size
	}
	slots = append(slots, heads...)
	slices.SortStableFunc(slots, func(a, b slot) int { return cmp.Compare(a.at, b.at) })
	return slots
}

// box is a part of an MP4 file (ISO/IEC 14496-12): offsets in the file.
type box struct {
	kind          string
	at, body, end int
}

const maxBoxes = 4096

// boxes returns the boxes from an offset to the end of file, or nil if they do not fit.
func boxes(file []byte, at int) (all []box) {
	for at < len(file) {
		if len(file)-at < 8 || len(all) == maxBoxes {
			return nil
		}
		size := uint64(binary.BigEndian.Uint32(file[at:]))
		b := box{string(file[at+4 : at+8]), at, at + 8, 0}
		if size == 1 && len(file)-at >= 16 {
			size, b.body = binary.BigEndian.Uint64(file[at+8:]), at+16
		}
		if size < uint64(b.body-at) || size > uint64(len(file)-at) {
			return nil
		}
		b.end = at + int(size)
		all, at = append(all, b), b.end
	}
	return all
}

// cursor reads numbers of a box. Past its end it reads zeros, and fails.
type cursor struct {
	b      []byte
	failed bool
}

func (c *cursor) next(n int) int {
	if n > len(c.b) || c.failed {
		c.failed = true
		return 0
	}
	v := 0
	for _, b := range c.b[:n] {
		v = v<<8 | int(b)
	}
	c.b = c.b[n:]
	return v
}

// skip passes n bytes.
func (c *cursor) skip(n int) {
	if n > len(c.b) {
		c.failed = true
		return
	}
	c.b = c.b[n:]
}

// samples finds the ciphertext of one track of a fragment, whose moof box begins at base, and the box with its vectors.
func samples(file []byte, base int, traf box) (head slot, secret []slot) {
	var sizes []int
	var encryption []byte
	size, start := 0, -1
	for _, b := range boxes(file[:traf.end], traf.body) {
		c := &cursor{b: file[b.body:b.end]}
		switch b.kind {
		case "tfhd":
			flags := c.next(4)
			c.skip(4)
			if flags&1 != 0 { // base-data-offset: an old way that counts from the file's beginning
				return slot{}, nil
			}
			for _, field := range []struct{ flag, bytes int }{{2, 4}, {8, 4}} {
				if flags&field.flag != 0 {
					c.skip(field.bytes)
				}
			}
			if flags&0x10 != 0 {
				size = c.next(4)
			}
		case "trun":
			if start >= 0 { // a second run
				return slot{}, nil
			}
			start, sizes = runOf(c, size)
			start += base
		case "senc":
			encryption, head.at, head.size = c.b, b.body, len(c.b)
		}
		if c.failed {
			return slot{}, nil
		}
	}
	if start < base || len(sizes) == 0 || encryption == nil {
		return slot{}, nil
	}
	for _, vector := range []int{8, 16} { // bytes of the initialisation vector of each sample: the box does not say
		if v, secret, fits := protected(encryption, vector, start, sizes); fits {
			head.in = v
			return head, secret
		}
	}
	return slot{}, nil
}

// runOf reads where the samples of a trun box begin, from the moof box, and their sizes.
func runOf(c *cursor, size int) (start int, sizes []int) {
	flags := c.next(4)
	count := c.next(4)
	if flags&1 != 0 {
		start = int(int32(c.next(4)))
	}
	if flags&4 != 0 {
		c.skip(4)
	}
	fields := 0
	for flag := 0x100; flag <= 0x800; flag <<= 1 {
		if flags&flag != 0 {
			fields++
		}
	}
	if count > maxSamples || len(c.b) != count*fields*4 {
		c.failed = true
		return 0, nil
	}
	for range count {
		own := size
		for flag := 0x100; flag <= 0x800; flag <<= 1 {
			if flags&flag != 0 {
				if v := c.next(4); flag == 0x200 {
					own = v
				}
			}
		}
		sizes = append(sizes, own)
	}
	return start, sizes
}

const maxSamples = 65536 // of one track in one fragment

// protected reads a senc box. It tells whether all of it fits to the samples, whose vectors have so many bytes.
func protected(box []byte, vector, at int, sizes []int) (v vectors, slots []slot, fits bool) {
	c := &cursor{b: box}
	parts := c.next(4)&2 != 0
	if c.next(4) != len(sizes) {
		return nil, nil, false
	}
	for _, size := range sizes {
		v = append(v, len(box)-len(c.b))
		c.skip(vector)
		end := at + size
		if !parts {
			slots = append(slots, slot{at: at, size: size, in: all{raw{}}})
			at = end
			continue
		}
		for range c.next(2) {
			clear, secret := c.next(2), c.next(4)
			if at += clear; secret > 0 {
				slots = append(slots, slot{at: at, size: secret, in: all{raw{}}})
			}
			at += secret
			if c.failed || at > end {
				return nil, nil, false
			}
		}
		if c.failed || at != end {
			return nil, nil, false
		}
	}
	return v, slots, len(c.b) == 0 && !c.failed
}

// vectors are the offsets of the initialisation vectors in a senc box. The first eight bytes of each are a number, all of which grow by the
// same: other ciphertext under a vector that an observer has seen would be no encryption in counter mode, and packagers count vectors up.
type vectors []int

const vectorNumber = 8 // bytes

// Capacity implements [Carrier].
func (vectors) Capacity([]byte) int { return vectorNumber }

// Embed implements [Carrier].
func (v vectors) Embed(original, payload []byte) ([]byte, error) {
	if len(payload) != vectorNumber {
		return nil, wrongSize(len(payload))
	}
	out := bytes.Clone(original)
	more := binary.BigEndian.Uint64(payload) - binary.BigEndian.Uint64(original[v[0]:])
	for _, at := range v {
		binary.BigEndian.PutUint64(out[at:], binary.BigEndian.Uint64(original[at:])+more)
	}
	return out, nil
}

// Extract implements [Carrier].
func (v vectors) Extract(original, changed []byte) ([]byte, error) {
	if len(changed) != len(original) {
		return nil, ErrForeign
	}
	payload := bytes.Clone(changed[v[0] : v[0]+vectorNumber])
	again, err := v.Embed(original, payload)
	if err != nil || !bytes.Equal(again, changed) {
		return nil, ErrForeign
	}
	return payload, nil
}
