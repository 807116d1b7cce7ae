package nat

import (
	"bytes"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/path"
)

const (
	forwardIPv4 = "/proc/sys/net/ipv4/ip_forward"
	forwardIPv6 = "/proc/sys/net/ipv6/conf/all/forwarding"
)

// forwards says why packets to an address would not be forwarded.
func forwards(to netip.Addr) error {
	file, name := forwardIPv4, "net.ipv4.ip_forward"
	if to.Is6() {
		file, name = forwardIPv6, "net.ipv6.conf.all.forwarding"
	}
	value, err := os.ReadFile(file)
	if err != nil {
		return &path.Error{What: "nat mode", Why: "cannot read " + name, Err: err}
	}
	if bytes.TrimSpace(value)[0] == '0' {
		return &path.Error{What: "nat mode", Why: "this kernel forwards no packets: " + name + " is 0",
			Hint: "`sysctl -w " + name + "=1` makes this machine a router; --set-forwarding does it for leases alone (IPv4)"}
	}
	return nil
}

// forward sees that IPv4 is forwarded, and sets it where that is asked for.
func (t *Table) forward(set bool) error {
	err := forwards(netip.IPv4Unspecified())
	if err == nil || !set {
		return err
	}
	t.forwarding = true
	// The table comes first, since it keeps others from being forwarded.
	if err := t.write(content{}, true); err != nil {
		return t.problem("cannot be made", err)
	}
	if err := setForwarding(true); err != nil {
		return &path.Error{What: "nat mode", Why: "cannot set net.ipv4.ip_forward", Err: err, Hint: "run as root or with CAP_NET_ADMIN"}
	}
	return nil
}

func setForwarding(on bool) error {
	value := "0"
	if on {
		value = "1"
	}
	return os.WriteFile(forwardIPv4, []byte(value), 0)
}

// forget removes what the kernel remembers of connections that came under these keys. What comes of them after that is
// answered by this machine itself, with a reset. It is a courtesy: a kernel without conntrack's netlink does without.
func forget(keys []key) {
	gone := map[key]bool{}
	for _, k := range keys {
		gone[k] = true
	}
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		_, _ = netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, ofKeys(gone))
	}
}

// ofKeys matches the connections that were translated under one of the keys.
type ofKeys map[key]bool

func (o ofKeys) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	client, ok := netip.AddrFromSlice(flow.Forward.SrcIP)
	return ok && flow.Forward.Protocol == unix.IPPROTO_TCP && !flow.Forward.DstIP.Equal(flow.Reverse.SrcIP) &&
		o[key{client.Unmap(), flow.Forward.DstPort}]
}
