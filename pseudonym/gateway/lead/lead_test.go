package lead

import (
	"net/netip"
	"testing"
)

func TestCheck(t *testing.T) {
	at := netip.MustParseAddrPort
	client, gateway, tenant := at("198.51.100.2:50000"), at("192.0.2.1:443"), at("10.9.1.2:443")
	if err := Check(client, gateway, tenant); err != nil {
		t.Error(err)
	}
	if err := Check(at("[2001:db8::2]:50000"), at("[2001:db8::1]:443"), at("[fd09::2]:443")); err != nil {
		t.Error(err)
	}
	var none netip.AddrPort
	for name, c := range map[string][3]netip.AddrPort{
		"no client": {none, gateway, tenant}, "no gateway": {client, none, tenant}, "no tenant": {client, gateway, none}, "nothing": {none, none, none},
		"another port": {client, gateway, at("10.9.1.2:444")}, "another family": {client, gateway, at("[fd09::2]:443")},
	} {
		if Check(c[0], c[1], c[2]) == nil {
			t.Errorf("%s: it passes", name)
		}
	}
}
