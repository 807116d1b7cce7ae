//go:build !linux

package nftswitch

import "heddle/pseudonym/gateway/lead"

// Switch needs Linux.
type Switch struct{ lead.Unsupported }

// New needs Linux.
func New() (*Switch, error) { return nil, lead.NeedsLinux() }
