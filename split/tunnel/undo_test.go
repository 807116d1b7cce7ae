package tunnel

import (
	"net"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/tun"

	"heddle/internal/iprule"
	"heddle/internal/nft"
	"heddle/internal/nstest"
	"heddle/path"
	"heddle/path/wgconf"
	"heddle/schedule"
	"heddle/split"
)

const fullTunnel = `[Interface]
PrivateKey = ERERERERERERERERERERERERERERERERERERERERERE=
Address = 10.0.0.2/24, fd00::2/64
[Peer]
PublicKey = IiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiI=
AllowedIPs = 0.0.0.0/0, ::/0
Endpoint = 192.0.2.1:51820
`

func parse(t *testing.T, text string) *wgconf.Config {
	t.Helper()
	c, err := wgconf.Parse("test.conf", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func options(t *testing.T, text string) Options {
	return Options{Name: "office", Config: parse(t, text), KillSwitch: true, Hooks: true, Dir: t.TempDir(),
		Split: split.Options{Via: []path.Spec{{Name: "a", Kind: "if", Arg: "up0"}}, Schedule: schedule.Config{Name: "uniform"}}}
}

// Each prefix of the changes is what a crash at that moment leaves.
func TestUndoAtEachStep(t *testing.T) {
	nstest.New(t).Enter(t)
	newWire(t, "up0", "192.0.2.2/24")
	before := machine(t)
	o := options(t, fullTunnel)
	o.ResolvConf = t.TempDir() + "/resolv.conf"
	total := -1
	for steps := 0; total < 0 || steps <= total; steps++ {
		p, err := makePlan(&o)
		if err != nil {
			t.Fatal(err)
		}
		changes := append(p.before, p.after...)
		total = len(changes)
		dev := applySome(t, o, changes[:steps])
		if steps == total {
			checkRoutedIn(t)
		}
		// The crash: the kernel takes the device.
		if dev != nil {
			dev.Close()
		}
		for range 2 {
			if _, err := Clean(o.Dir, o.Name, false); err != nil {
				t.Fatal(err)
			}
			if after := machine(t); after != before {
				t.Fatalf("after %d of %d changes:\n%s\nwant\n%s", steps, total, after, before)
			}
		}
	}
}

func applySome(t *testing.T, o Options, changes []change) (dev tun.Device) {
	t.Helper()
	j, err := openJournal(o.Dir, o.Name)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		if d, ok := c.(*deviceChange); ok {
			d.create = func() (err error) { dev, err = tun.CreateTUN(o.Name, 1420); return err }
		}
		if err := j.Do(c); err != nil {
			t.Fatal(err)
		}
	}
	return dev
}

// checkRoutedIn asks the kernel where packets go: into the tunnel without the mark, by the uplink with it or to the
// local network.
func checkRoutedIn(t *testing.T) {
	t.Helper()
	office, err := netlink.LinkByName("office")
	if err != nil {
		t.Fatal(err)
	}
	uplink, err := netlink.LinkByName("up0")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		to   string
		mark uint32
		want int
	}{
		{"203.0.113.1", 0, office.Attrs().Index},
		{"2001:db8:1::1", 0, office.Attrs().Index},
		{"192.0.2.9", 0, uplink.Attrs().Index},
	} {
		routes, err := netlink.RouteGetWithOptions(net.ParseIP(test.to), &netlink.RouteGetOptions{Mark: test.mark})
		if err != nil || len(routes) == 0 || routes[0].LinkIndex != test.want {
			t.Errorf("%s goes by %v (%v), want device %d", test.to, routes, err, test.want)
		}
	}
	// There is no default route but the tunnel's, so marked packets have no way: they never loop into the tunnel.
	if routes, err := netlink.RouteGetWithOptions(net.ParseIP("203.0.113.1"), &netlink.RouteGetOptions{Mark: iprule.WGQuick}); err == nil {
		t.Errorf("a marked packet goes by %v", routes)
	}
}

// The kill switch stays through each crash and each start that fails, also where it was put up anew in between.
func TestKillSwitchStaysThroughCrashes(t *testing.T) {
	nstest.New(t).Enter(t)
	o := options(t, fullTunnel)
	guard := func() change { return &firewall{Table: nft.Name(o.Name), Device: o.Name, Mark: 5, KillSwitch: true} }
	up := func(when string, want bool) {
		t.Helper()
		if got := slices.Contains(tables(t), nft.Name(o.Name)); got != want {
			t.Errorf("%s: the kill switch is up: %v", when, got)
		}
	}
	other := &rule{Priority: 1000, Mark: 9, Table: iprule.WGQuick}
	for range 3 {
		if _, err := Clean(o.Dir, o.Name, true); err != nil {
			t.Fatal(err)
		}
		applySome(t, o, []change{guard(), other})
		up("after a crash", true)
	}
	if _, err := Clean(o.Dir, o.Name, true); err != nil {
		t.Fatal(err)
	}
	up("before the next start", true)
	failing := &Tunnel{o: o, plan: &plan{guard: &firewall{}}}
	if err := failing.openJournal(); err != nil {
		t.Fatal(err)
	}
	if err := failing.journal.Do(guard()); err != nil {
		t.Fatal(err)
	}
	if err := failing.close(failing.left); err != nil {
		t.Fatal(err)
	}
	up("after a start that failed", true)
	if _, err := Clean(o.Dir, o.Name, false); err != nil {
		t.Fatal(err)
	}
	up("cleaned", false)
}
