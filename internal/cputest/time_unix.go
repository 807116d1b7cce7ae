//go:build unix

package cputest

import "syscall"

// processorTime returns how long the process ran, in nanoseconds.
func processorTime() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
