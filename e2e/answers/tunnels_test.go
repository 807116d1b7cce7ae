package answers

import (
	"io"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"heddle/internal/polltest"
	"heddle/internal/socks5"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// behind are the addresses of the WireGuard server inside the tunnel.
var behind = []netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("fd09::1")}

// proxyAt is where a tunnel without rights serves.
var proxyAt = netip.MustParseAddrPort("127.0.0.1:1080")

// newTunnel is a session of `heddle up` over both chosen networks. Programs send through it by UDP, and download by TCP, with IPv4
// and IPv6.
func newTunnel(t *testing.T, allowed []netip.Prefix, c setting) *datagrams {
	t.Helper()
	d := &datagrams{world: newWorld(t, lab.ThreeWaysUnlimited()), setting: c, below: c.before == nil}
	file := filepath.Join(t.TempDir(), "vpn.conf")
	if _, err := peer.WireGuardServer(t.Context(), d.Host("server"), peer.WireGuardConfig{
		Endpoint: c.at(51820), Allowed: allowed, File: file}); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"up", file, "--schedule", "round-robin", "--every", "20ms"}, d.paths(c)...)
	if d.below {
		d.heddle = d.start(c.before, "is up: device", args...)
	} else {
		d.heddle = d.start(c.before, "is up: SOCKS5", append(args, "--socks", proxyAt.String())...)
	}
	var exits []func()
	for _, a := range behind {
		exits = append(exits, d.sends(netip.AddrPortFrom(a, 5555)), d.downloads(netip.AddrPortFrom(a, 8080)))
	}
	d.exit = func() {
		for _, exit := range exits {
			exit()
		}
	}
	return d
}

// sends starts a program that sends through the tunnel, to a server that goes on sending.
func (d *datagrams) sends(to netip.AddrPort) (exit func()) {
	d.t.Helper()
	server := d.newChatter(to)
	socket := d.udp(to)
	if !d.below {
		socket.Close()
		socket = d.udp(proxyAt)
		socket.control, socket.to = d.proxy(socks5.UDPAssociate, socks5.Target{Addr: netip.IPv4Unspecified()})
		socket.header = socks5.AppendDatagramHeader(nil, to)
	}
	exit = d.program(socket)
	polltest.Await(d.t, "the server hears the program", func() bool { return len(server.all()) > 0 })
	return exit
}

// downloads starts a program with a download through the tunnel that does not end.
func (d *datagrams) downloads(from netip.AddrPort) (exit func()) {
	d.t.Helper()
	d.endless(from.String())
	var c net.Conn
	if d.below {
		d.do("client", func() (err error) {
			c, err = net.Dial("tcp", from.String())
			return err
		})
	} else {
		c, _ = d.proxy(socks5.Connect, socks5.Target{Addr: from.Addr(), Port: from.Port()})
	}
	exit = func() { c.Close() }
	d.t.Cleanup(exit)
	if _, err := io.CopyN(io.Discard, c, 1<<18); err != nil {
		d.t.Fatalf("%v\n%s", err, d.heddle.Log())
	}
	go func() { _, _ = io.Copy(io.Discard, c) }()
	return exit
}

// proxy makes a request to the tunnel's proxy.
func (d *datagrams) proxy(command byte, to socks5.Target) (c net.Conn, bound netip.AddrPort) {
	d.t.Helper()
	d.do("client", func() (err error) {
		if c, err = net.Dial("tcp", proxyAt.String()); err != nil {
			return err
		}
		if err = socks5.Greet(c, nil); err != nil {
			return err
		}
		bound, err = socks5.Request(c, command, to)
		return err
	})
	return c, bound
}

// tunnelEvents are those of all sessions of datagrams, and the end of a guard that outlived a crash, which is the same for each
// kind of path.
func tunnelEvents(kind string) map[string]func(*datagrams) {
	if kind != "if" {
		return events
	}
	all := maps.Clone(events)
	all["SIGKILL and down"] = func(d *datagrams) {
		events["SIGKILL"](d)
		left := "heddle-keeper"
		if d.below {
			left = "ICMP errors and TCP resets to " + d.server().String()
			d.Run("client", "down", "vpn")
		}
		if out := d.Run("client", "status"); !strings.Contains(out, left) {
			d.t.Errorf("no %q in the status:\n%s", left, out)
		}
	}
	return all
}

var someAddresses = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24"), netip.MustParsePrefix("fd09::/64")}

// tunnels are sessions of `heddle up` by name.
var tunnels = map[string]struct {
	allowed []netip.Prefix // nil for all addresses
	setting
}{
	"all addresses":       {nil, setting{kind: "if"}},
	"some addresses":      {someAddresses, setting{kind: "if"}},
	"without rights":      {nil, withoutRights},
	"IPv6":                {nil, setting{kind: "if", v6: true}},
	"IPv6 without rights": {nil, setting{kind: "if", v6: true, before: unprivileged}},
	"masque":              {someAddresses, setting{kind: "masque"}},
	"node":                {someAddresses, setting{kind: "node"}},
}

func TestTunnels(t *testing.T) {
	for name, c := range tunnels {
		for what, happens := range tunnelEvents(c.kind) {
			t.Run(name+"/"+what, func(t *testing.T) {
				d := newTunnel(t, c.allowed, c.setting)
				stop := d.watch()
				happens(d)
				d.later(what, d.moreByAny)
				stop()
			})
		}
	}
}

// Without the guards the kernel's answers to the same tunnels leave by home. The kill switch of a full tunnel would keep them in.
func TestTunnelsWithoutGuards(t *testing.T) {
	for name, c := range tunnels {
		if c.allowed == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			d := newTunnel(t, c.allowed, c.setting)
			d.unguard(c.setting)
			stop := labtest.Left(t, d.Instance, "client/home")
			events["SIGKILL"](d)
			d.later("SIGKILL", d.moreByAny)
			if len(stop()) == 0 {
				t.Error("nothing left by home")
			}
		})
	}
}
