package defence

// Cost is what a defence did, and what it cost in bytes.
type Cost struct {
	Objects uint64 `json:"objects"`
	Pieces  uint64 `json:"pieces"`
	Content uint64 `json:"content_bytes"`
	Sent    uint64 `json:"sent_bytes"`
	// Would is what each strategy would have sent for the same objects, on average. For site-constant it lacks the units without content that
	// fill up pages.
	Would map[string]uint64 `json:"would_send_bytes"`
}

// Cost returns the sums since the start.
func (d *Defence) Cost() Cost {
	c := Cost{d.objects.Load(), d.pieces.Load(), d.content.Load(), d.sent.Load(), map[string]uint64{}}
	for name, sum := range d.would {
		c.Would[name] = sum.Load()
	}
	return c
}

// compare notes what each strategy would send for an object.
func (d *Defence) compare(l *load) {
	for name, s := range strategies {
		d.would[name].Add(uint64(expected(s, len(l.meta), len(l.body))))
	}
}

// expected returns how many bytes a strategy sends for an object, averaged over the numbers of pieces.
func expected(s Strategy, meta, body int) int {
	if u, ok := s.(unitStrategy); ok {
		return unitsOf(u.Unit(), meta, body) * u.Unit()
	}
	sum := 0
	for count := 1; count <= s.Most(); count++ {
		size := (body + count - 1) / count
		for i := range count {
			from := min(i*size, body)
			sum += s.Padded(frameSize + meta + min(from+size, body) - from)
		}
	}
	return sum / s.Most()
}
