package tunnel

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"heddle/internal/errhint"
	"heddle/internal/iprule"
	"heddle/internal/nft"
	"heddle/internal/nstest"
	"heddle/path"
)

// planLines is the plan with the parts that a case does not look at left out.
func planLines(t *testing.T, o Options) []string {
	t.Helper()
	p, err := makePlan(&o)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, c := range append(p.before, p.after...) {
		lines = append(lines, c.String())
	}
	return lines
}

func TestPlan(t *testing.T) {
	nstest.New(t).Enter(t)
	newWire(t, "up0", "192.0.2.2/24", "10.9.0.2/16", "fd00:9::2/64")
	interfaceWith := func(line string) string { return strings.Replace(fullTunnel, "[Peer]", line+"\n[Peer]", 1) }
	allowing := func(ips string) string { return strings.Replace(fullTunnel, "0.0.0.0/0, ::/0", ips, 1) }
	for name, test := range map[string]struct {
		text       string
		has, lacks []string // beginnings of lines
	}{
		"full": {fullTunnel, []string{
			"nft add table inet heddle_office (kill switch: only lo, office, mark 51820",
			"ip tuntap add mode tun dev office", "ip -4 address add 10.0.0.2/24 dev office", "ip -6 address add fd00::2/64 dev office nodad",
			"ip link set mtu 1420 up dev office", "ip -4 route add 0.0.0.0/0 dev office table 51820", "ip -6 route add ::/0 dev office table 51820",
			"ip -4 rule add priority 32765 not fwmark 51820 table 51820", "ip -4 rule add priority 32764 table 254 suppress_prefixlength 0",
			"ip -6 rule add priority 32765 not fwmark 51820 table 51820", "sysctl net.ipv4.conf.all.src_valid_mark=1"}, []string{"write"}},
		"IPv4 only": {allowing("0.0.0.0/0"), []string{"nft", "ip -4 rule"}, []string{"ip -6 rule", "ip -6 route"}},
		"IPv6 only": {allowing("::/0"), []string{"nft", "ip -6 rule"}, []string{"ip -4 rule", "sysctl"}},
		"halves": {allowing("0.0.0.0/1, 128.0.0.0/1"), []string{"nft", "ip -4 route add 0.0.0.0/1 dev office table 51820",
			"ip -4 route add 128.0.0.0/1 dev office table 51820", "ip -4 rule"}, []string{"ip -6 rule"}},
		"one half": {allowing("0.0.0.0/1"), []string{"nft add table inet heddle_office (guard: packets to 0.0.0.0/1, 10.0.0.2/32, fd00::2/128 leave by office or not at all; " +
			"not to 10.9.0.0/16, which", "ip -4 route add 0.0.0.0/1 dev office"}, []string{"ip -4 rule"}},
		"some": {allowing("10.0.0.0/8, 10.1.0.0/16"), []string{"ip -4 route add 10.1.0.0/16 dev office", "ip -4 route add 10.0.0.0/8 dev office"},
			[]string{"ip -4 rule", "sysctl"}},
		"some of IPv6": {allowing("fd00::/8"), []string{"nft add table inet heddle_office (guard: packets to fd00::/8, 10.0.0.2/32, fd00::2/128 leave by office or not at all; " +
			"not to fd00:9::/64, which"}, []string{"ip -6 rule"}},
		"table off":    {interfaceWith("Table = off"), []string{"ip tuntap"}, []string{"nft", "ip -4 route", "ip -4 rule"}},
		"table number": {interfaceWith("Table = 77"), []string{"ip -4 route add 0.0.0.0/0 dev office table 77"}, []string{"nft", "ip -4 rule"}},
		"mark": {interfaceWith("FwMark = 0x10"), []string{"ip -4 rule add priority 32765 not fwmark 16 table 16",
			"ip -4 route add 0.0.0.0/0 dev office table 16"}, nil},
		"mtu":   {interfaceWith("MTU = 1300"), []string{"ip link set mtu 1300 up"}, nil},
		"dns":   {interfaceWith("DNS = 10.0.0.1, corp.example"), []string{"write "}, nil},
		"hooks": {interfaceWith("PostUp = up %i\nPostUp = more\nPreDown = down %i"), []string{"PostUp: up office; more", "PreDown: down office (at the end)"}, nil},
	} {
		o := options(t, test.text)
		o.ResolvConf = filepath.Join(t.TempDir(), "resolv.conf")
		t.Setenv("PATH", t.TempDir()) // neither resolvconf nor resolvectl
		lines := planLines(t, o)
		starts := func(beginning string) bool {
			return slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, beginning) })
		}
		for _, want := range test.has {
			if !starts(want) {
				t.Errorf("%s: no line begins with %q in\n%s", name, want, strings.Join(lines, "\n"))
			}
		}
		for _, unwanted := range test.lacks {
			if starts(unwanted) {
				t.Errorf("%s: a line begins with %q in\n%s", name, unwanted, strings.Join(lines, "\n"))
			}
		}
	}
}

func TestPlanSwitches(t *testing.T) {
	nstest.New(t).Enter(t)
	newWire(t, "up0", "192.0.2.2/24")
	o := options(t, strings.Replace(fullTunnel, "[Peer]", "PostUp = x\nPostDown = y\n[Peer]", 1))
	o.KillSwitch, o.Hooks, o.MTU = false, false, 1290
	text := strings.Join(planLines(t, o), "\n")
	some := options(t, strings.Replace(fullTunnel, "0.0.0.0/0, ::/0", "10.0.0.0/8", 1))
	some.KillSwitch = false
	text += strings.Join(planLines(t, some), "\n")
	if strings.Contains(text, "kill switch") || strings.Contains(text, "guard") || strings.Contains(text, "PostUp") || strings.Contains(text, "PostDown") || !strings.Contains(text, "mtu 1290") {
		t.Errorf("got\n%s", text)
	}
}

// Rules of others are kept in front of, and their tables left alone.
func TestPlanBesideOthers(t *testing.T) {
	nstest.New(t).Enter(t)
	newWire(t, "up0", "192.0.2.2/24")
	other := &rule{Priority: 1000, Mark: 9, Table: iprule.WGQuick}
	if err := other.Apply(); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(planLines(t, options(t, fullTunnel)), "\n")
	for _, want := range []string{"ip -4 rule add priority 999 not fwmark 51821 table 51821", "ip -4 rule add priority 998 table 254 suppress_prefixlength 0",
		"ip -6 rule add priority 32765 not fwmark 51821 table 51821"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestPlanErrors(t *testing.T) {
	nstest.New(t).Enter(t)
	newWire(t, "up0", "192.0.2.2/24")
	for name, test := range map[string]struct {
		edit func(*Options)
		want string
	}{
		"long name":   {func(o *Options) { o.Name = "a-name-of-16-byte" }, "at most 15 bytes"},
		"device":      {func(o *Options) { o.Name = "up0" }, "there is one of this name already"},
		"small MTU":   {func(o *Options) { o.MTU = 1000 }, "the tunnel needs 1280"},
		"large MTU":   {func(o *Options) { o.MTU = 70000 }, "the tunnel needs 1280"},
		"path kind":   {func(o *Options) { o.Split.Via = []path.Spec{{Name: "a", Kind: "pigeon", Arg: "x"}} }, "pigeon"},
		"narrow path": {func(o *Options) { narrow(t); o.Split.Via = []path.Spec{{Name: "a", Kind: "if", Arg: "narrow0"}} }, "too few for a tunnel"},
	} {
		o := options(t, fullTunnel)
		test.edit(&o)
		_, err := makePlan(&o)
		if err == nil || !strings.Contains(err.Error(), test.want) || errhint.Of(err) == "" {
			t.Errorf("%s: got %v, want %q with a hint", name, err, test.want)
		}
	}
}

func narrow(t *testing.T) {
	newWire(t, "narrow0", "198.51.100.2/24")
	if err := (&linkUp{Device: "narrow0", MTU: 1300}).Apply(); err != nil {
		t.Fatal(err)
	}
}

func TestTableName(t *testing.T) {
	names := []string{"office", "office-2", "office_2", "office.2", "office_2d2", "a=b", "a+b"}
	seen := map[string]string{}
	for _, name := range names {
		table := nft.Name(name)
		if other, taken := seen[table]; taken {
			t.Errorf("%s and %s share the table %s", name, other, table)
		}
		seen[table] = name
		if strings.Trim(table, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			t.Errorf("%s: nft cannot read %q", name, table)
		}
	}
}

func TestHooks(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "out")
	up := &hooks{Device: "office", When: "PostUp", Commands: []string{"echo 1 %i >> " + file, "false", "echo never >> " + file}}
	if err := up.Apply(); err == nil || !strings.Contains(err.Error(), "status 1") {
		t.Errorf("got %v, want the status of the command that failed", err)
	}
	down := &hooks{Device: "office", When: "PostDown", AtEnd: true, Commands: []string{"false", "echo 2 %i >> " + file}}
	for _, step := range []func() error{up.Undo, down.Apply, down.Undo} {
		if err := step(); err != nil {
			t.Error(err)
		}
	}
	if got, _ := os.ReadFile(file); string(got) != "1 office\n2 office\n" {
		t.Errorf("got %q", got)
	}
}

// The kernel refuses IPv6 addresses and routes where IPv6 is off, even to root. The tunnel is made without them, and all else of
// it is as the file says.
func TestPlanWithoutIPv6(t *testing.T) {
	nstest.New(t).Enter(t)
	newWire(t, "up0", "192.0.2.2/24")
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	o := options(t, fullTunnel)
	o.ResolvConf = filepath.Join(t.TempDir(), "resolv.conf")
	p, err := makePlan(&o)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.warnings) != 1 || !strings.Contains(p.warnings[0], "without fd00::2/64, ::/0 of the file") {
		t.Errorf("warnings %q", p.warnings)
	}
	changes := append(p.before, p.after...)
	for _, c := range changes {
		if strings.HasPrefix(c.String(), "ip -6") {
			t.Errorf("planned: %s", c)
		}
	}
	if dev := applySome(t, o, changes); dev != nil {
		dev.Close()
	}
	if _, err := Clean(o.Dir, o.Name, false); err != nil {
		t.Error(err)
	}

	o = options(t, strings.Replace(fullTunnel, "0.0.0.0/0, ::/0", "10.0.0.0/8, ::/0", 1))
	if text := strings.Join(planLines(t, o), "\n"); !strings.Contains(text, "kill switch") {
		t.Errorf("the kill switch of ::/0 is gone:\n%s", text)
	}
	o = options(t, strings.Replace(fullTunnel, "0.0.0.0/0, ::/0", "::/0", 1))
	if _, err := makePlan(&o); err == nil || !strings.Contains(err.Error(), "IPv6 is off on this machine") {
		t.Errorf("nothing is left of the file: %v", err)
	}
}
