package resolve

import (
	"net/netip"
	"slices"
	"testing"
)

// One network, or one exit of two tunnels, can forge any answer that it carries, however many paths lead through it.
func TestAgreed(t *testing.T) {
	a, b := netip.MustParseAddrPort("192.0.2.1:53"), netip.MustParseAddrPort("192.0.2.2:53")
	by := func(observer, exit string, said ...netip.AddrPort) Answer {
		return Answer{Witness: Witness{observer, exit}, Addresses: said}
	}
	type answers = []Answer
	for name, c := range map[string]struct {
		answers answers
		need    int
		want    []netip.AddrPort
	}{
		"two networks":                    {answers{by("if:home", "", a), by("if:lte", "", a)}, 2, []netip.AddrPort{a}},
		"one network":                     {answers{by("if:home", "", a)}, 2, nil},
		"two paths of one network":        {answers{by("if:home", "", a), by("if:home", "", a)}, 2, nil},
		"one network twice, and another":  {answers{by("if:home", "", a), by("if:home", "", a), by("if:lte", "", a)}, 2, []netip.AddrPort{a}},
		"one exit over two networks":      {answers{by("masque:one", "exit", a), by("masque:two", "exit", a)}, 2, nil},
		"two exits":                       {answers{by("masque:one", "exit", a), by("masque:two", "other", a)}, 2, []netip.AddrPort{a}},
		"two proxies over one network":    {answers{by("if:home", "socks5:one", a), by("if:home", "socks5:two", a)}, 2, nil},
		"they disagree":                   {answers{by("if:home", "", b), by("if:lte", "", a)}, 2, nil},
		"they agree on a part":            {answers{by("if:home", "", b, a), by("if:lte", "", a)}, 2, []netip.AddrPort{a}},
		"the third is the liar":           {answers{by("if:home", "", b), by("if:lte", "", a), by("if:office", "", a)}, 2, []netip.AddrPort{a}},
		"one says it twice":               {answers{by("if:home", "", a, a)}, 2, nil},
		"nobody":                          {nil, 2, nil},
		"a session of one network":        {answers{by("if:home", "", a)}, 1, []netip.AddrPort{a}},
		"a session of one network, empty": {answers{by("if:home", "")}, 1, nil},
	} {
		if got := Agreed(c.answers, c.need); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
