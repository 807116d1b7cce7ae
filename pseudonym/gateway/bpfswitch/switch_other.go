//go:build !linux

package bpfswitch

import (
	"net/netip"

	"heddle/pseudonym/gateway/lead"
)

// Switch needs Linux.
type Switch struct{ lead.Unsupported }

// New needs Linux.
func New(Options) (*Switch, error) { return nil, lead.NeedsLinux() }

// CheckDirect needs Linux.
func CheckDirect(netip.Addr) error { return lead.NeedsLinux() }

// Check needs Linux.
func Check(Options) error { return lead.NeedsLinux() }
