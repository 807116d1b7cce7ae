package path

import "strings"

// Error is a failure with what, why and a hint for the person at the keyboard.
type Error struct {
	What string // the thing, such as `path home`
	Why  string // the reason, such as `no interface named eth7`
	Hint string // what to do, may be empty
	Err  error  // the cause, may be nil
}

// Error gives one line: what, why.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.What)
	if e.Why != "" {
		b.WriteString(": ")
		b.WriteString(e.Why)
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// HintText gives the hint; the edge prints it on a line of its own.
func (e *Error) HintText() string { return e.Hint }
