package carrier

import (
	"bytes"
	"encoding/hex"
)

// reader reads the syntax of a PDF (ISO 32000-2, section 7.2 and 7.3). At what it cannot read, it fails and stays failed.
type reader struct {
	file   []byte
	at     int
	failed bool
}

// space passes white space and comments.
func (r *reader) space() {
	for r.at = blank(r.file, r.at); r.at < len(r.file) && r.file[r.at] == '%'; r.at = blank(r.file, r.at) {
		line := bytes.IndexAny(r.file[r.at:], "\r\n")
		if line < 0 {
			line = len(r.file) - r.at
		}
		r.at += line
	}
}

// takes reports whether a delimiter is next, and passes it.
func (r *reader) takes(delimiter string) bool {
	r.space()
	if !bytes.HasPrefix(r.file[r.at:], []byte(delimiter)) {
		return false
	}
	r.at += len(delimiter)
	return true
}

// dictionary reads a dictionary, at a depth.
func (r *reader) dictionary(depth int) (d dictionary) {
	if !r.takes("<<") {
		r.failed = true
	}
	for !r.failed && !r.takes(">>") {
		if !r.takes("/") || len(d) == maxEntries {
			r.failed = true
			return nil
		}
		name := r.regular()
		r.space()
		start := r.at
		if r.value(depth + 1); !r.failed {
			d = append(d, entry{string(name), r.file[start:r.at], start})
		}
	}
	return d
}

// value passes a value. A reference is one of three numbers and words.
func (r *reader) value(depth int) {
	r.space()
	switch rest := r.file[r.at:]; {
	case depth > maxNested || len(rest) == 0:
		r.failed = true
	case bytes.HasPrefix(rest, []byte("<<")):
		r.dictionary(depth)
	case rest[0] == '[':
		for r.at++; !r.failed && !r.takes("]"); {
			r.value(depth + 1)
		}
	case rest[0] == '(' || rest[0] == '<':
		r.text()
	case rest[0] == '/':
		r.at++
		r.regular()
	default:
		r.failed = len(r.regular()) == 0
		for end := r.at; !r.failed; end = r.at { // the end of a reference
			if r.space(); len(r.regular()) == 0 {
				r.at = end
				return
			}
		}
	}
}

// regular passes characters that are no delimiters, and returns them.
func (r *reader) regular() []byte {
	start := r.at
	for r.at < len(r.file) && !isBlank(r.file[r.at]) && bytes.IndexByte([]byte("()<>[]{}/%"), r.file[r.at]) < 0 {
		r.at++
	}
	return r.file[start:r.at]
}

// text reads a string, and returns what it says.
func (r *reader) text() (out []byte) {
	if r.takes("<") {
		end := bytes.IndexByte(r.file[r.at:], '>')
		if end < 0 {
			r.failed = true
			return nil
		}
		digits := bytes.Join(bytes.Fields(r.file[r.at:r.at+end]), nil)
		if len(digits)%2 != 0 {
			digits = append(digits, '0')
		}
		r.at += end + 1
		out, err := hex.AppendDecode(nil, digits)
		r.failed = r.failed || err != nil
		return out
	}
	if !r.takes("(") {
		r.failed = true
	}
	for open := 1; !r.failed; {
		switch b := r.next(); b {
		case '(':
			open++
			out = append(out, b)
		case ')':
			if open--; open == 0 {
				return out
			}
			out = append(out, b)
		case '\\':
			out = r.escaped(out)
		default:
			out = append(out, b)
		}
	}
	return nil
}

func (r *reader) next() byte {
	if r.at >= len(r.file) {
		r.failed = true
		return 0
	}
	r.at++
	return r.file[r.at-1]
}

// escaped appends what a backslash and the characters after it say.
func (r *reader) escaped(out []byte) []byte {
	b := r.next()
	if i := bytes.IndexByte([]byte("nrtbf"), b); i >= 0 {
		return append(out, "\n\r\t\b\f"[i])
	}
	switch {
	case b == '\n':
		return out
	case b == '\r':
		if r.at < len(r.file) && r.file[r.at] == '\n' {
			r.at++
		}
		return out
	case b < '0' || b > '7':
		return append(out, b)
	}
	v := b - '0'
	for i := 0; i < 2 && r.at < len(r.file) && r.file[r.at] >= '0' && r.file[r.at] <= '7'; i++ {
		v = v<<3 | (r.next() - '0')
	}
	return append(out, v)
}
