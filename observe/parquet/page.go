package parquet

import (
	"encoding/binary"
	"slices"
)

// page collects values of one column, in Parquet's encoding PLAIN.
type page struct {
	values  []byte
	entries int // values, and rows whose list is empty
	// In columns of lists, what each entry is: whether it goes on with the list of the entry before, and whether it is a value.
	repetition, definition levels
}

// row begins a row with a list of values.
func (p *page) row(values int) {
	p.entries += max(values, 1)
	p.repetition.add(0, 1)
	p.repetition.add(1, max(values, 1)-1)
	p.definition.add(byte(min(values, 1)), max(values, 1))
}

func (p *page) size() int { return len(p.values) + len(p.repetition.b) + len(p.definition.b) }

// bytes returns the content of the page.
func (p *page) bytes(list bool) []byte {
	if !list {
		return p.values
	}
	return slices.Concat(p.repetition.bytes(), p.definition.bytes(), p.values)
}

// bit adds a boolean, which has one bit. Columns of booleans have an entry for each row.
func (p *page) bit(v bool) {
	at := (p.entries - 1) % 8
	if at == 0 {
		p.values = append(p.values, 0)
	}
	if v {
		p.values[len(p.values)-1] |= 1 << at
	}
}

func (p *page) word(v uint32) { p.values = binary.LittleEndian.AppendUint32(p.values, v) }

func putBytes[V string | []byte](p *page, v V) {
	p.word(uint32(len(v)))
	p.values = append(p.values, v...)
}

// levels are numbers 0 and 1 as runs, one of the forms of Parquet's encoding RLE.
type levels struct {
	b     []byte
	level byte
	n     int // of level, not yet in b
}

func (l *levels) add(level byte, n int) {
	if n == 0 {
		return
	}
	if level != l.level {
		l.flush()
	}
	l.level, l.n = level, l.n+n
}

func (l *levels) flush() {
	if l.n > 0 {
		l.b = append(binary.AppendUvarint(l.b, uint64(l.n)<<1), l.level)
	}
	l.n = 0
}

// bytes returns the levels behind their length.
func (l *levels) bytes() []byte {
	l.flush()
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(l.b))), l.b...)
}
