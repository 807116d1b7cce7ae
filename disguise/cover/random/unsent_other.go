//go:build !linux

package random

import (
	"errors"
	"net"
)

// limitUnsent has no equivalent here that all versions of the system have.
func limitUnsent(net.Conn, int) error { return errors.ErrUnsupported }
