package errhint

import (
	"errors"
	"runtime"
)

// NeedsLinux is the failure of what works on Linux alone, with a hint for this system. It is an [errors.ErrUnsupported].
func NeedsLinux(what, hint string) *Error {
	return &Error{What: what, Why: "it needs Linux, and this is " + runtime.GOOS, Hint: hint, Err: errors.ErrUnsupported}
}
