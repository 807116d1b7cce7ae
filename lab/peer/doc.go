// Package peer starts unmodified programs inside hosts of a world: wireguard-go, nginx, iperf3.
//
// Each start returns a [Process], which ends with its context, by [Process.Stop], or with the world. If a program is
// missing, the error is a [path.Error] that wraps [ErrMissing] and says how to install it.
//
// Do not use this package for Heddle's own planes: experiments start the heddle binary like any other program.
package peer
