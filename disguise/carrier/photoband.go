package carrier

// A progressive picture has its coefficients in several scans: a band of them at a time, and of each coefficient first some higher bits,
// and in each later scan one bit more (T.81, annex G).

const maxScans = 64 // of a picture: what a hostile file would have us read again and again

// band reads which coefficients a scan has, and which of their bits. It reports false if that cannot be.
func (s *scanned) band(c *cursor) bool {
	s.from, s.to = c.next(1), c.next(1)
	bits := c.next(1)
	s.before, s.after = bits>>4, bits&15
	s.scans++
	means := s.from == 0 && s.to == 0
	waves := s.from > 0 && s.from <= s.to && s.to < 64 && len(s.parts) == 1
	return s.scans <= maxScans && (means || waves) && (s.before == 0 || s.before == s.after+1)
}

// read reads what a scan has of one block, and marks what can be hidden.
func (s *scanned) read(b *bits, part component, mask []byte) (marked int) {
	switch {
	case !s.progressive:
		return b.block(part, mask)
	case s.from == 0 && s.before == 0:
		b.pass(b.symbol(part.dc) & 15)
		return 0
	case s.from == 0:
		b.pass(1)
		return 0
	case s.before == 0:
		return s.begun(b, part.ac, &part.known[s.block], mask)
	}
	return s.refined(b, part.ac, &part.known[s.block], mask)
}

// begun reads the first bits of a band. If these are all, it marks as in a sequential picture.
func (s *scanned) begun(b *bits, code *huffman, known *uint64, mask []byte) (marked int) {
	if b.ended > 0 {
		b.ended--
		return 0
	}
	for k := s.from; k <= s.to && !b.failed; k++ {
		zeros, size := b.wave(code)
		if size == 0 && zeros < 15 {
			b.ended = b.count(zeros) - 1
			break
		}
		if k += zeros; k > s.to {
			b.failed = true
			break
		}
		if b.pass(size); size > 0 {
			*known |= 1 << k
		}
		if size > 1 && s.after == 0 {
			marked += b.mark(mask)
		}
	}
	return marked
}

// refined reads one bit more of a band. It marks the last bits of the coefficients that were known: they are 2 or more either way.
func (s *scanned) refined(b *bits, code *huffman, known *uint64, mask []byte) (marked int) {
	old := *known
	// next reads the bits of known coefficients up to one that is none after some others, or to the end of the band.
	next := func(k, others int) int {
		for ; k <= s.to && !b.failed; k++ {
			if old&(1<<k) == 0 {
				if others--; others < 0 {
					return k
				}
				continue
			}
			if b.pass(1); s.after == 0 {
				marked += b.mark(mask)
			}
		}
		return k
	}
	k := s.from
	for b.ended == 0 && k <= s.to && !b.failed {
		zeros, size := b.wave(code)
		if size == 0 && zeros < 15 {
			b.ended = b.count(zeros)
			break
		}
		b.pass(size) // its sign
		if k = next(k, zeros); size > 0 {
			*known |= 1 << k
			b.failed = b.failed || size > 1 || k > s.to
		}
		k++
	}
	if b.ended > 0 {
		if b.ended--; old>>k != 0 {
			next(k, 64)
		}
	}
	return marked
}

// count reads for how many blocks a band has ended: a number of so many bits behind a 1.
func (b *bits) count(size int) int {
	n := 1
	for range size {
		if b.pass(1); b.failed {
			return 1
		}
		n = n<<1 | int(b.data[(b.at-1)/8]>>(7-(b.at-1)%8)&1)
	}
	return n
}
