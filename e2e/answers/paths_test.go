package answers

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"heddle/internal/answers"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// setting is what a session runs with.
type setting struct {
	kind   string   // of its paths: if, src, masque, node or nat, which is a node whose kernel translates
	v6     bool     // all addresses outside the tunnels of its paths are of IPv6
	before []string // the words before its command
}

var withoutRights = setting{kind: "if", before: unprivileged}

func (s setting) server() netip.Addr {
	if s.v6 {
		return lab.ServerAddr6
	}
	return lab.ServerAddr
}

func (s setting) at(port uint16) netip.AddrPort { return netip.AddrPortFrom(s.server(), port) }

// core is the router before the server, which runs the proxy and the node.
func (s setting) core() netip.Addr {
	if s.v6 {
		return netip.MustParseAddr("2001:db8:2::fe")
	}
	return netip.MustParseAddr("192.0.2.254")
}

// client is the client's address on a network; last is 1 for its router's.
func (s setting) client(way string, last int) string {
	n := slices.Index(lab.Ways, way) + 1
	if s.v6 {
		return fmt.Sprintf("2001:db8:101:%d::%d", n, last)
	}
	return fmt.Sprintf("10.101.%d.%d", n, last)
}

// table is the routing table of a network's address, for the kind src.
func table(way string) string { return fmt.Sprint(100 + slices.Index(lab.Ways, way) + 1) }

// ends reports whether the other end of a path stops sending soon after it heard of Heddle last.
func (s setting) ends() bool { return s.kind != "if" && s.kind != "src" }

// paths starts what the paths of a session need, one over each chosen network, and returns their flags.
func (w *world) paths(s setting) (flags []string) {
	w.t.Helper()
	var place string
	switch s.kind {
	case "masque":
		m, err := peer.MasqueProxy(w.t.Context(), w.Host("core"), labtest.Heddle, w.t.TempDir(), netip.AddrPortFrom(s.core(), 4433))
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(m.Stop)
		place = m.Place
		for _, way := range chosen {
			flags = append(flags, "--secret", "by-"+way+"="+m.Token)
		}
	case "node":
		w.Node("core", "--drain", "0s")
		w.Pass("n", "core", s.core())
		place = "node:n"
	case "nat":
		w.Node("core", "--drain", "0s", "--mode", "nat")
		w.Pass("n", "core", s.core(), "--mode", "nat", "--to", s.at(peer.StreamPort).String())
		place = "node:n"
	}
	for _, way := range chosen {
		switch s.kind {
		case "if":
			flags = append(flags, "--via", way+"=if:"+way)
		case "src":
			from := s.client(way, 2)
			w.ip(s, "rule", "add", "from", from, "lookup", table(way))
			w.ip(s, "route", "add", "default", "via", s.client(way, 1), "dev", way, "table", table(way))
			flags = append(flags, "--via", way+"=src:"+from)
		default:
			flags = append(flags, "--path", way+"=if:"+way, "--via", "by-"+way+"="+place+"@"+way)
		}
	}
	return flags
}

// ip runs ip(8) on the client.
func (w *world) ip(s setting, args ...string) {
	w.t.Helper()
	family := "-4"
	if s.v6 {
		family = "-6"
	}
	w.must("ip", append([]string{family}, args...)...)
}

// must runs a program on the client.
func (w *world) must(name string, args ...string) {
	w.t.Helper()
	if out, err := w.Host("client").Command(w.t.Context(), name, args...).CombinedOutput(); err != nil {
		w.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// unguard takes away what keeps the kernel's answers off home: the firewall's table and, of the kind src, the user's own routes.
func (w *world) unguard(s setting) {
	w.t.Helper()
	w.must("nft", "delete", "table", "inet", answers.Table)
	if s.kind == "src" {
		for _, way := range chosen {
			w.ip(s, "route", "flush", "table", table(way))
		}
	}
}

// quiet waits until little comes from the server any more, or for ten seconds if the session goes on.
func (w *world) quiet() {
	for last, end := w.received("lte"), time.Now().Add(10*time.Second); time.Now().Before(end); {
		time.Sleep(2 * time.Second)
		now := w.received("lte")
		if now < last+5 {
			return
		}
		last = now
	}
}
