package tunnel

import (
	"net/netip"
	"strings"
	"testing"

	"heddle/path/group"
	"heddle/path/wgconf"
)

func TestTheTunnelFitsTheNarrowestPath(t *testing.T) {
	v4, v6 := netip.MustParsePrefix("10.0.0.2/32"), netip.MustParsePrefix("fd00::2/128")
	for _, c := range []struct {
		name       string
		address    netip.Prefix
		endpoint   string
		asked      int
		all, whole int // largest packets of the narrowest path, and of the narrowest that refuses larger ones
		want       int // 0 is an error
		warning    string
	}{
		{"worked out", v4, "192.0.2.1:1", 0, 1361, 1361, 1281, ""},
		{"nothing is known", v4, "192.0.2.1:1", 0, 0, 0, 1420, ""},
		{"asked, nothing is known", v4, "192.0.2.1:1", 1440, 0, 0, 1440, ""},
		{"asked, and it fits", v4, "192.0.2.1:1", 1301, 1361, 1361, 1301, ""},
		{"asked too much", v4, "192.0.2.1:1", 1420, 1361, 1361, 1301, "1301 instead of 1420, since path narrow carries packets of 1361"},
		{"by IPv6", v4, "[2001:db8::1]:1", 1420, 1361, 1361, 1281, "1281 instead of 1420"},
		{"by a name, which may have IPv6", v4, "vpn.example:1", 1420, 1361, 1361, 1281, "1281 instead of 1420"},
		{"too narrow for IPv6 inside", v6, "192.0.2.1:1", 0, 1300, 0, 0, ""},
		{"asked for and fragmented", v6, "192.0.2.1:1", 1420, 1300, 0, 1280, "1280 instead of 1420"},
		{"asked for and refused", v6, "192.0.2.1:1", 1280, 1300, 1300, 0, ""},
	} {
		o := &Options{Config: &wgconf.Config{}}
		o.Config.Interface.Addresses, o.Config.Peer.Endpoint = []netip.Prefix{c.address}, c.endpoint
		mtu, warning, err := o.fitMTU(c.asked, group.Narrow{Path: "narrow", Size: c.all}, group.Narrow{Path: "whole", Size: c.whole})
		if (err != nil) != (c.want == 0) || mtu != c.want || !strings.Contains(warning, c.warning) || c.warning == "" && warning != "" {
			t.Errorf("%s: %d, %q, %v", c.name, mtu, warning, err)
		}
	}
}
