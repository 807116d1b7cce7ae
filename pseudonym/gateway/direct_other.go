//go:build !linux

package gateway

import (
	"net/netip"
	"time"

	"heddle/internal/errhint"
)

func answersFrom(now time.Time, gateway, client netip.AddrPort, own, peer netip.Addr) error {
	return CheckDirect(gateway.Addr())
}

func end(local, remote netip.AddrPort) error { return CheckDirect(local.Addr()) }

// CheckDirect needs Linux.
func CheckDirect(gateway netip.Addr) error {
	return errhint.NeedsLinux("an agent that answers directly", "let the answers pass the gateway's machine")
}
