package space

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"heddle/identity"
)

// The encoding is canonical: every value has exactly one, and anything else is refused. Numbers are big-endian with fixed
// width, since variable widths would need a check for the shortest form.

// Limits of the encoding itself.
const (
	maxFields = 64
	maxKeys   = 64
	MaxOp     = 1 << 20 // bytes of an encoded operation, whatever the limits of the space
)

const (
	wirePlace = 0x10 // added to a type: any value of it
	wireAny   = 0x1f
)

var errShort = errors.New("it ends too soon")

// reader decodes values from the front of a message and keeps the first error.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *reader) take(n int) []byte {
	if r.err == nil && (n < 0 || n > len(r.rest)) {
		r.err = errShort
	}
	if r.err != nil {
		return nil
	}
	head := r.rest[:n:n]
	r.rest = r.rest[n:]
	return head
}

// number reads an unsigned integer of n bytes.
func (r *reader) number(n int) (v uint64) {
	for _, b := range r.take(n) {
		v = v<<8 | uint64(b)
	}
	return v
}

func (r *reader) u8() uint8   { return uint8(r.number(1)) }
func (r *reader) u16() uint16 { return uint16(r.number(2)) }
func (r *reader) u32() uint32 { return uint32(r.number(4)) }
func (r *reader) u64() uint64 { return r.number(8) }
func (r *reader) i64() int64  { return int64(r.number(8)) }

func (r *reader) version() {
	if v := r.u8(); v != opVersion {
		r.fail("it is of version %d, and not %d", v, opVersion)
	}
}

// sized reads a 32-bit length and as many bytes. It allocates nothing for missing bytes.
func (r *reader) sized() []byte { return r.take(int(r.u32())) }

func (r *reader) id() (id ID) {
	copy(id[:], r.take(len(id)))
	return id
}

func (r *reader) key() identity.Key {
	k, err := identity.NewKey(r.take(len(ID{})))
	if err != nil && r.err == nil {
		r.err = err
	}
	return k
}

func (r *reader) keys() []identity.Key {
	n := int(r.u8())
	if n > maxKeys {
		r.fail("a list has %d keys, more than %d", n, maxKeys)
	}
	var keys []identity.Key
	for i := 0; i < n && r.err == nil; i++ {
		keys = append(keys, r.key())
	}
	return keys
}

func (r *reader) fields(template bool) []Field {
	n := int(r.u8())
	if n > maxFields {
		r.fail("it has %d fields, more than %d", n, maxFields)
	}
	if n == 0 && !template {
		r.fail("a tuple has at least one field")
	}
	var fields []Field
	for i := 0; i < n && r.err == nil; i++ {
		fields = append(fields, r.field(template))
	}
	return fields
}

func (r *reader) field(template bool) (f Field) {
	kind := r.u8()
	if kind&wirePlace != 0 {
		if !template {
			r.fail("a tuple holds values only")
		}
		if kind == wireAny {
			return Any()
		}
		f = AnyOf(Type(kind &^ wirePlace))
	} else {
		f.typ = Type(kind)
	}
	if f.typ < TypeString || f.typ > TypeBool {
		r.fail("there is no field of type %d", kind)
	}
	if f.place || r.err != nil {
		return f
	}
	switch f.typ {
	case TypeString, TypeBytes:
		f.text = string(r.sized())
		if f.typ == TypeString && !utf8.ValidString(f.text) {
			r.fail("a string is not UTF-8")
		}
	case TypeInt:
		f.num = r.i64()
	case TypeBool:
		if f.num = int64(r.u8()); f.num > 1 {
			r.fail("a truth value is %d", f.num)
		}
	}
	return f
}

// end returns the first error, or an error if bytes are left.
func (r *reader) end() error {
	if r.err == nil && len(r.rest) > 0 {
		return fmt.Errorf("%d bytes follow its end", len(r.rest))
	}
	return r.err
}

func appendSized[B []byte | string](to []byte, b B) []byte {
	to = binary.BigEndian.AppendUint32(to, uint32(len(b)))
	return append(to, b...)
}

func appendKeys(to []byte, keys []identity.Key) []byte {
	to = append(to, uint8(len(keys)))
	for _, k := range keys {
		to = append(to, k.Bytes()...)
	}
	return to
}

func appendFields(to []byte, fields []Field) []byte {
	to = append(to, uint8(len(fields)))
	for _, f := range fields {
		to = appendField(to, f)
	}
	return to
}

func appendField(to []byte, f Field) []byte {
	switch {
	case f.place && f.typ == 0:
		return append(to, wireAny)
	case f.place:
		return append(to, wirePlace|uint8(f.typ))
	}
	to = append(to, uint8(f.typ))
	switch f.typ {
	case TypeString, TypeBytes:
		to = appendSized(to, f.text)
	case TypeInt:
		to = binary.BigEndian.AppendUint64(to, uint64(f.num))
	case TypeBool:
		to = append(to, uint8(f.num))
	}
	return to
}
