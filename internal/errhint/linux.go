package errhint

import (
	"errors"
	"runtime"
)

// NeedsLinux is the failure of what works on Linux alone, and says what to do on this system in its place. It is an
// [errors.ErrUnsupported].
func NeedsLinux(what, hint string) *Error {
	return &Error{What: what, Why: "it needs Linux, and this is " + runtime.GOOS, Hint: hint, Err: errors.ErrUnsupported}
}
