//go:build !linux

package probe

import (
	"math"
	"net"
)

// acknowledged is unknown here: it says that all bytes are.
func acknowledged(*net.TCPConn) int { return math.MaxInt }
