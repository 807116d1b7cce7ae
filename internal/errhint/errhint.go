// Package errhint has the type of errors that people see: what failed, why, and a hint on what to do. Packages above path
// use its name path.Error. Errors that only code reads do not need it.
package errhint

import "errors"

type Error struct {
	What string // the subject, such as `path home`
	Why  string // the reason, such as `no interface named eth7`
	Hint string // what to do; may be empty
	Err  error  // the cause; may be nil
}

// Error returns one line: what, why, cause.
func (e *Error) Error() string {
	text := e.What
	if e.Why != "" {
		text += ": " + e.Why
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// HintText returns the hint. Commands print it on a separate line.
func (e *Error) HintText() string { return e.Hint }

// Of returns the hint of the outermost error that has one, or "".
func Of(err error) string {
	for err != nil {
		var hinted interface{ HintText() string }
		if !errors.As(err, &hinted) {
			return ""
		}
		if text := hinted.HintText(); text != "" {
			return text
		}
		inner, ok := hinted.(interface{ Unwrap() error })
		if !ok {
			return ""
		}
		err = inner.Unwrap()
	}
	return ""
}

// Reason returns the text of err without its subject, for a line that already names it.
func Reason(err error) string {
	var e *Error
	switch {
	case !errors.As(err, &e):
		return err.Error()
	case e.Err == nil:
		return e.Why
	case e.Why == "":
		return e.Err.Error()
	}
	return e.Why + ": " + e.Err.Error()
}
