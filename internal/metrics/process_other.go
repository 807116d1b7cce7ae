//go:build !linux

package metrics

import "io"

func writeSystem(io.Writer) {}
