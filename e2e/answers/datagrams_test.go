package answers

import (
	"net/netip"
	"slices"
	"testing"

	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// datagrams is a session of datagrams that runs over both chosen networks.
type datagrams struct {
	*world
	heddle *peer.Process
	exit   func() // ends the program
	below  bool   // programs send straight to the server
}

func newDatagrams(t *testing.T, backend string, before []string) *datagrams {
	t.Helper()
	d := &datagrams{world: newWorld(t, lab.ThreeWaysUnlimited()), below: backend != "relay"}
	server := d.newChatter(udpAt)
	args := append([]string{"split", "--name", "s", "--backend", backend, "--to", udpAt.String(), "--schedule", "round-robin", "--every", "20ms"}, via...)
	to := udpAt
	if !d.below {
		to = netip.MustParseAddrPort("127.0.0.1:5555")
		args = append(args, "--listen", to.String())
	}
	d.heddle = d.start(before, "over 2 paths", args...)
	d.exit = d.program(d.udp(to))
	labtest.Await(t, "the server hears both paths", func() bool {
		all := server.all()
		return slices.ContainsFunc(all, isOf("10.101.2.2")) && slices.ContainsFunc(all, isOf("10.101.3.2"))
	})
	return d
}

func isOf(address string) func(netip.AddrPort) bool {
	return func(a netip.AddrPort) bool { return a.Addr().String() == address }
}

// events are what may end, by name. The server goes on sending to both paths' addresses.
var events = map[string]func(*datagrams){
	"the program exits": func(d *datagrams) { d.exit() },
	"SIGINT": func(d *datagrams) {
		if d.below { // without the session, programs send unsplit: that is what the user asked for
			d.exit()
		}
		_ = d.heddle.Interrupt()
	},
	"SIGKILL": func(d *datagrams) {
		d.heddle.Kill()
		d.exit()
	},
	"a device flaps": func(d *datagrams) { d.flap("lte") },
}

func TestDatagrams(t *testing.T) {
	for name, c := range map[string]struct {
		backend string
		before  []string
	}{"relay": {"relay", nil}, "kernel": {"kernel", nil}, "route": {"route", nil}, "relay without rights": {"relay", unprivileged}} {
		for what, happens := range events {
			t.Run(name+"/"+what, func(t *testing.T) {
				d := newDatagrams(t, c.backend, c.before)
				stop := d.watch()
				happens(d)
				d.more(chosen...)
				stop()
			})
		}
	}
}
