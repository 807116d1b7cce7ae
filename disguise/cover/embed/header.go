package embed

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
)

// Header is the template of what precedes the blocks: fields, one after the other.
type Header []Field

// The kinds of fields.
const (
	Literal = "literal" // the same bytes in each packet of each connection
	Session = "session" // random bytes, the same in each packet of a connection, such as RTP's SSRC
	Random  = "random"  // random bytes
	Counter = "counter" // a number that grows by Step with each packet, such as RTP's sequence number
	Steps   = "steps"   // a number that grows as recorded, such as RTP's timestamp
)

// Field is a part of a header.
type Field struct {
	Kind  string `json:"kind"`
	Bytes int    `json:"bytes"`
	// Value holds the bytes of a literal, or the number of the first packet. Without it a number begins at random.
	Value  []byte   `json:"value,omitempty"`
	Little bool     `json:"little,omitempty"` // the number is little-endian
	Step   uint64   `json:"step,omitempty"`   // of a counter
	Steps  []uint64 `json:"steps,omitempty"`  // what each packet adds to the one before; the first is that of a loop
}

// Size returns the bytes of the header.
func (h Header) Size() (n int) {
	for _, f := range h {
		n += f.Bytes
	}
	return n
}

func (f *Field) number() bool { return f.Kind == Counter || f.Kind == Steps }

// check returns what is wrong with the header of a side that sends so many packets.
func (h Header) check(datagrams bool, packets int) error {
	size := 0
	for i := range h {
		f := &h[i]
		if f.Bytes < 1 || f.Bytes > MaxOpening {
			return fmt.Errorf("field %d has %d bytes", i, f.Bytes)
		}
		size += f.Bytes
		if !datagrams && f.Kind != Literal {
			return errors.New("only a literal can begin a stream")
		}
		if err := f.check(packets); err != nil {
			return fmt.Errorf("field %d: %w", i, err)
		}
	}
	most := MaxHeader
	if !datagrams {
		most = MaxOpening
	}
	if size > most {
		return fmt.Errorf("a header of %d bytes is longer than %d", size, most)
	}
	return nil
}

func (f *Field) check(packets int) error {
	switch {
	case f.Kind != Literal && f.Kind != Session && f.Kind != Random && !f.number():
		return fmt.Errorf("there is no kind %q", f.Kind)
	case f.Kind == Literal && len(f.Value) != f.Bytes, f.number() && f.Value != nil && len(f.Value) != f.Bytes:
		return fmt.Errorf("its value has %d bytes, not %d", len(f.Value), f.Bytes)
	case f.number() && f.Bytes > 8:
		return errors.New("a number has at most 8 bytes")
	case f.Kind == Steps && len(f.Steps) != packets:
		return fmt.Errorf("%d steps for %d packets", len(f.Steps), packets)
	case f.Kind != Steps && f.Steps != nil, f.Kind != Counter && f.Step != 0, !f.number() && f.Little,
		!f.number() && f.Kind != Literal && f.Value != nil:
		return errors.New("it has what its kind does not use")
	}
	return nil
}

// writer writes the headers of one side of one connection.
type writer struct {
	header  Header
	size    int
	numbers []uint64 // of the next packet, by field
	session []byte   // for the session fields, at their places
	packet  int      // the next one, within the trace
}

func newWriter(h Header) *writer {
	w := &writer{header: h, size: h.Size(), numbers: make([]uint64, len(h)), session: make([]byte, h.Size())}
	_, _ = rand.Read(w.session) // it never fails
	for i := range h {
		if w.numbers[i] = h[i].number0(); h[i].number() && h[i].Value == nil {
			var b [8]byte
			_, _ = rand.Read(b[:])
			w.numbers[i] = binary.BigEndian.Uint64(b[:])
		}
	}
	return w
}

// number0 is the number that the field has in the first packet of the trace.
func (f *Field) number0() (n uint64) {
	if !f.number() {
		return 0
	}
	for i := range f.Value {
		if f.Little {
			n |= uint64(f.Value[i]) << (8 * i)
		} else {
			n = n<<8 | uint64(f.Value[i])
		}
	}
	return n
}

// next goes on to the next packet of a trace with so many packets of this side.
func (w *writer) next(packets int) {
	w.packet++
	again := w.packet == packets
	if again {
		w.packet = 0
	}
	for i := range w.header {
		switch f := &w.header[i]; {
		case again && f.Value != nil:
			w.numbers[i] = f.number0() // a recorded number is only right in its packet
		case f.Kind == Counter:
			w.numbers[i] += f.Step
		case f.Kind == Steps:
			w.numbers[i] += f.Steps[w.packet]
		}
	}
}

// write writes the header of the current packet. b may be shorter than the header.
func (w *writer) write(b []byte) {
	var whole [MaxOpening]byte
	at := 0
	for i := range w.header {
		f := &w.header[i]
		part := whole[at : at+f.Bytes]
		switch f.Kind {
		case Literal:
			copy(part, f.Value)
		case Session:
			copy(part, w.session[at:])
		case Random:
			_, _ = rand.Read(part)
		default:
			for j := range part {
				shift := 8 * (f.Bytes - 1 - j)
				if f.Little {
					shift = 8 * j
				}
				part[j] = byte(w.numbers[i] >> shift)
			}
		}
		at += f.Bytes
	}
	copy(b, whole[:w.size])
}
