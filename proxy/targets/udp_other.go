//go:build !linux

package targets

import "heddle/internal/errhint"

// neverFragment fails: without it, the socket would send fragments, which a proxy must not (RFC 9298, section 5).
func neverFragment(uintptr, bool) error {
	return errhint.NeedsLinux("UDP to targets", "run the proxy, node or bridge on Linux; clients run anywhere")
}
