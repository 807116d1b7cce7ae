package wgconf

import (
	"fmt"
	"strings"
)

// UAPI gives the text of WireGuard's cross-platform configuration protocol that sets a device up as the file says, with
// the server at endpoint and packets marked with mark, where that is not 0. It holds the keys: it must not be shown.
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
