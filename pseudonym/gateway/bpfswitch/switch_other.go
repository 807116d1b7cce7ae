//go:build !linux

package bpfswitch

import (
	"net/netip"
	"time"

	"heddle/pseudonym/gateway/lead"
)

// Switch needs Linux.
type Switch struct{ lead.Unsupported }

// Each needs Linux.
func (*Switch) Each(func(lead.Connection) error) error { return lead.NeedsLinux() }

// Touch needs Linux.
func (*Switch) Touch(client, gateway, tenant netip.AddrPort, unless time.Duration) (bool, error) {
	return false, lead.NeedsLinux()
}

// New needs Linux.
func New(Options) (*Switch, error) { return nil, lead.NeedsLinux() }

// Check needs Linux.
func Check(Options) error { return lead.NeedsLinux() }
