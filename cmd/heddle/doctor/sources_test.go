package doctor

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"

	"heddle/internal/nstest"
)

// Two uplinks whose routes differ in their metric only: all addresses leave by the first. What the hint says helps.
func TestAddressesThatLeaveByOneInterface(t *testing.T) {
	inWorld(t, func() error {
		for _, w := range []wire{
			{name: "home", peer: "h1", address: "192.168.1.2/24", gateway: "192.168.1.1", metric: 100},
			{name: "lte", peer: "l1", address: "10.64.0.2/24", gateway: "10.64.0.1", metric: 200},
		} {
			if err := lay(w); err != nil {
				return err
			}
		}
		check := func() Result {
			found, err := interfaces()
			if err != nil {
				t.Fatal(err)
			}
			return sourcesCheck(waysOut(found))
		}
		want := partly("10.64.0.2 of lte leaves by home; a path src: of it would too, and the kernel's answers to what comes late", "name the interface (if:), which needs no rule; "+
			"for src:, and for the kernel, ip route add default via 10.64.0.1 dev lte table 101; ip rule add from 10.64.0.2 lookup 101")
		if got := check(); got != want {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
		if err := nstest.Route("", "lte", netlink.Route{Gw: net.IPv4(10, 64, 0, 1), Table: firstTable}); err != nil {
			return err
		}
		rule := netlink.NewRule()
		rule.Src, rule.Table = &net.IPNet{IP: net.IPv4(10, 64, 0, 2).To4(), Mask: net.CIDRMask(32, 32)}, firstTable
		if err := netlink.RuleAdd(rule); err != nil {
			return err
		}
		if got := check(); got.Verdict != Yes {
			t.Errorf("with the rule: %+v", got)
		}
		return nil
	})
	if got := sourcesCheck(nil); got.Verdict != Unknown {
		t.Errorf("without interfaces: %+v", got)
	}
}
