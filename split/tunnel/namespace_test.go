package tunnel

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/tun"

	"heddle/internal/nft"
	"heddle/internal/nstest"
	"heddle/internal/polltest"
)

// patience is how long what must come is waited for: longer than a busy machine takes.
const patience = 30 * time.Second

// wire is a TUN device whose other end the test reads: what arrives there has left the machine.
type wire struct {
	dev  tun.Device
	left chan []byte
}

func newWire(t *testing.T, name string, addresses ...string) *wire {
	t.Helper()
	dev, err := tun.CreateTUN(name, 1500)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range linkChanges(name, 1500, addresses...) {
		if err := c.Apply(); err != nil {
			t.Fatal(c, err)
		}
	}
	for _, a := range addresses {
		ip := netip.MustParsePrefix(a).Addr()
		// Of IPv6 the kernel makes the local route later, in a thread of its own.
		polltest.Await(t, "the local route to "+ip.String(), func() bool {
			routes, err := netlink.RouteGet(ip.AsSlice())
			return err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL
		})
	}
	w := &wire{dev: dev, left: make(chan []byte, 1024)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		bufs, sizes := make([][]byte, dev.BatchSize()), make([]int, dev.BatchSize())
		for i := range bufs {
			bufs[i] = make([]byte, 65600)
		}
		for {
			n, err := dev.Read(bufs, sizes, 16)
			if err != nil {
				return
			}
			for i := range n {
				w.left <- slices.Clone(bufs[i][16 : 16+sizes[i]])
			}
		}
	}()
	t.Cleanup(func() { dev.Close(); <-done })
	return w
}

func linkChanges(name string, mtu int, addresses ...string) []change {
	var changes []change
	for _, a := range addresses {
		changes = append(changes, &address{Device: name, Prefix: netip.MustParsePrefix(a)})
	}
	return append(changes, &linkUp{Device: name, MTU: mtu})
}

// saw reports whether a packet with the given text left, and forgets what left before it.
func (w *wire) saw(text string, patience time.Duration) bool {
	timeout := time.After(patience)
	for {
		select {
		case p := <-w.left:
			if strings.Contains(string(p), text) {
				return true
			}
		case <-timeout:
			return false
		}
	}
}

// send sends a datagram from port from (0 for any) with a mark (0 for none).
func send(t *testing.T, to string, from int, mark int, text string) error {
	t.Helper()
	var dialer net.Dialer
	if from != 0 {
		dialer.LocalAddr = &net.UDPAddr{Port: from}
	}
	c, err := dialer.Dial("udp", to)
	if err != nil {
		return err
	}
	defer c.Close()
	if mark != 0 {
		raw, err := c.(*net.UDPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if ctlErr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, mark) }); ctlErr != nil || err != nil {
			t.Fatal(ctlErr, err)
		}
	}
	_, err = c.Write([]byte(text))
	return err
}

func defaultRoute(t *testing.T, device string) {
	t.Helper()
	for _, dst := range []string{"0.0.0.0/0", "::/0"} {
		if err := (&route{Device: device, Destination: netip.MustParsePrefix(dst), Table: mainTable}).Apply(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestKillSwitch(t *testing.T) {
	nstest.New(t).Enter(t)
	uplink := newWire(t, "up0", "192.0.2.2/24", "2001:db8::2/64")
	tunnel := newWire(t, "office", "10.0.0.2/24")
	defaultRoute(t, "up0")
	const mark = 51820
	f := &firewall{Table: nft.Name("office"), Device: "office", Mark: mark, KillSwitch: true, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")}}
	if err := send(t, "203.0.113.1:53", 0, 0, "before"); err != nil || !uplink.saw("before", patience) {
		t.Fatal("nothing leaves even without a kill switch", err)
	}
	if err := f.Apply(); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, to   string
		from, mark int
		out        *wire // nil where it must not leave
	}{
		{"another host", "203.0.113.1:53", 0, 0, nil},
		{"the local network", "192.0.2.9:53", 0, 0, nil},
		{"IPv6, while the tunnel has IPv4 only", "[2001:db8:1::1]:53", 0, 0, nil},
		{"another mark", "203.0.113.1:53", 0, mark + 1, nil},
		{"DHCP from another port", "192.0.2.1:67", 1068, 0, nil},
		{"DHCPv6 to another port", "[2001:db8::1]:548", 546, 0, nil},
		{"the mark", "203.0.113.1:53", 0, mark, uplink},
		{"the mark over IPv6", "[2001:db8:1::1]:53", 0, mark, uplink},
		{"the tunnel", "10.0.0.1:53", 0, 0, tunnel},
		{"DHCP", "192.0.2.1:67", 68, 0, uplink},
		{"DHCPv6", "[2001:db8::1]:547", 546, 0, uplink},
	} {
		err := send(t, test.to, test.from, test.mark, "case "+test.name)
		if test.out != nil {
			if err != nil || !test.out.saw("case "+test.name, patience) {
				t.Errorf("%s: did not leave (%v)", test.name, err)
			}
			continue
		}
		if !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: sending gave %v, want EPERM", test.name, err)
		}
	}
	// What was refused cannot overtake what is sent after it: once the last marked packet is seen, all are.
	if err := send(t, "203.0.113.1:53", 0, mark, "the end"); err != nil {
		t.Fatal(err)
	}
	for seen := ""; !strings.Contains(seen, "the end"); {
		seen = string(<-uplink.left)
		for _, refused := range []string{"another", "local network", "IPv6, while"} {
			if strings.Contains(seen, refused) {
				t.Errorf("a refused packet left: %q", seen)
			}
		}
	}
	checkOtherProcess(t)
	checkLocal(t)
	checkUndo(t, f)
	if err := send(t, "203.0.113.1:53", 0, 0, "after"); err != nil || !uplink.saw("after", patience) {
		t.Errorf("nothing leaves after the kill switch is gone: %v", err)
	}
}

// checkOtherProcess sends from a process that is not ours; it inherits the thread's namespace.
func checkOtherProcess(t *testing.T) {
	t.Helper()
	out, err := exec.Command("bash", "-c", "echo other process > /dev/udp/203.0.113.1/53").CombinedOutput()
	if err == nil {
		t.Errorf("another process could send: %s", out)
	}
}

// checkLocal talks to the machine itself, by its loopback and by its uplink's address.
func checkLocal(t *testing.T) {
	t.Helper()
	for _, ip := range []string{"127.0.0.1", "192.0.2.2", "::1", "2001:db8::2"} {
		l, err := net.ListenPacket("udp", net.JoinHostPort(ip, "0"))
		if err != nil {
			t.Fatal(err)
		}
		if err := send(t, l.LocalAddr().String(), 0, 0, "local"); err != nil {
			t.Errorf("%s: %v", ip, err)
		}
		_ = l.SetReadDeadline(time.Now().Add(patience))
		if _, _, err := l.ReadFrom(make([]byte, 10)); err != nil {
			t.Errorf("%s: %v", ip, err)
		}
		l.Close()
	}
}

func checkUndo(t *testing.T, f *firewall) {
	t.Helper()
	if err := otherKillSwitch("heddle_home"); err == nil {
		t.Error("the kill switch of office was not noticed by home")
	}
	if err := otherKillSwitch(f.Table); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := f.Undo(); err != nil {
			t.Error(err)
		}
	}
	if tables := tables(t); len(tables) != 0 {
		t.Errorf("left: %v", tables)
	}
	if err := otherKillSwitch("heddle_home"); err != nil {
		t.Error(err)
	}
}

// tables lists the nftables tables of tunnels.
func tables(t *testing.T) []string {
	t.Helper()
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	list, err := conn.ListTables()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, table := range list {
		if table.Name != nft.Name("late", "answers") { // whose entries end by themselves
			names = append(names, table.Name)
		}
	}
	return names
}

// machine is what a tunnel changes: rules, routes, the setting and the firewall.
func machine(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rules, err := netlink.RuleList(family)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rules {
			b.WriteString(r.String() + "\n")
		}
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range routes {
			// These come by themselves once a device's other end is up.
			if r.Dst != nil && (r.Dst.IP.IsLinkLocalUnicast() || r.Dst.IP.IsMulticast()) {
				continue
			}
			b.WriteString(r.String() + "\n")
		}
	}
	mark, err := os.ReadFile("/proc/sys/net/ipv4/conf/all/src_valid_mark") // of the thread's namespace
	if err != nil {
		t.Fatal(err)
	}
	b.Write(mark)
	b.WriteString(strings.Join(tables(t), " "))
	return b.String()
}
