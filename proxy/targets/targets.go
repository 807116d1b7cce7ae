// Package targets decides to which destinations a proxy or bridge forwards, and opens its UDP sockets to them.
//
// It is no firewall: it checks addresses before a connection is made, not packets.
package targets

import (
	"fmt"
	"net"
	"net/netip"

	"heddle/internal/netutil"
	"heddle/path"
)

// Rules decide where a proxy forwards to. The rule with the longest prefix wins; among equals one with a port, then a
// configured one over a built-in one, then the one that denies.
type Rules struct {
	rules []rule
	own   func() ([]netip.Addr, error) // the addresses of this machine
}

type rule struct {
	prefix netip.Prefix
	port   uint16 // 0 is any
	allow  bool
	given  bool
}

// never lists special-purpose networks (RFC 6890 and similar), and Azure's host address, through which a proxy could be used
// to attack its own network. For prefixes that embed an IPv4 address, that address is checked instead.
var never = []string{
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4",
	"::/96", "64:ff9b:1::/48", "100::/64", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8", "2001::/32",
}

// New reads CIDR or CIDR:PORT. An IPv6 CIDR with a port is in brackets.
func New(allow, deny []string) (*Rules, error) {
	t := &Rules{own: ownAddresses}
	for _, text := range never {
		t.rules = append(t.rules, rule{prefix: netip.MustParsePrefix(text)})
	}
	for _, list := range []struct {
		flag  string
		texts []string
		allow bool
	}{{"allow", allow, true}, {"deny", deny, false}} {
		for _, text := range list.texts {
			r, err := parseRule(text)
			if err != nil {
				return nil, &path.Error{What: fmt.Sprintf("%s %q", list.flag, text), Why: err.Error(),
					Hint: "write 192.0.2.0/24, 192.0.2.1, 192.0.2.0/24:443, 2001:db8::/32 or [2001:db8::/32]:443"}
			}
			r.allow, r.given = list.allow, true
			t.rules = append(t.rules, r)
		}
	}
	return t, nil
}

func parseRule(text string) (rule, error) {
	p, err := netutil.ParsePlace(text)
	if a := p.Prefix.Addr(); a.Is4In6() && p.Prefix.IsSingleIP() {
		p.Prefix = netip.PrefixFrom(a.Unmap(), 32)
	}
	if err == nil && (!p.Prefix.IsValid() || p.Prefix.Addr().Is4In6()) {
		err = fmt.Errorf("%q is no address and no network", text)
	}
	return rule{prefix: p.Prefix, port: p.Port}, err
}

// over reports whether r takes precedence over other.
func (r rule) over(other rule) bool {
	switch {
	case r.prefix.Bits() != other.prefix.Bits():
		return r.prefix.Bits() > other.prefix.Bits()
	case (r.port != 0) != (other.port != 0):
		return r.port != 0
	case r.given != other.given:
		return r.given
	}
	return !r.allow
}

// Allowed reports whether the proxy forwards to an address.
func (t *Rules) Allowed(to netip.AddrPort) bool {
	a := to.Addr().Unmap()
	if !a.IsValid() || to.Port() == 0 || a.Zone() != "" {
		return false
	}
	for _, inner := range netutil.Inside(a) {
		if !t.Allowed(netip.AddrPortFrom(inner, to.Port())) {
			return false
		}
	}
	best, found := rule{}, false
	consider := func(r rule) {
		if r.prefix.Contains(a) && (r.port == 0 || r.port == to.Port()) && (!found || r.over(best)) {
			best, found = r, true
		}
	}
	for _, r := range t.rules {
		consider(r)
	}
	own, err := t.own()
	if err != nil {
		return false
	}
	for _, one := range own {
		consider(rule{prefix: netip.PrefixFrom(one, one.BitLen())})
	}
	return !found || best.allow
}

func ownAddresses() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	var own []netip.Addr
	for _, one := range list {
		if n, ok := one.(*net.IPNet); ok {
			if a, ok := netip.AddrFromSlice(n.IP); ok {
				own = append(own, a.Unmap())
			}
		}
	}
	return own, err
}
