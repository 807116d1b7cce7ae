//go:build !linux

package pacing

import "errors"

// Only Linux has this BBR.
func isBBR(uintptr) bool           { return false }
func ask(uintptr) (sample, error)  { return sample{}, errors.ErrUnsupported }
func limit(uintptr, int)           {}
func flowOf(uintptr) (flow, error) { return flow{}, errors.ErrUnsupported }
