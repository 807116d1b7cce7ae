//go:build !linux

package nftswitch

import (
	"net/netip"

	"heddle/internal/errhint"
)

// Switch needs Linux.
type Switch struct{}

// New needs Linux.
func New() (*Switch, error) {
	return nil, unsupported()
}

// Lead needs Linux.
func (*Switch) Lead(client, gateway, tenant netip.AddrPort) error { return unsupported() }

// Close does nothing.
func (*Switch) Close() error { return nil }

func unsupported() error {
	return errhint.NeedsLinux("the switch of a gateway", "relay connections instead")
}
