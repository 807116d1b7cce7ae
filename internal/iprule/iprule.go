// Package iprule finds free priorities of policy routing rules and free routing tables. The kernel reserves no numbers: two
// concurrent searches may find the same ones.
package iprule

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// First tables of the search for free ones.
const (
	WGQuick  = 51820 // the first table of wg-quick(8)
	Sessions = 52820 // apart from the tables of wg-quick(8) and of tunnels
)

// Family returns netlink's number of the address family.
func Family(v6 bool) int {
	if v6 {
		return netlink.FAMILY_V6
	}
	return netlink.FAMILY_V4
}

// FreePriorities returns n consecutive free priorities before all rules but the kernel's first, where the kernel puts new
// ones (fib_default_rule_pref), and the priority of the rule that follows them.
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

// FreeTables returns the numbers of n routing tables, starting at first, without routes and rules in any family.
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
