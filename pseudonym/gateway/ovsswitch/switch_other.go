//go:build !linux

package ovsswitch

import (
	"net/netip"

	"heddle/internal/errhint"
)

// Switch needs Linux.
type Switch struct{}

// New needs Linux.
func New(Options) (*Switch, error) { return nil, unsupported() }

// Check needs Linux.
func Check(Options) error { return unsupported() }

// Lead needs Linux.
func (*Switch) Lead(client, gateway, tenant netip.AddrPort) error { return unsupported() }

// Close does nothing.
func (*Switch) Close() error { return nil }

func unsupported() error {
	return errhint.NeedsLinux("the switch of a gateway", "relay connections instead")
}
