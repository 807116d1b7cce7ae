package carrier

// decoder is what the segments of a JPEG say about how its scans are coded.
type decoder struct {
	width, height int
	components    []component
	wide, tall    int // the most samples of a component in a unit of all components
	codes         [2][4]*huffman
	defined       int // codes
	every         int // units between restarts, or 0
	progressive   bool
	scans         int // of a progressive picture
}

type component struct {
	id, wide, tall int // samples in each direction
	dc, ac         *huffman
	known          []uint64 // in a progressive picture, the coefficients of each block that are not 0 so far
}

// huffman is a code of T.81, annex C.
type huffman struct {
	values      []byte
	first, last [17]int // codes of each length: the first one, and the one after the last one
	index       [17]int // of the first one's value
}

// segment reads what follows a marker.
func (d *decoder) segment(kind byte, c *cursor) error {
	switch {
	case kind >= 0xc0 && kind <= 0xc2:
		d.progressive = kind == 0xc2
		return d.frame(c)
	case kind == 0xc4:
		return d.define(c)
	case kind == 0xdd:
		d.every = c.next(2)
	case kind > 0xc2 && kind < 0xd0 && kind != 0xc8: // hierarchical, arithmetic, or without loss
		return errJPEG
	}
	if c.failed {
		return errJPEG
	}
	return nil
}

// frame reads the size and the components of a picture.
func (d *decoder) frame(c *cursor) error {
	precision := c.next(1)
	d.height, d.width = c.next(2), c.next(2)
	n := c.next(1)
	if precision != 8 || d.height == 0 || d.width == 0 || d.width*d.height > maxPoints || d.components != nil || n < 1 || n > 4 || len(c.b) != 3*n {
		return errJPEG
	}
	for range n {
		id, sampling := c.next(1), c.next(1)
		c.skip(1)
		part := component{id: id, wide: sampling >> 4, tall: sampling & 15}
		if part.wide < 1 || part.wide > 4 || part.tall < 1 || part.tall > 4 {
			return errJPEG
		}
		d.wide, d.tall = max(d.wide, part.wide), max(d.tall, part.tall)
		d.components = append(d.components, part)
	}
	return nil
}

// define reads Huffman codes.
func (d *decoder) define(c *cursor) error {
	for len(c.b) > 0 {
		where := c.next(1)
		h := &huffman{}
		code, total := 0, 0
		for length := 1; length <= 16; length++ {
			n := c.next(1)
			h.first[length], h.last[length], h.index[length] = code, code+n, total
			if code+n > 1<<length {
				return errJPEG
			}
			code, total = (code+n)<<1, total+n
		}
		if d.defined++; c.failed || total > 256 || total > len(c.b) || where>>4 > 1 || where&15 > 3 || d.defined > maxTables {
			return errJPEG
		}
		h.values = c.b[:total]
		c.skip(total)
		d.codes[where>>4][where&15] = h
	}
	return nil
}

// scanned is how far a scan is read.
type scanned struct {
	*decoder
	parts    []component
	left     int // units
	restarts int

	// In a progressive picture a scan has the coefficients from one to another. It makes their bits known down to the bit after. Those down to the
	// bit before were known; 0 is for none.
	from, to, before, after int
	block                   int // the next one, of a component by itself
}

// begin reads the head of a scan.
func (d *decoder) begin(c *cursor) (*scanned, error) {
	s := &scanned{decoder: d}
	n := c.next(1)
	if n < 1 || n > len(d.components) || len(c.b) != 2*n+3 {
		return nil, errJPEG
	}
	var of []*component
	for range n {
		id, codes := c.next(1), c.next(1)
		if codes>>4 > 3 || codes&15 > 3 {
			return nil, errJPEG
		}
		for i := range d.components {
			if part := d.components[i]; part.id == id {
				part.dc, part.ac = d.codes[0][codes>>4], d.codes[1][codes&15]
				s.parts, of = append(s.parts, part), append(of, &d.components[i])
			}
		}
	}
	if len(s.parts) != n || d.progressive && !s.band(c) {
		return nil, errJPEG
	}
	if n == 1 { // then a unit is one block of that component, and blocks outside of the picture are not coded
		part := &s.parts[0]
		s.left = up(up(d.width*part.wide, d.wide), 8) * up(up(d.height*part.tall, d.tall), 8)
		part.wide, part.tall = 1, 1
	} else {
		s.left = up(d.width, 8*d.wide) * up(d.height, 8*d.tall)
	}
	for i := range s.parts {
		part := &s.parts[i]
		if s.from == 0 && part.dc == nil || (s.from > 0 || !s.progressive) && part.ac == nil {
			return nil, errJPEG
		}
		if s.from > 0 {
			if of[i].known == nil {
				of[i].known = make([]uint64, s.left)
			}
			part.known = of[i].known
		}
	}
	return s, nil
}

// up divides and rounds up.
func up(a, b int) int { return (a + b - 1) / b }

// interval reads the units up to the next restart or the end of the scan, and marks what can be hidden. It returns how many bits it
// marked, and whether the data were whole.
func (s *scanned) interval(e entropy) (marked int, whole bool) {
	units := s.left
	if s.every > 0 {
		units = min(units, s.every)
	}
	s.left -= units
	b := &bits{data: e.bits}
	for range units {
		for _, part := range s.parts {
			for range part.wide * part.tall {
				marked += s.read(b, part, e.mask)
			}
		}
		if s.block++; b.failed {
			return 0, false
		}
	}
	return marked, len(e.bits)-(b.at+7)/8 == 0
}

// bits reads coded data bit by bit. Past their end it fails.
type bits struct {
	data   []byte
	at     int
	failed bool
	ended  int // blocks from here on whose rest of the band is 0, in a progressive picture
}

// block reads the coefficients of 8x8 samples, and marks the least bit of those that are not 0, 1 or -1, without the mean.
func (b *bits) block(part component, mask []byte) (marked int) {
	b.pass(b.symbol(part.dc) & 15)
	for k := 1; k < 64 && !b.failed; k++ {
		zeros, size := b.wave(part.ac)
		if size == 0 && zeros < 15 {
			break
		}
		if k += zeros; k > 63 {
			b.failed = true
			return 0
		}
		if b.pass(size); size > 1 {
			marked += b.mark(mask)
		}
	}
	return marked
}

// wave reads how many coefficients are 0, and how many bits the next one has.
func (b *bits) wave(code *huffman) (zeros, size int) {
	symbol := b.symbol(code)
	return symbol >> 4, symbol & 15
}

// pass passes some bits.
func (b *bits) pass(n int) {
	if n > len(b.data)*8-b.at {
		b.failed = true
		return
	}
	b.at += n
}

// mark marks the bit before as one that can be hidden. It returns how many it marked: none after a failure.
func (b *bits) mark(mask []byte) int {
	if b.failed {
		return 0
	}
	mask[(b.at-1)/8] |= 0x80 >> ((b.at - 1) % 8)
	return 1
}

// symbol reads a Huffman code.
func (b *bits) symbol(h *huffman) int {
	code := 0
	for length := 1; length <= 16 && b.at < len(b.data)*8; length++ {
		code = code<<1 | int(b.data[b.at/8]>>(7-b.at%8)&1)
		if b.at++; code < h.last[length] {
			return int(h.values[h.index[length]+code-h.first[length]])
		}
	}
	b.failed = true
	return 0
}
