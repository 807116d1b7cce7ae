package wgconf

import (
	"fmt"
	"strings"
)

// UAPI returns the configuration of a device in WireGuard's cross-platform protocol. A mark of 0 sets none. The text
// contains the keys: never show it.
func (c *Config) UAPI(endpoint string, mark uint32) string {
	var b strings.Builder
	fmt.Fprintf(&b, "private_key=%s\n", c.Interface.PrivateKey.Hex())
	if mark != 0 {
		fmt.Fprintf(&b, "fwmark=%d\n", mark)
	}
	fmt.Fprintf(&b, "replace_peers=true\npublic_key=%s\n", c.Peer.PublicKey.Hex())
	if !c.Peer.PresharedKey.IsZero() {
		fmt.Fprintf(&b, "preshared_key=%s\n", c.Peer.PresharedKey.Hex())
	}
	fmt.Fprintf(&b, "endpoint=%s\npersistent_keepalive_interval=%d\nreplace_allowed_ips=true\n", endpoint, c.Peer.PersistentKeepalive)
	for _, p := range c.Peer.AllowedIPs {
		fmt.Fprintf(&b, "allowed_ip=%s\n", p)
	}
	return b.String()
}
