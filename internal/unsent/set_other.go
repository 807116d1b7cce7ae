//go:build !linux

package unsent

import "errors"

// Set has no equivalent here that all versions of the system have.
func Set(uintptr, int) error { return errors.ErrUnsupported }
