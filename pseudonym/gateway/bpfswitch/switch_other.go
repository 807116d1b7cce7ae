//go:build !linux

package bpfswitch

import "heddle/pseudonym/gateway/lead"

// Switch needs Linux.
type Switch struct{ lead.Unsupported }

// New needs Linux.
func New(Options) (*Switch, error) { return nil, lead.NeedsLinux() }

// Check needs Linux.
func Check(Options) error { return lead.NeedsLinux() }
