//go:build !linux

package connectudp

import "heddle/internal/errhint"

func (p *Proxy) warnBuffers() {}

// neverFragment fails: without it, a proxy would send fragments, which it must not (RFC 9298, section 5).
func neverFragment(uintptr, bool) error {
	return errhint.NeedsLinux("proxy", "run the proxy or node on Linux; clients run anywhere")
}
