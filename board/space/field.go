package space

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Type is the type of a field.
type Type uint8

const (
	TypeString Type = 1 + iota // UTF-8
	TypeInt                    // 64 bits, signed
	TypeBytes
	TypeBool
)

var typeNames = map[Type]string{TypeString: "string", TypeInt: "int", TypeBytes: "bytes", TypeBool: "bool"}

// String returns string, int, bytes or bool.
func (t Type) String() string { return typeNames[t] }

// Field is an element of a tuple or template: a value, or in a template a placeholder. The zero Field is neither; use
// [String], [Int], [Bytes], [Bool], [Any] or [AnyOf]. Fields are comparable with ==.
type Field struct {
	typ   Type // 0 with place: any type
	place bool // any value of the type
	text  string
	num   int64
}

// String returns a field with UTF-8 text.
func String(v string) Field { return Field{typ: TypeString, text: v} }

// Int returns a field with an integer.
func Int(v int64) Field { return Field{typ: TypeInt, num: v} }

// Bytes returns a field with bytes.
func Bytes(v []byte) Field { return Field{typ: TypeBytes, text: string(v)} }

// Bool returns a field with a boolean.
func Bool(v bool) Field {
	if v {
		return Field{typ: TypeBool, num: 1}
	}
	return Field{typ: TypeBool}
}

// Any matches every value.
func Any() Field { return Field{place: true} }

// AnyOf matches every value of a type.
func AnyOf(t Type) Field { return Field{typ: t, place: true} }

// Type returns the type of the field, 0 for [Any].
func (f Field) Type() Type { return f.typ }

// IsValue reports whether the field is a value and not a placeholder.
func (f Field) IsValue() bool { return f.typ != 0 && !f.place }

// Text returns the value of a string field, else "".
func (f Field) Text() string {
	if f.typ != TypeString {
		return ""
	}
	return f.text
}

// Int returns the value of an int field, else 0.
func (f Field) Int() int64 {
	if f.typ != TypeInt {
		return 0
	}
	return f.num
}

// Bytes returns the value of a bytes field, else nil.
func (f Field) Bytes() []byte {
	if f.typ != TypeBytes {
		return nil
	}
	return []byte(f.text)
}

// Bool returns the value of a bool field, else false.
func (f Field) Bool() bool { return f.typ == TypeBool && f.num == 1 }

// matches reports whether a value matches f in a template.
func (f Field) matches(value Field) bool {
	if f.place {
		return f.typ == 0 || f.typ == value.typ
	}
	return f == value
}

// Tuple is a sequence of values.
type Tuple []Field

// Template matches tuples of the same length whose fields all match. An empty template matches every tuple.
type Template []Field

// Matches reports whether the tuple matches the template.
func (p Template) Matches(t Tuple) bool {
	return len(p) == 0 || slices.EqualFunc(p, t, Field.matches)
}

// ParseField reads the user's notation: bare text is a string; string:TEXT, int:N, bytes:HEX and bool:B give the type; ?
// matches anything, and ?string, ?int, ?bytes and ?bool any value of the type.
func ParseField(text string) (Field, error) {
	if rest, ok := strings.CutPrefix(text, "?"); ok {
		if rest == "" {
			return Any(), nil
		}
		for t, name := range typeNames {
			if rest == name {
				return AnyOf(t), nil
			}
		}
		return Field{}, fmt.Errorf("%.40q is no type: after ? comes string, int, bytes, bool or nothing", rest)
	}
	kind, rest, _ := strings.Cut(text, ":")
	switch kind {
	case "int":
		n, err := strconv.ParseInt(rest, 10, 64)
		if err != nil {
			return Field{}, fmt.Errorf("%.40q is no whole number of 64 bits", rest)
		}
		return Int(n), nil
	case "bytes":
		b, err := hex.DecodeString(rest)
		if err != nil {
			return Field{}, fmt.Errorf("%.40q is not hexadecimal", rest)
		}
		return Bytes(b), nil
	case "bool":
		b, err := strconv.ParseBool(rest)
		if err != nil {
			return Field{}, fmt.Errorf("%.40q is neither true nor false", rest)
		}
		return Bool(b), nil
	case "string":
		text = rest
	}
	if !utf8.ValidString(text) {
		return Field{}, fmt.Errorf("%.40q is not UTF-8; write bytes:HEX", text)
	}
	return String(text), nil
}

// String returns the field in the notation of [ParseField].
func (f Field) String() string {
	switch {
	case f.place:
		return "?" + f.typ.String()
	case f.typ == TypeInt:
		return "int:" + strconv.FormatInt(f.num, 10)
	case f.typ == TypeBytes:
		return "bytes:" + hex.EncodeToString([]byte(f.text))
	case f.typ == TypeBool:
		return "bool:" + strconv.FormatBool(f.Bool())
	}
	kind, _, typed := strings.Cut(f.text, ":")
	if strings.HasPrefix(f.text, "?") || typed && (kind == "int" || kind == "bytes" || kind == "bool" || kind == "string") {
		return "string:" + f.text
	}
	return f.text
}

// MarshalJSON returns {"string": "…"}, {"int": 1}, {"bytes": "hex"} or {"bool": true}; a placeholder is {"any": "string"}.
func (f Field) MarshalJSON() ([]byte, error) {
	name, value := f.typ.String(), any(f.text)
	switch {
	case f.place:
		name, value = "any", f.typ.String()
	case f.typ == TypeInt:
		value = f.num
	case f.typ == TypeBytes:
		value = hex.EncodeToString([]byte(f.text))
	case f.typ == TypeBool:
		value = f.Bool()
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(map[string]any{name: value})
	return bytes.TrimSpace(b.Bytes()), err
}
