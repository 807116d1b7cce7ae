package tunnel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/nft"
	"heddle/internal/nstest"
	"heddle/internal/polltest"
	"heddle/path"
)

func TestGuard(t *testing.T) {
	nstest.New(t).Enter(t)
	uplink := newWire(t, "up0", "192.0.2.2/24", "2001:db8::2/64")
	tunnel := newWire(t, "office", "10.66.0.2/24")
	defaultRoute(t, "up0")
	prefixes := func(all ...string) (out []netip.Prefix) {
		for _, p := range all {
			out = append(out, netip.MustParsePrefix(p))
		}
		return out
	}
	f := &firewall{Table: nft.Name("office"), Device: "office", Mark: guardMark, KillSwitch: true,
		Within: prefixes("10.0.0.0/8", "10.1.2.0/24", "172.16.0.1/32", "fd00::/8", "fc66::2/128"), Beside: prefixes("10.1.0.0/16", "fd00:1::/64")}
	if err := f.Apply(); err != nil {
		t.Fatal(err)
	}
	if err := otherKillSwitch("heddle_home"); err != nil {
		t.Errorf("a guard counts as a kill switch: %v", err)
	}
	for i, test := range []struct {
		to   string
		mark int
		out  *wire // nil where it must not leave
	}{
		{"10.2.0.1:53", 0, nil},
		{"10.1.2.1:53", 0, nil}, // inside a narrower route, but the tunnel's is narrower still
		{"172.16.0.1:53", 0, nil},
		{"[fd00:2::1]:53", 0, nil},
		{"10.1.0.1:53", 0, uplink},
		{"[fd00:1::1]:53", 0, uplink},
		{"11.0.0.1:53", 0, uplink},
		{"172.16.0.2:53", 0, uplink},
		{"[2001:db8:1::1]:53", 0, uplink},
		{"10.2.0.1:53", guardMark, uplink},
		{"10.66.0.1:53", 0, tunnel},
	} {
		text := fmt.Sprintf("case %d.", i)
		err := send(t, test.to, 0, test.mark, text)
		if test.out == nil && !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: sending gave %v, want EPERM", test.to, err)
		}
		if test.out != nil && (err != nil || !test.out.saw(text, patience)) {
			t.Errorf("%s with mark %d: did not leave (%v)", test.to, test.mark, err)
		}
	}
	checkPathOutside(t, uplink)
	checkErrorsOfAGoneAddress(t, uplink)
	if err := f.Undo(); err != nil || len(tables(t)) > 0 {
		t.Errorf("left: %v, %v", tables(t), err)
	}
}

// checkPathOutside sends as `heddle split` does over a path that the user chose: the guard refuses that too, and the error says so.
func checkPathOutside(t *testing.T, uplink *wire) {
	t.Helper()
	way, err := path.New(path.Spec{Name: "home", Kind: "if", Arg: "up0"}, path.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for to, refused := range map[string]bool{"10.2.0.1:53": true, "[fd00:2::1]:53": true, "11.0.0.1:53": false} {
		flow, err := path.Open(t.Context(), way, netip.MustParseAddrPort(to))
		if err != nil {
			t.Fatal(err)
		}
		_, err = flow.Send([][]byte{[]byte("by a path")})
		if said := err != nil && strings.Contains(err.Error(), "guard or kill switch of `heddle up`"); said != refused {
			t.Errorf("%s: %v", to, err)
		}
		flow.Close()
	}
	if !uplink.saw("by a path", patience) {
		t.Error("a packet to elsewhere did not leave")
	}
}

// checkErrorsOfAGoneAddress sends from an address that goes away. The kernel's error quotes the packet, and goes there.
func checkErrorsOfAGoneAddress(t *testing.T, uplink *wire) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	gone := &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("fc66::2/128")), Flags: unix.IFA_F_NODAD}
	if err := netlink.AddrAdd(lo, gone); err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: gone.IP}, &net.UDPAddr{IP: net.ParseIP("fd00:2::1"), Port: 53})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := netlink.AddrDel(lo, gone); err != nil {
		t.Fatal(err)
	}
	if _, err = conn.Write([]byte("from nowhere")); !errors.Is(err, unix.EPERM) {
		t.Errorf("sending from an address that is gone gave %v, want EPERM", err)
	}
	if err := send(t, "11.0.0.1:53", 0, 0, "after it"); err != nil {
		t.Fatal(err)
	}
	for seen := ""; !strings.Contains(seen, "after it"); {
		if seen = string(<-uplink.left); strings.Contains(seen, "from nowhere") {
			t.Errorf("left: %x", seen)
		}
	}
}

// inClear records what names an address inside the tunnel in clear and leaves by an access network: in an IP header, in the
// packet that an ICMP error quotes, or in an ARP request. A packet that comes in may be the router's late answer to an earlier one.
type inClear struct {
	*nstest.Tap
	mu    sync.Mutex
	found []string // device and packet
}

func (c *client) newInClear() *inClear {
	in := &inClear{}
	in.Tap = c.here.Tap(c.t, func(p nstest.Passed) {
		if !p.Outgoing {
			return
		}
		for _, inside := range [][]byte{{10, 99, 0, 1}, {10, 98, 0, 2}} {
			if bytes.Contains(p.Bytes, inside) {
				in.mu.Lock()
				in.found = append(in.found, fmt.Sprintf("%s: %x", p.Device, p.Bytes))
				in.mu.Unlock()
				return
			}
		}
	}, "p1", "p2", "p3")
	return in
}

// take returns what passed since the last call.
func (in *inClear) take() (found []string) {
	in.Drain()
	in.mu.Lock()
	defer in.mu.Unlock()
	found, in.found = in.found, nil
	return found
}

// program goes on connecting to an address inside the tunnel: by TCP and UDP, also with sockets bound to an uplink.
type program struct{ rounds atomic.Int64 }

func (c *client) startProgram() *program {
	p := &program{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- c.here.Run(func() error {
			for ctx.Err() == nil {
				for _, device := range []string{"", "p1", "p2"} {
					connect("tcp", "10.99.0.1:80", device)
					connect("udp", "10.99.0.1:53", device)
				}
				p.rounds.Add(1)
			}
			return nil
		})
	}()
	c.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Error(err)
		}
	})
	return p
}

func connect(network, to, device string) {
	dialer := net.Dialer{Timeout: 20 * time.Millisecond, Control: func(_, _ string, raw syscall.RawConn) (err error) {
		if device == "" {
			return nil
		}
		return errors.Join(raw.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), device) }), err)
	}}
	if conn, err := dialer.Dial(network, to); err == nil {
		_, _ = conn.Write([]byte("in clear"))
		conn.Close()
	}
}

// again waits until the program has tried everything several times more.
func (p *program) again(t *testing.T) {
	t.Helper()
	enough := p.rounds.Load() + 5
	polltest.Await(t, "the program tries again", func() bool { return p.rounds.Load() >= enough })
}

// watch starts a program. leaked counts its packets on the access networks since the last call. holds lets it try for a while
// and fails if there are any.
func (c *client) watch() (leaked func() int, holds func(when string)) {
	in, program := c.newInClear(), c.startProgram()
	leaked = func() int { return len(in.take()) }
	polltest.Await(c.t, "packets in clear without a tunnel", func() bool { return leaked() > 0 })
	return leaked, func(when string) {
		c.t.Helper()
		program.again(c.t)
		if seen := in.take(); len(seen) > 0 {
			c.t.Errorf("%s: %d packets of the program, the first on %s", when, len(seen), seen[0])
		}
	}
}

// A tunnel for some addresses lets no packet to them out from when its claim is printed: while it waits for its paths, while
// it is up, after a crash, and while the next start waits. `heddle status` and `heddle down` know what the crash left.
func TestGuardFromTheClaimToDown(t *testing.T) {
	c := newClient(t)
	text := c.text(c.conf)
	for old, new := range map[string]string{"0.0.0.0/0, ::/0": "10.99.0.0/24", "10.99.0.2/32": "10.98.0.2/32"} {
		text = strings.Replace(text, old, new, 1)
	}
	c.write(c.conf, text)
	before := machine(t)
	forward := func(value string) { c.router.Do(t, func() error { return nstest.Set("ipv4/ip_forward", value) }) }
	leaked, holds := c.watch()

	const claimed = "leave by the tunnel or not at all"
	forward("0")
	r := c.start(claimed)
	leaked() // from before the claim
	polltest.Await(t, "it waits for its paths", func() bool { return strings.Contains(r.out.String(), "required paths answer") })
	holds("while it waits for its paths")
	forward("1")
	polltest.Await(t, isUp, func() bool { return strings.Contains(r.out.String(), isUp) })
	if page, err := c.fetch(); page != "inside" {
		t.Errorf("curl got %q, %v", page, err)
	}
	holds("while it is up")
	conn, err := net.Dial("tcp", "10.99.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = r.signal(t, syscall.SIGKILL)
	// The kernel sends this again and again, from an address that is gone.
	if _, err := conn.Write([]byte("in clear")); err != nil {
		t.Errorf("the connection of before the crash: %v", err)
	}
	holds("after SIGKILL")

	for _, args := range [][]string{{"status"}, {"status", c.name}} {
		if out, err := c.run(args...); err != nil || !strings.Contains(out, "`heddle down "+c.name+"`") || !strings.Contains(out, "guard: packets to 10.99.0.0/24") {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
	forward("0")
	r = c.start("required paths answer")
	holds("while the next start waits")
	_ = r.signal(t, syscall.SIGKILL)
	holds("after the second SIGKILL")
	if out, err := c.run("down", c.name); err != nil || !strings.Contains(out, "a crash left this, taken back: nft add table") {
		t.Errorf("down: %v, %s", err, out)
	}
	c.restored(before, "up N\npredown N\npostdown N\n")
	polltest.Await(t, "packets in clear after `heddle down`", func() bool { return leaked() > 0 })
	if out, err := c.run("status"); err != nil || strings.Contains(out, c.name) {
		t.Errorf("status after down: %v, %s", err, out)
	}
}

// A crash of a tunnel without a guard leaves nothing but its journal, and `heddle down` says so.
func TestDownAfterACrashThatLeftNothing(t *testing.T) {
	c := newClient(t)
	c.write(c.conf, strings.Replace(strings.Replace(c.text(c.conf), "0.0.0.0/0, ::/0", "10.99.0.0/24", 1), "DNS = 10.99.0.1\n", "", 1))
	before := machine(t)
	_ = c.start(isUp, "--kill-switch=false", "--no-hooks").signal(t, syscall.SIGKILL)
	if out, err := c.run("down", c.name); err != nil || !strings.Contains(out, c.name+" is down") {
		t.Errorf("down: %v, %s", err, out)
	}
	c.restored(before, "")
}
