//go:build !linux

package pacing

import "net"

// Conn returns c: only Linux has this BBR.
func Conn(c net.Conn) net.Conn { return c }
