package tunnel

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/iprule"
	"heddle/internal/nft"
	"heddle/internal/sysctl"
	"heddle/path"
	"heddle/path/wgconf"
)

func makePlan(o *Options) (*plan, error) {
	if len(o.Name) > wgconf.MaxDeviceName {
		return nil, &path.Error{What: fmt.Sprintf("name %q", o.Name), Why: fmt.Sprintf("a network device's name has at most %d bytes", wgconf.MaxDeviceName),
			Hint: "give a shorter one with --name, or rename the file"}
	}
	if _, err := netlink.LinkByName(o.Name); err == nil {
		return nil, &path.Error{What: "device " + o.Name, Why: "there is one of this name already",
			Hint: fmt.Sprintf("end it (`wg-quick down %[1]s` or `ip link delete %[1]s`), or give another --name", o.Name)}
	}
	mtu, warning, err := chooseMTU(o)
	if err != nil {
		return nil, err
	}
	p := &plan{mtu: mtu, mark: o.Config.Interface.FwMark, noIPv6: ipv6Off()}
	if warning != "" {
		p.warnings = append(p.warnings, warning)
	}
	routes, err := p.routing(o)
	if err != nil {
		return nil, &path.Error{What: "routing of " + o.Name, Why: "it cannot be planned", Err: err, Hint: hintFor(err)}
	}
	p.makeDevice(o)
	if err := p.tellSkipped(o); err != nil {
		return nil, err
	}
	if len(o.Config.Interface.DNS) > 0 {
		file := cmp.Or(o.ResolvConf, "/etc/resolv.conf")
		p.after = append(p.after, resolverChange(o.Name, o.Config.Interface.DNS, o.Config.Interface.Search, file))
	}
	p.after = append(p.after, routes...)
	p.addHooks(&p.after, o, "PostUp", o.Config.Interface.PostUp)
	p.addHooks(&p.after, o, "PreDown", o.Config.Interface.PreDown)
	return p, nil
}

// makeDevice plans the firewall first, so that nothing leaves while the rest is made. It is undone last.
func (p *plan) makeDevice(o *Options) {
	if p.table != 0 {
		f := &firewall{Table: nft.Name(o.Name), Device: o.Name, Mark: p.mark, KillSwitch: o.KillSwitch}
		for _, a := range o.Config.Interface.Addresses {
			if !p.skip(a) {
				f.Addresses = append(f.Addresses, a.Addr())
			}
		}
		if o.KillSwitch {
			p.guard = f
		}
		p.before = append(p.before, f)
	} else if p.guard != nil {
		p.before = append(p.before, p.guard)
	}
	p.addHooks(&p.before, o, "PostDown", o.Config.Interface.PostDown)
	p.addHooks(&p.before, o, "PreUp", o.Config.Interface.PreUp)
	p.before = append(p.before, &deviceChange{Device: o.Name})
	for _, a := range o.Config.Interface.Addresses {
		if p.skip(a) {
			continue
		}
		p.before = append(p.before, &address{Device: o.Name, Prefix: a})
	}
	p.before = append(p.before, &linkUp{Device: o.Name, MTU: p.mtu})
}

func (p *plan) addHooks(to *[]change, o *Options, when string, commands []string) {
	if o.Hooks && len(commands) > 0 {
		*to = append(*to, &hooks{Device: o.Name, When: when, AtEnd: when == "PreDown" || when == "PostDown", Commands: commands, log: o.log()})
	}
}

// routing plans routes and rules as wg-quick(8) does: unmarked packets look in the main table without its default route,
// then in a table of the tunnel's default routes. Halves of all addresses count as default routes, so as not to catch
// encrypted packets.
func (p *plan) routing(o *Options) ([]change, error) {
	table := o.Config.Interface.Table
	if table.Off {
		return nil, nil
	}
	var changes []change
	full := map[bool]bool{} // by IPv6
	for _, dst := range longestFirst(o.Config.Peer.AllowedIPs) {
		r := &route{Device: o.Name, Destination: dst, Table: mainTable}
		switch {
		case table.Number != 0:
			r.Table = table.Number
		case dst.Bits() == 0, dst.Bits() == 1 && o.Config.FullTunnel():
			if err := p.chooseTable(); err != nil {
				return nil, err
			}
			r.Table = p.table
			full[dst.Addr().Is6()] = !p.skip(dst)
		}
		if p.skip(dst) {
			continue
		}
		changes = append(changes, r)
	}
	for _, v6 := range []bool{false, true} {
		if full[v6] {
			rules, err := p.rules(v6)
			if err != nil {
				return nil, err
			}
			changes = append(changes, rules...)
		}
	}
	if full[false] {
		changes = append(changes, p.sourceMark(o)...)
	}
	if p.table == 0 && table.Number == 0 && o.KillSwitch && len(o.Config.Peer.AllowedIPs) > 0 {
		return changes, p.planGuard(o)
	}
	return changes, nil
}

// ipv6Off reports whether new devices have no IPv6. The kernel then refuses addresses and routes as it refuses a user without
// rights.
func ipv6Off() bool {
	value, err := sysctl.Get(disableIPv6)
	return err != nil || value == "1"
}

// disableIPv6 is absent if the kernel was started without IPv6. A change of net.ipv6.conf.all.disable_ipv6 changes it too.
const disableIPv6 = "/proc/sys/net/ipv6/conf/default/disable_ipv6"

// skip reports whether the plan leaves out a prefix of the file. The kill switch, which holds for IPv6 too, stays.
func (p *plan) skip(prefix netip.Prefix) bool { return p.noIPv6 && prefix.Addr().Is6() }

// tellSkipped warns of what is left out, and fails if nothing is left.
func (p *plan) tellSkipped(o *Options) error {
	all := slices.Concat(o.Config.Interface.Addresses, o.Config.Peer.AllowedIPs)
	if !slices.ContainsFunc(all, p.skip) {
		return nil
	}
	for _, prefixes := range [][]netip.Prefix{o.Config.Interface.Addresses, o.Config.Peer.AllowedIPs} {
		if len(prefixes) > 0 && !slices.ContainsFunc(prefixes, func(a netip.Prefix) bool { return !p.skip(a) }) {
			return &path.Error{What: "tunnel " + o.Name, Why: fmt.Sprintf("IPv6 is off on this machine, and the file has no IPv4 beside %v", prefixes),
				Hint: "sysctl -w net.ipv6.conf.all.disable_ipv6=0, or a file with IPv4"}
		}
	}
	var skipped []string
	for _, prefix := range all {
		if p.skip(prefix) {
			skipped = append(skipped, prefix.String())
		}
	}
	p.warnings = append(p.warnings, fmt.Sprintf("IPv6 is off on this machine, so the tunnel is made without %s of the file; if you switch it on, start the tunnel again", strings.Join(skipped, ", ")))
	return nil
}

// guardMark tells a session's own packets from those that a guard refuses. No table has this number, which is apart from
// those of [iprule.FreeTables].
const guardMark = 50820

// planGuard plans the guard of a tunnel that takes a part of the addresses. It also refuses packets to the tunnel's own
// addresses: once these are gone, errors about packets from them would leave by the default route. Parts for which this
// machine has narrower routes stay out of the tunnel, as with wg-quick(8). Routes that appear later have no effect: a hostile
// network could announce them.
func (p *plan) planGuard(o *Options) error {
	allowed := o.Config.Peer.AllowedIPs
	beside, err := narrowerRoutes(allowed)
	if err != nil {
		return err
	}
	p.mark = cmp.Or(p.mark, guardMark)
	p.guard = &firewall{Table: nft.Name(o.Name), Device: o.Name, Mark: p.mark, KillSwitch: true, Within: slices.Clone(allowed), Beside: beside}
	for _, a := range o.Config.Interface.Addresses {
		if own := netip.PrefixFrom(a.Addr(), a.Addr().BitLen()); !slices.Contains(p.guard.Within, own) {
			p.guard.Within = append(p.guard.Within, own)
		}
	}
	return nil
}

// narrowerRoutes lists the destinations of the main table's routes that lie inside one of the prefixes.
func narrowerRoutes(prefixes []netip.Prefix) (narrower []netip.Prefix, err error) {
	for _, v6 := range []bool{false, true} {
		routes, err := netlink.RouteListFiltered(iprule.Family(v6), &netlink.Route{Table: mainTable}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			if r.Dst == nil || r.Type != unix.RTN_UNICAST {
				continue
			}
			a, _ := netip.AddrFromSlice(r.Dst.IP)
			bits, _ := r.Dst.Mask.Size()
			dst := netip.PrefixFrom(a.Unmap(), bits)
			inside := func(p netip.Prefix) bool { return p.Bits() < bits && p.Contains(dst.Addr()) }
			if slices.ContainsFunc(prefixes, inside) && !slices.Contains(prefixes, dst) && !slices.Contains(narrower, dst) {
				narrower = append(narrower, dst)
			}
		}
	}
	return narrower, nil
}

// chooseTable uses the mark as the table's number, as wg-quick(8) does, or a free number for both.
func (p *plan) chooseTable() error {
	if p.table != 0 {
		return nil
	}
	if p.mark == 0 {
		free, err := iprule.FreeTables(iprule.WGQuick, 1)
		if err != nil {
			return err
		}
		p.mark = uint32(free[0])
	}
	p.table = p.mark
	return nil
}

func (p *plan) rules(v6 bool) ([]change, error) {
	lower, _, err := iprule.FreePriorities(v6, 2)
	if err != nil {
		return nil, err
	}
	return []change{
		&rule{V6: v6, Priority: lower + 1, Mark: p.mark, Table: p.table},
		&rule{V6: v6, Priority: lower, Table: mainTable},
	}, nil
}

// sourceMark lets reverse path filtering use the mark of answers. Only strict filtering needs it, so failing only warns.
func (p *plan) sourceMark(o *Options) []change {
	const file = "/proc/sys/net/ipv4/conf/all/src_valid_mark"
	c, err := sysctl.To(file, "1")
	if err == nil && c != nil {
		err = unix.Access(file, unix.W_OK)
	}
	if err != nil {
		o.log().Warn("answers may be lost where reverse path filtering is strict (rp_filter=1)", "file", file, "error", err)
		return nil
	}
	if c == nil {
		return nil
	}
	return []change{c}
}

func longestFirst(prefixes []netip.Prefix) []netip.Prefix {
	return slices.SortedStableFunc(slices.Values(prefixes), func(a, b netip.Prefix) int { return b.Bits() - a.Bits() })
}
