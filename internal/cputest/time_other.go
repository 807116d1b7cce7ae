//go:build !unix

package cputest

func processorTime() int64 { return 0 }
