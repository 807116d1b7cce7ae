package iprule

import (
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"heddle/internal/nstest"
)

func TestFreeNumbers(t *testing.T) {
	nstest.New(t).Enter(t)
	add := func(priority, table int) {
		t.Helper()
		r := netlink.NewRule()
		r.Family, r.Priority, r.Table = Family(true), priority, table
		if err := netlink.RuleAdd(r); err != nil {
			t.Fatal(err)
		}
	}
	add(100, WGQuick)
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.RouteAdd(&netlink.Route{Table: WGQuick + 2, LinkIndex: lo.Attrs().Index, Dst: netlink.NewIPNet([]byte{10, 0, 0, 1})}); err != nil {
		t.Fatal(err)
	}
	// A rule takes a table, and so does a route, each of any family.
	if got, err := FreeTables(WGQuick, 2); err != nil || !slices.Equal(got, []int{WGQuick + 1, WGQuick + 3}) {
		t.Errorf("free tables %v, %v", got, err)
	}
	for v6, want := range map[bool][2]int{true: {97, 100}, false: {32763, 32766}} {
		if first, after, err := FreePriorities(v6, 3); err != nil || [2]int{first, after} != want {
			t.Errorf("IPv6 %v: priorities from %d, before %d (%v); want %v", v6, first, after, err, want)
		}
	}
	add(3, WGQuick)
	if _, _, err := FreePriorities(true, 3); err == nil {
		t.Error("priority 0 is the kernel's own rule")
	}
}
