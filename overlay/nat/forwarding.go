package nat

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/nft"
	"heddle/internal/sysctl"
	"heddle/path"
)

const (
	forwardIPv4 = "/proc/sys/net/ipv4/ip_forward"
	forwardIPv6 = "/proc/sys/net/ipv6/conf/all/forwarding"
)

// forwards returns why the kernel does not forward packets of the family.
func (f family) forwards() error {
	value, err := sysctl.Get(f.forwarding)
	if err != nil {
		return &path.Error{What: "nat mode", Why: "cannot read " + sysctl.Name(f.forwarding), Err: err}
	}
	if value == "0" {
		return &path.Error{What: "nat mode", Why: "this kernel forwards no packets: " + sysctl.Name(f.forwarding) + " is 0",
			Hint: "`sysctl -w " + sysctl.Name(f.forwarding) + "=1` makes this machine a router; --set-forwarding does it for leases alone"}
	}
	return nil
}

// forward checks that a family is forwarded, or sets it if permitted. The table must exist.
func (t *Table) forward(f family) error {
	err := f.forwards()
	if err == nil || !t.mayForward {
		return err
	}
	if err := f.keepsRoutes(); err != nil {
		return err
	}
	if c := t.forwarding[f.number]; c != nil { // somebody stopped it, or it failed before
		return c.again()
	}
	c, err := t.newForwarding(f)
	if err != nil {
		return &path.Error{What: "nat mode", Why: "cannot read this machine's settings", Err: err}
	}
	return t.do(c)
}

// closeChain makes the family's table drop all forwarded packets without a lease.
func (l layout) closeChain(f family) error {
	return nft.Change(func(conn *nftables.Conn) error {
		c := l.closingChainOf(f, nftables.ChainPolicyDrop)
		conn.AddChain(&c)
		return nil
	})
}

// Flags of routes from a router's advertisement (linux/ipv6_route.h).
const learned = 0x00010000 | 0x00040000 // RTF_DEFAULT, RTF_ADDRCONF

// keepsRoutes fails if forwarding would lose this machine's default route: a router ignores advertisements, and the kernel
// drops the routes learned from them, unless accept_ra is 2 (Documentation/networking/ip-sysctl.rst).
func (f family) keepsRoutes() error {
	if f.table != nftables.TableFamilyIPv6 {
		return nil
	}
	file, err := os.Open("/proc/thread-self/net/ipv6_route")
	if err != nil {
		return &path.Error{What: "nat mode", Why: "cannot read the routes of IPv6", Err: err}
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		// Fields, in hexadecimal: destination, length, source, length, gateway, metric, two counters, flags and device.
		fields := strings.Fields(lines.Text())
		if len(fields) != 10 || fields[1] != "00" {
			continue
		}
		flags, err := strconv.ParseUint(fields[8], 16, 32)
		if err != nil || flags&learned == 0 {
			continue
		}
		accept := "/proc/sys/net/ipv6/conf/" + fields[9] + "/accept_ra"
		if value, err := sysctl.Get(accept); err == nil && value == "2" {
			continue
		}
		return &path.Error{What: "nat mode", Why: fmt.Sprintf("setting %s would take this machine's default route, which %s has from a router's advertisement", sysctl.Name(f.forwarding), fields[9]),
			Hint: "`sysctl -w " + strings.TrimPrefix(accept, "/proc/sys/") + "=2` keeps it"}
	}
	return lines.Err()
}

// forget removes the kernel's conntrack entries under these keys. This machine then answers their packets with a reset. It
// is a courtesy: a kernel without ctnetlink does without.
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
