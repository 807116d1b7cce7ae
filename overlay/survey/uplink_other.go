//go:build !linux

package survey

import (
	"net/netip"

	"heddle/internal/errhint"
	"heddle/path"
)

// FindUplink fails: a survey asks Linux for its routes.
func FindUplink(path.Spec, netip.Addr) (Uplink, error) {
	return Uplink{}, errhint.NeedsLinux("survey", "choose nodes by --pick rtt")
}
