package split

import (
	"fmt"
	"slices"
	"strings"

	"heddle/path"
)

// Backend is a way to split a session. It decides which path each packet takes.
type Backend struct {
	Name    string   `json:"name"`
	About   string   `json:"about"`   // one-line description
	To      string   `json:"to"`      // where programs send to: "the relay", "the tunnel" or "the server"
	Packets bool     `json:"packets"` // units may be counts of packets; all backends take units of time
	GSO     bool     `json:"gso"`     // counts are exact even if the kernel segments (UDP_SEGMENT)
	Rules   bool     `json:"rules"`   // rules may choose a path, and switches may wait (--settle, --at-gaps)
	Kinds   []string `json:"kinds"`   // kinds of path that it takes; nil: all
	Bound   bool     `json:"bound"`   // also splits sessions of programs that bind or connect their sockets
	Needs   string   `json:"needs"`   // privilege that it needs, "" for none
}

// DefaultBackend is the backend of a session that names none.
const DefaultBackend = "relay"

// Backends lists all backends.
func Backends() []Backend {
	return []Backend{
		{Name: "relay", About: "a relay in user space that a UDP program sends to", To: "the relay", Packets: true, GSO: true, Rules: true, Bound: true},
		{Name: "wireguard", About: "inside WireGuard: heddle up", To: "the tunnel", Packets: true, GSO: true, Rules: true, Bound: true,
			Needs: "CAP_NET_ADMIN, or --socks"},
		{Name: "kernel", About: "a BPF program on the way out", To: "the server", Packets: true, Kinds: []string{"if", "src"}, Bound: true, Needs: "CAP_NET_ADMIN and CAP_BPF"},
		{Name: "route", About: "the route to the server, replaced at each switch", To: "the server", Kinds: []string{"if", "src"}, Needs: "CAP_NET_ADMIN"},
	}
}

// BackendNames lists the backends that `heddle split` takes.
func BackendNames() []string { return []string{"relay", "kernel", "route"} }

// CheckBackend fails if the named backend cannot do what the options ask for.
func (o Options) CheckBackend(name string) error {
	all := Backends()
	i := slices.IndexFunc(all, func(p Backend) bool { return p.Name == name })
	if i < 0 || !slices.Contains(BackendNames(), name) {
		return &path.Error{What: fmt.Sprintf("backend %q", name), Why: "there is none of that name", Hint: "backends: " + strings.Join(BackendNames(), ", ")}
	}
	p := all[i]
	refuse := func(why string) error {
		return &path.Error{What: "backend " + name, Why: why, Hint: "use --backend relay, which can; `heddle doctor` shows what each backend can do"}
	}
	for _, s := range o.Via {
		if p.Kinds != nil && !slices.Contains(p.Kinds, s.Kind) {
			return refuse(fmt.Sprintf("path %s is of the kind %s, and it takes only %s", s.Name, s.Kind, strings.Join(p.Kinds, " and ")))
		}
	}
	switch {
	case o.Schedule.Every.Packets > 0 && !p.Packets:
		return refuse("it cannot count packets")
	case len(o.Rules) > 0 && !p.Rules:
		return refuse("it has no rules")
	case (o.AtGaps > 0 || o.Schedule.Settle > 0) && !p.Rules:
		return refuse("it has neither --settle nor --at-gaps")
	case o.Reorder > 0 && !p.Rules:
		return refuse("it does not touch what arrives, so it has no --reorder")
	case o.Schedule.Every.Auto && !p.Rules:
		return refuse("it does not measure what a switch costs, so it has no --every auto")
	case o.Drain > 0 && !p.Rules:
		return refuse("it cannot hold packets, so it has no --drain")
	}
	return nil
}
