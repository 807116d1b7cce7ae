package errhint

import (
	"errors"
	"runtime"
)

// NeedsLinux returns the error for a feature that works only on Linux. It wraps [errors.ErrUnsupported].
func NeedsLinux(what, hint string) *Error {
	return &Error{What: what, Why: "it needs Linux, and this is " + runtime.GOOS, Hint: hint, Err: errors.ErrUnsupported}
}
