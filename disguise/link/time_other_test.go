//go:build !unix

package link

func processorTime() int64 { return 0 }
