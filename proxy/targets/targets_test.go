package targets

import (
	"errors"
	"net/netip"
	"testing"
)

func TestDefaultTargets(t *testing.T) {
	targets, err := New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	targets.own = func() ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("2001:db8::7")}, nil
	}
	for to, want := range map[string]bool{
		"203.0.113.8:443": true, "[2001:db8::8]:443": true, "[2606:4700::1111]:53": true, "9.9.9.9:53": true, "172.15.0.1:1": true,
		"100.63.0.1:1": true, "[::ffff:9.9.9.9]:53": true, "[64:ff9b::909:909]:53": true, "[2002:909:909::1]:53": true,
		"203.0.113.7:443": false, "[2001:db8::7]:443": false, "127.0.0.1:53": false, "127.255.255.254:1": false, "[::1]:53": false,
		"10.1.2.3:443": false, "172.16.0.1:443": false, "172.31.255.255:443": false, "192.168.0.1:443": false, "100.64.0.1:443": false,
		"169.254.169.254:80": false, "[fe80::1]:443": false, "[fd12::1]:443": false, "[fc00::1]:443": false, "224.0.0.251:5353": false,
		"[ff02::fb]:5353": false, "255.255.255.255:67": false, "0.0.0.0:53": false, "[::]:53": false, "240.0.0.1:1": false,
		"[::ffff:10.0.0.1]:53": false, "[::10.0.0.1]:53": false, "[64:ff9b::a00:1]:53": false, "[2002:7f00:1::1]:53": false,
		"[2001:0:1::1]:53": false, "9.9.9.9:0": false, "198.18.0.1:1": false, "[fe80::1%1]:443": false,
		"168.63.129.16:80": false, "[64:ff9b::a83f:8110]:80": false, "[2001:db8::5efe:10.0.0.1]:53": false,
		"[2001:db8::200:5efe:9.9.9.9]:53": true, "[64:ff9b:1::909:909]:53": false,
	} {
		if got := targets.Allowed(netip.MustParseAddrPort(to)); got != want {
			t.Errorf("%s: %v", to, got)
		}
	}
	if targets.Allowed(netip.AddrPort{}) {
		t.Error("no address at all is allowed")
	}
	targets.own = func() ([]netip.Addr, error) { return nil, errors.New("no netlink") }
	if targets.Allowed(netip.MustParseAddrPort("9.9.9.9:53")) {
		t.Error("allowed without knowing this machine's own addresses")
	}
}

func TestTargetRules(t *testing.T) {
	for _, c := range []struct {
		name        string
		allow, deny []string
		want        map[string]bool
	}{
		{"an exception", []string{"10.0.0.0/8"}, nil, map[string]bool{"10.1.1.1:1": true, "192.168.1.1:1": false, "9.9.9.9:1": true}},
		{"an exception with a port", []string{"10.0.0.0/8:51820"}, nil, map[string]bool{"10.1.1.1:51820": true, "10.1.1.1:22": false}},
		{"an exception of an exception", []string{"10.0.0.0/8"}, []string{"10.1.0.0/16"}, map[string]bool{"10.1.1.1:1": false, "10.2.1.1:1": true}},
		{"nothing but", []string{"9.9.9.9:53"}, []string{"0.0.0.0/0", "::/0"}, map[string]bool{"9.9.9.9:53": true, "9.9.9.9:54": false, "8.8.8.8:53": false, "[2606:4700::1]:53": false}},
		{"a port of all", nil, []string{"0.0.0.0/0:25", "[::/0]:25"}, map[string]bool{"9.9.9.9:25": false, "9.9.9.9:26": true, "[2606:4700::1]:25": false}},
		{"deny wins a tie", []string{"9.9.9.0/24"}, []string{"9.9.9.0/24"}, map[string]bool{"9.9.9.9:1": false}},
		{"the port wins before", []string{"9.9.9.0/24:7"}, []string{"9.9.9.0/24"}, map[string]bool{"9.9.9.9:7": true, "9.9.9.9:8": false}},
		{"one's own address", []string{"203.0.113.7"}, nil, map[string]bool{"203.0.113.7:1": true}},
		{"its network is not enough", []string{"203.0.113.0/24"}, nil, map[string]bool{"203.0.113.7:1": false}},
		{"IPv6 with a port", []string{"[fd00::/8]:53"}, nil, map[string]bool{"[fd00::1]:53": true, "[fd00::1]:54": false}},
		{"no way around by IPv6", []string{"64:ff9b::/96"}, nil, map[string]bool{"[64:ff9b::a00:1]:53": false}},
		{"nor by a network's own NAT64", []string{"64:ff9b:1::/48"}, nil, map[string]bool{"[64:ff9b:1::a00:1]:53": false, "[64:ff9b:1:a01:2:300::]:53": false, "[64:ff9b:1::909:909]:53": true}},
	} {
		targets, err := New(c.allow, c.deny)
		if err != nil {
			t.Fatal(err)
		}
		targets.own = func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("203.0.113.7")}, nil }
		for to, want := range c.want {
			if got := targets.Allowed(netip.MustParseAddrPort(to)); got != want {
				t.Errorf("%s: %s: %v", c.name, to, got)
			}
		}
	}
	for _, bad := range []string{"", "x", "10.0.0.0/33", "10.0.0.0/8:0", "10.0.0.0/8:x", "[fd00::/8]", "[fd00::/8", "[fd00::/8]:x", "fe80::1%eth0", "::ffff:10.0.0.0/104"} {
		if _, err := New([]string{bad}, nil); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func FuzzTargets(f *testing.F) {
	f.Add("10.0.0.0/8:51820", "10.1.1.1:51820")
	f.Add("[fd00::/8]:53", "[fd00::1]:53")
	f.Fuzz(func(t *testing.T, text, to string) {
		targets, err := New(nil, []string{text})
		at, addrErr := netip.ParseAddrPort(to)
		if err != nil || addrErr != nil {
			return
		}
		targets.own = func() ([]netip.Addr, error) { return nil, nil }
		plain, _ := New(nil, nil)
		plain.own = targets.own
		if targets.Allowed(at) && !plain.Allowed(at) {
			t.Errorf("--deny %s allows %s", text, to)
		}
	})
}
