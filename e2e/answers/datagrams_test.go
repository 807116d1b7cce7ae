package answers

import (
	"net/netip"
	"slices"
	"testing"

	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// datagrams is a session of datagrams that runs over both chosen networks.
type datagrams struct {
	*world
	setting
	heddle *peer.Process
	exit   func() // ends the program
	below  bool   // programs send straight to the server
}

func newDatagrams(t *testing.T, backend string, s setting) *datagrams {
	t.Helper()
	d := &datagrams{world: newWorld(t, lab.ThreeWaysUnlimited()), setting: s, below: backend != "relay"}
	to := s.at(5555)
	server := d.newChatter(to)
	args := append([]string{"split", "--name", "s", "--backend", backend, "--to", to.String(), "--schedule", "round-robin", "--every", "20ms"}, d.paths(s)...)
	if !d.below {
		to = netip.MustParseAddrPort("127.0.0.1:5555")
		args = append(args, "--listen", to.String())
	}
	d.heddle = d.start(s.before, "over 2 paths", args...)
	d.exit = d.program(d.udp(to))
	if !s.ends() {
		polltest.Await(t, "the server hears both paths", func() bool {
			all := server.all()
			return slices.ContainsFunc(all, isOf(s.client("lte", 2))) && slices.ContainsFunc(all, isOf(s.client("office", 2)))
		})
	}
	d.more(chosen...)
	return d
}

func isOf(address string) func(netip.AddrPort) bool {
	return func(a netip.AddrPort) bool { return a.Addr().String() == address }
}

// later waits until the kernel answered what came after an event, or could have. more waits for packets of a server that goes on
// sending.
func (d *datagrams) later(event string, more func(devices ...string)) {
	d.t.Helper()
	switch {
	case !d.ends():
		more(chosen...)
	case event == programExits: // the proxy or node sends by the path that it heard last
		d.moreByAny(chosen...)
	default:
		d.quiet()
	}
}

// programExits leaves the session and its paths as they are.
const programExits = "the program exits"

// events are what may end, by name. The server goes on sending to both paths' addresses.
var events = map[string]func(*datagrams){
	programExits: func(d *datagrams) { d.exit() },
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

// sessions are sessions of datagrams by name.
var sessions = map[string]struct {
	backend string
	setting
}{
	"relay":                       {"relay", setting{kind: "if"}},
	"kernel":                      {"kernel", setting{kind: "if"}},
	"route":                       {"route", setting{kind: "if"}},
	"relay without rights":        {"relay", withoutRights},
	"relay IPv6":                  {"relay", setting{kind: "if", v6: true}},
	"kernel IPv6":                 {"kernel", setting{kind: "if", v6: true}},
	"route IPv6":                  {"route", setting{kind: "if", v6: true}},
	"relay IPv6 without rights":   {"relay", setting{kind: "if", v6: true, before: unprivileged}},
	"relay src":                   {"relay", setting{kind: "src"}},
	"relay src without rights":    {"relay", setting{kind: "src", before: unprivileged}},
	"relay masque":                {"relay", setting{kind: "masque"}},
	"relay masque IPv6":           {"relay", setting{kind: "masque", v6: true}},
	"relay masque without rights": {"relay", setting{kind: "masque", before: unprivileged}},
	"relay node":                  {"relay", setting{kind: "node"}},
	"relay node without rights":   {"relay", setting{kind: "node", before: unprivileged}},
}

func TestDatagrams(t *testing.T) {
	for name, c := range sessions {
		for what, happens := range events {
			t.Run(name+"/"+what, func(t *testing.T) {
				d := newDatagrams(t, c.backend, c.setting)
				stop := d.watch()
				happens(d)
				d.later(what, d.more)
				stop()
			})
		}
	}
}

// Without the guards the kernel's answers to the same sessions leave by home.
func TestDatagramsWithoutGuards(t *testing.T) {
	for name, c := range sessions {
		if c.before != nil {
			continue // there the guard is a process that keeps the sockets open
		}
		t.Run(name, func(t *testing.T) {
			d := newDatagrams(t, c.backend, c.setting)
			d.unguard(d.setting)
			stop := labtest.Left(t, d.Instance, "client/home")
			events["SIGKILL"](d)
			d.later("SIGKILL", d.more)
			if len(stop()) == 0 {
				t.Error("nothing left by home")
			}
		})
	}
}
