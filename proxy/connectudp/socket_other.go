//go:build !linux

package connectudp

import "heddle/internal/errhint"

func (p *Proxy) warnBuffers() {}

// neverFragment fails: a proxy that cannot keep what it sends whole (RFC 9298, section 5) sends nothing.
func neverFragment(uintptr, bool) error {
	return errhint.NeedsLinux("proxy", "run the proxy or node on Linux; clients run anywhere")
}
