package split

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"heddle/path"
)

// Status is what `heddle status` prints of one running session. Its JSON fields are a stable interface.
type Status struct {
	Session  string       `json:"session"`       // such as "office" or "127.0.0.1:51820/127.0.0.1:40112"
	Plane    string       `json:"plane"`         // "wireguard", "relay", "kernel" or "route"
	To       string       `json:"to"`            // the server as the user wrote it
	Server   string       `json:"server"`        // the address in use
	Schedule string       `json:"schedule"`      // such as "weighted"
	Every    string       `json:"every"`         // such as "100ms" or "50p"
	MinPaths int          `json:"min_paths"`     // fewer healthy paths than this and nothing is sent
	Degrade  bool         `json:"degrade"`       // fewer are permitted
	State    string       `json:"state"`         // "starting", "running", "stopped" (fail closed)
	Why      string       `json:"why,omitempty"` // why it is not running
	Since    time.Time    `json:"since"`         // start of the session
	Switches uint64       `json:"switches"`      // changes of path
	Refused  uint64       `json:"refused"`       // datagrams not sent because too few paths were healthy
	Withheld uint64       `json:"withheld"`      // datagrams not sent because the path that a rule names was down
	Claim    string       `json:"claim"`         // what the split hides and what it does not
	Warnings []string     `json:"warnings,omitempty"`
	Paths    []PathStatus `json:"paths"`
}

// PathStatus is one path of a session.
type PathStatus struct {
	Name      string         `json:"name"`
	Kind      string         `json:"kind"`
	Observer  string         `json:"observer"`
	Exit      string         `json:"exit,omitempty"` // what the server sees it come from, where that is known
	State     string         `json:"state"`          // see path.State
	Why       string         `json:"why,omitempty"`  // why the path is idle or down
	Address   netip.AddrPort `json:"address"`        // local address, zero where none
	MTU       int            `json:"mtu"`
	Beside    bool           `json:"beside,omitempty"` // it is outside the schedule
	Rules     []string       `json:"rules,omitempty"`  // what it carries whatever the schedule says
	Weight    float64        `json:"weight"`           // probability that the schedule draws it, 0 beside it
	RTT       time.Duration  `json:"rtt_ns"`           // 0 where unknown
	Loss      *float64       `json:"loss,omitempty"`   // share of downlink datagrams lost, nil where unknown
	Up        Count          `json:"up"`               // client to server
	Down      Count          `json:"down"`             // server to client
	Switches  uint64         `json:"switches"`         // switches to this path
	LastHeard *time.Time     `json:"last_heard,omitempty"`
}

// Count is traffic in one direction over one path.
type Count struct {
	Packets uint64  `json:"packets"`
	Bytes   uint64  `json:"bytes"`   // UDP payload
	Dropped uint64  `json:"dropped"` // refused by this machine, or not from the server
	Share   float64 `json:"share"`   // of the session's bytes in this direction, 0 to 1
}

// Status says how the session is; plane is what stands in front of the fan.
func (f *Fan) Status(plane string) Status {
	now := f.now()
	infos := make([]path.Info, len(f.lanes))
	for i, l := range f.lanes { // before the lock, since a path may have to ask the kernel, and sends wait for the lock
		infos[i] = l.way.Describe()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Status{Session: f.o.Session, Plane: plane, To: f.o.To, Schedule: cmp.Or(f.o.Schedule.Name, "weighted"),
		Every: f.o.Schedule.Every.String(), MinPaths: f.o.MinPaths, Degrade: f.o.Degrade, Since: f.since,
		Switches: f.switches, Refused: f.refused, Withheld: f.withheld, Warnings: slices.Clone(f.warnings)}
	if server := f.server.Load(); server != nil {
		s.Server = server.String()
	}
	switch {
	case f.enough:
		s.State = "running"
	case f.proved:
		s.State, s.Why = "stopped", f.stopWhy
	default:
		s.State, s.Why = "starting", f.stopWhy
	}
	observers := map[string]bool{}
	weights := f.sched.Weights()
	for i, l := range f.lanes {
		p := l.status(infos[i], f.loss.share(now, i))
		p.Beside = i >= len(weights)
		if !p.Beside {
			p.Weight = weights[i]
			if p.Why == "" && p.Switches == 0 && f.enough && f.usable[i] {
				p.Why = "the schedule has not drawn it yet"
			}
		}
		for _, r := range f.o.Rules {
			if r.Use == l.spec.Name {
				p.Rules = append(p.Rules, r.When.String())
			}
		}
		if p.Why == "" && p.State == string(path.Unproven) {
			p.Why = "nothing heard yet"
		}
		s.Paths = append(s.Paths, p)
		observers[s.Paths[i].Observer] = true
	}
	s.Claim = f.claim(len(observers), s.Paths)
	Shares(s.Paths)
	return s
}

// claim is [Claim] with what rules and exits change.
func (f *Fan) claim(observers int, paths []PathStatus) string {
	claim := Claim(observers)
	exits, bases := map[string]bool{}, map[string]bool{}
	for i, p := range paths {
		exits[p.Exit] = true
		bases[f.lanes[i].spec.Base] = true
	}
	if exit := paths[0].Exit; exit != "" && len(exits) == 1 && len(bases) > 1 {
		claim = fmt.Sprintf("each of %d networks sees that you talk to one exit (%s) and a part of the packets; whoever runs the exit, or sees all networks, or the server, sees the whole", len(bases), exit)
	}
	if i := f.rules.handshakeLane(); i >= 0 {
		claim += "; QUIC's handshake, which names the server, is seen by path " + f.lanes[i].spec.Name + " alone"
	}
	return claim
}

func (l *lane) status(info path.Info, loss *float64) PathStatus {
	state, why := l.health.State()
	_, local := l.currentFlow()
	l.mu.Lock()
	tooBig := l.tooBig
	l.mu.Unlock()
	p := PathStatus{Name: l.spec.Name, Kind: l.spec.Kind, Observer: info.Observer, Exit: info.Exit, State: string(state), Why: why, Address: local,
		MTU: info.MTU, RTT: l.health.RTT(), Loss: loss, Up: l.up.count(), Down: l.down.count(), Switches: l.switches.Load()}
	if heard := l.health.LastHeard(); !heard.IsZero() {
		p.LastHeard = &heard
	}
	if p.Why == "" {
		p.Why = tooBig
	}
	return p
}

func (t *tally) count() Count {
	return Count{Packets: t.packets.Load(), Bytes: t.bytes.Load(), Dropped: t.dropped.Load()}
}

// Shares fills the share of each path in both directions.
func Shares(paths []PathStatus) {
	share(paths, func(p *PathStatus) *Count { return &p.Up })
	share(paths, func(p *PathStatus) *Count { return &p.Down })
}

// share fills the share of each path in one direction.
func share(paths []PathStatus, of func(*PathStatus) *Count) {
	total := 0.0
	for i := range paths {
		total += float64(of(&paths[i]).Bytes)
	}
	for i := range paths {
		if c := of(&paths[i]); total > 0 {
			c.Share = float64(c.Bytes) / total
		}
	}
}

// Claim says in a line what a split over the paths of n observers hides, and what it does not.
func Claim(n int) string {
	if n < 2 {
		return "one observer: it sees the whole session as if there were no split, except what the kind of path itself changes"
	}
	return fmt.Sprintf("each of %d observers sees that you talk to the server and a part of the packets; none sees all of them. Whoever sees all paths, or the server, sees the whole", n)
}

func sortBySince(list []Status) {
	slices.SortFunc(list, func(a, b Status) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Session, b.Session))
	})
}
