//go:build !linux

package lead

import (
	"net/netip"

	"heddle/internal/errhint"
)

// Unsupported is a switch on a system that has none.
type Unsupported struct{}

// Lead needs Linux.
func (Unsupported) Lead(client, gateway, tenant netip.AddrPort) error { return NeedsLinux() }

// Close does nothing.
func (Unsupported) Close() error { return nil }

// NeedsLinux says that this system has no switch.
func NeedsLinux() error {
	return errhint.NeedsLinux("the switch of a gateway", "relay connections instead")
}
