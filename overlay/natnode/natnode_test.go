package natnode

import (
	"net/netip"
	"testing"

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
