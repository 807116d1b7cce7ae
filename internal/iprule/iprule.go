// Package iprule finds free numbers for policy routing: priorities of rules, and routing tables.
//
// The kernel reserves no numbers: two processes that search at the same moment may find the same ones.
package iprule

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Where the search for free tables begins.
const (
	// WGQuick is where wg-quick(8) begins too.
	WGQuick = 51820
	// Sessions is out of the way of wg-quick(8) and of tunnels.
	Sessions = 52820
)

// Family gives netlink's number of IPv6 or IPv4.
func Family(v6 bool) int {
	if v6 {
		return netlink.FAMILY_V6
	}
	return netlink.FAMILY_V4
}

// FreePriorities gives n free priorities in a row before all present rules but the kernel's first, as the kernel itself
// chooses them (fib_default_rule_pref), and the priority of the first rule after them.
func FreePriorities(v6 bool, n int) (first, after int, err error) {
	rules, err := netlink.RuleList(Family(v6))
	if err != nil {
		return 0, 0, err
	}
	after = 32766 // the kernel's rule for the main table
	for _, r := range rules {
		if r.Priority > 0 {
			after = min(after, r.Priority)
		}
	}
	if after <= n {
		return 0, 0, fmt.Errorf("there is no room for %d rules before the one of priority %d", n, after)
	}
	return after - n, after, nil
}

// FreeTables gives the numbers of n routing tables, from first on, that have no route and no rule in any family.
func FreeTables(first, n int) (numbers []int, err error) {
	used := map[int]bool{}
	for _, v6 := range []bool{false, true} {
		routes, err := netlink.RouteListFiltered(Family(v6), &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			used[r.Table] = true
		}
		rules, err := netlink.RuleList(Family(v6))
		if err != nil {
			return nil, err
		}
		for _, r := range rules {
			used[r.Table] = true
		}
	}
	for number := first; len(numbers) < n; number++ {
		if !used[number] {
			numbers = append(numbers, number)
		}
	}
	return numbers, nil
}
