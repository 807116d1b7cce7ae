package node

import (
	"net/netip"
	"testing"

	"heddle/config"
	"heddle/overlay/nat"
)

// A lease's name comes back from whoever holds a grant.
func FuzzLeaseName(f *testing.F) {
	f.Add(idOf(nat.Rule{Client: netip.MustParseAddr("192.0.2.1"), Listen: netip.MustParseAddrPort("198.51.100.1:20000"), To: netip.MustParseAddrPort("203.0.113.1:22")}))
	f.Add(idOf(nat.Rule{Client: netip.MustParseAddr("2001:db8::1"), Listen: netip.MustParseAddrPort("[2001:db8::2]:20000"), To: netip.MustParseAddrPort("[2001:db8::3]:22")}))
	f.Fuzz(func(t *testing.T, id string) {
		r, err := ruleOf(id)
		if err != nil {
			return
		}
		if again, err := ruleOf(idOf(r)); err != nil || again != r {
			t.Errorf("%q is %+v, whose name is %q: %+v, %v", id, r, idOf(r), again, err)
		}
	})
}

func TestLeasePorts(t *testing.T) {
	for text, want := range map[string][2]uint16{
		"20000-20999": {20000, 20999}, "7-7": {7, 7}, "": {}, "20000": {}, "0-5": {}, "9-8": {}, "1-70000": {}, "a-b": {},
	} {
		n := config.DefaultNode()
		n.NATPorts = text
		first, last, err := n.NATPortRange()
		if want != [2]uint16{first, last} || (err == nil) != (want[0] != 0) || (n.Check() == nil) != (want[0] != 0) {
			t.Errorf("%q: %d to %d, %v", text, first, last, err)
		}
	}
}
