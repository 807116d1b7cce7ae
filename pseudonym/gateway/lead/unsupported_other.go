//go:build !linux

package lead

import (
	"net/netip"
	"time"

	"heddle/internal/errhint"
)

// Unsupported is a switch on a system that has none.
type Unsupported struct{}

// Lead needs Linux.
func (Unsupported) Lead(client, gateway, tenant netip.AddrPort) error { return NeedsLinux() }

// Each fails.
func (Unsupported) Each(func(Connection) error) error { return NeedsLinux() }

// Touch fails.
func (Unsupported) Touch(client, gateway, tenant netip.AddrPort, unless time.Duration) (bool, error) {
	return false, NeedsLinux()
}

// Close does nothing.
func (Unsupported) Close() error { return nil }

// NeedsLinux says that this system has no switch.
func NeedsLinux() error {
	return errhint.NeedsLinux("the switch of a gateway", "relay connections instead")
}
