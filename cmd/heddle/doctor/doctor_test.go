package doctor

import (
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"heddle/internal/nstest"
)

func TestExamineThisMachine(t *testing.T) {
	report, err := Examine()
	if err != nil {
		t.Fatal(err)
	}
	if report.Kernel == "" {
		t.Error("no kernel")
	}
	seen := map[string]bool{}
	for _, r := range report.Checks {
		if seen[r.Check] {
			t.Errorf("%s twice", r.Check)
		}
		seen[r.Check] = true
		if r.What == "" || (r.Verdict == No || r.Verdict == Partly) && r.Hint == "" {
			t.Errorf("%+v says nothing to do", r)
		}
	}
	if len(report.Checks) != 18 {
		t.Errorf("%d checks", len(report.Checks))
	}
}

// errNoNamespace is why a test that needs a network namespace is skipped.
var errNoNamespace = errors.New("no network namespace can be made here (CAP_SYS_ADMIN)")

// inWorld runs a test in a network namespace of its own.
func inWorld(t *testing.T, try func() error) {
	t.Helper()
	made, err := inScratch(try)
	if !made {
		t.Skip(errNoNamespace)
	}
	if err != nil {
		t.Fatal(err)
	}
}

type wire struct {
	name, peer, address, gateway string
	table, metric                int
	down                         bool
}

// lay makes one end of a wire: its address, and its default route where it has a gateway.
func lay(w wire) error {
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: w.name, MTU: 1500}, PeerName: w.peer}
	if err := netlink.LinkAdd(link); err != nil || w.down {
		return err
	}
	var addresses []string
	if w.address != "" {
		addresses = append(addresses, w.address)
	}
	if err := errors.Join(nstest.Address(w.peer), nstest.Address(w.name, addresses...)); err != nil || w.gateway == "" {
		return err
	}
	return nstest.Route("", w.name, netlink.Route{Gw: net.ParseIP(w.gateway), Table: w.table, Priority: w.metric})
}

func TestInterfaces(t *testing.T) {
	inWorld(t, func() error {
		for _, w := range []wire{
			{name: "home", peer: "h1", address: "192.168.1.2/24", gateway: "192.168.1.1", metric: 100},
			{name: "lte", peer: "l1", address: "10.64.0.2/24", gateway: "10.64.0.1", metric: 200},
			{name: "dsl6", peer: "d1", address: "2001:db8:7::2/64", gateway: "2001:db8:7::1"},
			{name: "table", peer: "t1", address: "172.16.0.2/24", gateway: "172.16.0.1", table: 77},
			{name: "nogate", peer: "n1", address: "172.17.0.2/24"},
			{name: "noaddr", peer: "a1"},
			{name: "off", peer: "o1", down: true},
		} {
			if err := lay(w); err != nil {
				return err
			}
		}
		found, err := interfaces()
		if err != nil {
			return err
		}
		by := map[string]Interface{}
		for _, i := range found {
			by[i.Name] = i
		}
		for _, c := range []struct {
			name        string
			ipv4, ipv6  Verdict
			text, route string
			table       int
		}{
			{name: "home", ipv4: Yes, ipv6: No, text: "leaves as 192.168.1.2", route: "192.168.1.1", table: 254},
			{name: "lte", ipv4: Yes, ipv6: No, text: "leaves as 10.64.0.2", route: "10.64.0.1", table: 254},
			{name: "dsl6", ipv4: No, ipv6: Yes, text: "no IPv4 address", route: "2001:db8:7::1", table: 254},
			{name: "table", ipv4: No, ipv6: No, text: "no IPv4 route out", route: "172.16.0.1", table: 77},
			{name: "nogate", ipv4: No, ipv6: No, text: "no IPv4 route out"},
			{name: "noaddr", ipv4: No, ipv6: No, text: "no IPv4 address"},
			{name: "off", ipv4: No, ipv6: No, text: "the interface is down"},
		} {
			i, ok := by[c.name]
			if !ok {
				t.Errorf("%s is missing", c.name)
				continue
			}
			if i.IPv4.Verdict != c.ipv4 || i.IPv6.Verdict != c.ipv6 || !strings.HasPrefix(i.IPv4.What, c.text) {
				t.Errorf("%s: IPv4 %+v, IPv6 %+v", c.name, i.IPv4, i.IPv6)
			}
			if c.route == "" && len(i.Defaults) > 0 || c.route != "" && (len(i.Defaults) != 1 || i.Defaults[0].Via != c.route || i.Defaults[0].Table != c.table) {
				t.Errorf("%s: default routes %+v", c.name, i.Defaults)
			}
		}
		r := pathsCheck(waysOut(found))
		names := strings.Split(strings.TrimPrefix(r.What, "3 ways out: "), ", ")
		if slices.Sort(names); r.Verdict != Yes || list(names) != "dsl6, home, lte" {
			t.Errorf("paths: %+v", r)
		}
		return nil
	})
}

// A rule that looks a source address up in a table of its own makes that table's route count.
func TestRuleLeadsToTable(t *testing.T) {
	inWorld(t, func() error {
		if err := lay(wire{name: "table", peer: "t1", address: "172.16.0.2/24", gateway: "172.16.0.1", table: 77}); err != nil {
			return err
		}
		rule := netlink.NewRule()
		rule.Src = &net.IPNet{IP: net.IPv4(172, 16, 0, 2).To4(), Mask: net.CIDRMask(32, 32)}
		rule.Table = 77
		if err := netlink.RuleAdd(rule); err != nil {
			return err
		}
		found, err := interfaces()
		if err != nil {
			return err
		}
		for _, i := range found {
			if i.Name == "table" && i.IPv4.Verdict != Yes {
				t.Errorf("%+v", i.IPv4)
			}
		}
		return nil
	})
}

func TestStrictReversePath(t *testing.T) {
	inWorld(t, func() error {
		for _, w := range []wire{
			{name: "home", peer: "h1", address: "192.168.1.2/24", gateway: "192.168.1.1", metric: 100},
			{name: "lte", peer: "l1", address: "10.64.0.2/24", gateway: "10.64.0.1", metric: 200},
		} {
			if err := lay(w); err != nil {
				return err
			}
		}
		// /proc/sys/net shows the namespace of the thread that opens it.
		for file, value := range map[string]string{ipv4Conf("all"): "0", ipv4Conf("home"): "1", ipv4Conf("lte"): "1"} {
			if err := os.WriteFile(file, []byte(value), 0); err != nil {
				return err
			}
		}
		found, err := interfaces()
		if err != nil {
			return err
		}
		for _, i := range found {
			switch i.Name {
			case "home":
				if i.IPv4.Verdict != Yes {
					t.Errorf("home: %+v", i.IPv4)
				}
			case "lte":
				if i.IPv4.Verdict != Partly || !strings.Contains(i.IPv4.Hint, "net.ipv4.conf.lte.rp_filter=2") {
					t.Errorf("lte: %+v", i.IPv4)
				}
			}
		}
		return nil
	})
}

func TestNothingIsLeft(t *testing.T) {
	inWorld(t, func() error {
		before, err := netlink.LinkList()
		if err != nil {
			return err
		}
		if _, err := Examine(); err != nil {
			return err
		}
		after, err := netlink.LinkList()
		if err != nil {
			return err
		}
		if len(before) != len(after) {
			t.Errorf("%d links before, %d after", len(before), len(after))
		}
		return nil
	})
}

func TestPathsAndObservers(t *testing.T) {
	out := func(name, via string) Interface {
		return Interface{Name: name, IPv4: Result{Verdict: Yes}, Defaults: []Route{{Family: "IPv4", Via: via, Table: 254}}}
	}
	for _, c := range []struct {
		name             string
		all              []Interface
		paths, observers Verdict
	}{
		{"none", nil, No, Unknown},
		{"one", []Interface{out("a", "192.0.2.1")}, Partly, Unknown},
		{"two", []Interface{out("a", "192.0.2.1"), out("b", "198.51.100.1")}, Yes, Yes},
		{"one router", []Interface{out("a", "192.0.2.1"), out("b", "192.0.2.1")}, Yes, Partly},
		{"link-local", []Interface{out("a", "fe80::1"), out("b", "fe80::1")}, Yes, Yes},
	} {
		if p, o := pathsCheck(waysOut(c.all)).Verdict, observersCheck(waysOut(c.all)).Verdict; p != c.paths || o != c.observers {
			t.Errorf("%s: paths %s, observers %s", c.name, p, o)
		}
	}
}

func TestBackendsHere(t *testing.T) {
	admin := map[string]bool{"CAP_NET_ADMIN": true}
	for _, c := range []struct {
		name         string
		has          map[string]bool
		tun, program Verdict
		want         [4]Verdict // relay, wireguard, kernel, route
	}{
		{"a user", nil, Unknown, No, [4]Verdict{Yes, Partly, No, No}},
		{"root", admin, Yes, Yes, [4]Verdict{Yes, Yes, Yes, Yes}},
		{"without programs in the kernel", admin, Yes, No, [4]Verdict{Yes, Yes, No, Yes}},
		{"without TUN devices", admin, No, Yes, [4]Verdict{Yes, Partly, Yes, Yes}},
	} {
		for i, b := range backendsHere(c.has, c.tun, c.program) {
			if b.Here != c.want[i] || b.Here != Yes && b.Hint == "" {
				t.Errorf("%s: %s is %s (%s), want %s", c.name, b.Name, b.Here, b.Hint, c.want[i])
			}
		}
	}
}

// Each capability has a line of its own, and a hint that names no other.
func TestCapabilitiesOneALine(t *testing.T) {
	results := capabilities(map[string]bool{"CAP_NET_RAW": true}, nil)
	for i, r := range results {
		want := No
		if wanted[i].name == "CAP_NET_RAW" {
			want = Yes
		}
		if r.Verdict != want || strings.Count(r.What+r.Hint, "CAP_") != strings.Count(r.What+r.Hint, wanted[i].name) {
			t.Errorf("%+v", r)
		}
	}
	if r := untried("a TUN device", "CAP_NONE", "run as root or with CAP_NONE"); strings.Contains(r.What, "CAP_SYS_ADMIN") {
		t.Errorf("%+v", r)
	}
}
