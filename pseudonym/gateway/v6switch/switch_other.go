//go:build !linux

package v6switch

import (
	"net/netip"

	"heddle/internal/errhint"
	"heddle/pseudonym/address"
)

// Switch needs Linux.
type Switch struct{}

// New needs Linux.
func New(Options) (*Switch, error) { return nil, unsupported() }

// SetKeys needs Linux.
func (*Switch) SetKeys(*address.Ring) error { return unsupported() }

// SetTenants needs Linux.
func (*Switch) SetTenants(map[uint16]netip.Addr) error { return unsupported() }

// Follow needs Linux.
func (*Switch) Follow() error { return unsupported() }

// Attach needs Linux.
func (*Switch) Attach() error { return unsupported() }

// Routes needs Linux.
func Routes(string) error { return unsupported() }

// Counts returns nothing.
func (*Switch) Counts() Counts { return Counts{} }

// Close does nothing.
func (*Switch) Close() error { return nil }

func unsupported() error {
	return errhint.NeedsLinux("the switch of pseudo-addresses", "relay connections instead")
}
