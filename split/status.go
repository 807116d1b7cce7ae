package split

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"heddle/path/group"
)

// Status is what `heddle status` prints of one running session. Its JSON fields are a stable interface.
type Status struct {
	Session  string       `json:"session"`       // such as "office" or "127.0.0.1:51820/127.0.0.1:40112"
	Backend  string       `json:"backend"`       // "wireguard", "relay", "kernel" or "route"
	To       string       `json:"to"`            // the server as the user wrote it
	Server   string       `json:"server"`        // the address in use
	Schedule string       `json:"schedule"`      // such as "weighted"
	Every    string       `json:"every"`         // such as "100ms" or "50p"; for "auto" the length of the units now
	MinPaths int          `json:"min_paths"`     // healthy paths needed to send
	Degrade  bool         `json:"degrade"`       // fewer are permitted
	State    string       `json:"state"`         // "starting", "running", "stopped" (fail closed)
	Why      string       `json:"why,omitempty"` // why it is not running
	Since    time.Time    `json:"since"`         // start of the session
	Switches uint64       `json:"switches"`      // changes of path
	Refused  uint64       `json:"refused"`       // datagrams not sent because too few paths were healthy
	Withheld uint64       `json:"withheld"`      // datagrams not sent because the path that a rule names was down
	MTU      int          `json:"mtu"`           // largest IP packet in bytes that every path carries whole, 0 if unknown
	TooLarge uint64       `json:"too_large"`     // datagrams of both directions dropped on every path, since one carries no larger ones
	Claim    string       `json:"claim"`         // what the split hides and what it does not
	Warnings []string     `json:"warnings,omitempty"`
	Paths    []PathStatus `json:"paths"`
}

// PathStatus is one path of a session.
type PathStatus struct {
	Name      string         `json:"name"`
	Kind      string         `json:"kind"`
	Observer  string         `json:"observer"`
	Exit      string         `json:"exit,omitempty"` // what the server sees as the source, if known
	State     string         `json:"state"`          // see path.State
	Why       string         `json:"why,omitempty"`  // why the path is idle or down
	Address   netip.AddrPort `json:"address"`        // local address, zero if none
	MTU       int            `json:"mtu"`
	Beside    bool           `json:"beside,omitempty"` // it is outside the schedule
	Rules     []string       `json:"rules,omitempty"`  // what it carries regardless of the schedule
	Weight    float64        `json:"weight"`           // probability that the schedule draws it, 0 beside it
	RTT       time.Duration  `json:"rtt_ns"`           // 0 if unknown
	Loss      *float64       `json:"loss,omitempty"`   // share of downlink datagrams lost, nil if unknown
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

// Counted holds the counters of one member of a session.
type Counted struct {
	Up, Down Count
	Weight   float64
	Switches uint64
	Why      string // why the member is idle, if its group does not know
}

// NewStatus returns a status from the rows of a group and the counters of its members. The backend adds the rest.
func (o Options) NewStatus(backend string, g *group.Group, rows []group.Row, counted []Counted) Status {
	s := Status{Session: o.Session, Backend: backend, To: o.To, Schedule: cmp.Or(o.Schedule.Name, "weighted"),
		Every: o.Schedule.Every.String(), MinPaths: g.MinPaths(), Degrade: o.Degrade, Warnings: g.Warnings()}
	s.State, s.Why = g.State()
	observers := map[string]bool{}
	for i, r := range rows {
		c := counted[i]
		s.Paths = append(s.Paths, PathStatus{Name: r.Name, Kind: r.Kind, Observer: r.Observer, Exit: r.Exit, State: string(r.State),
			Why: cmp.Or(r.Why, c.Why, r.Idle()), Address: r.Address, MTU: r.MTU, RTT: r.RTT, LastHeard: r.LastHeard,
			Weight: c.Weight, Up: c.Up, Down: c.Down, Switches: c.Switches})
		observers[r.Observer] = true
	}
	shares(s.Paths)
	s.Claim = Claim(len(observers))
	return s
}

// NotDrawn is why a path is idle that the schedule has not drawn.
const NotDrawn = "the schedule has not drawn it yet"

// Status returns the status of the session. backend is the name of its front end.
func (s *Session) Status(backend string) Status {
	now, rows := s.now(), s.group.Rows()
	s.mu.Lock()
	defer s.mu.Unlock()
	weights := s.sched.Weights()
	counted := make([]Counted, len(rows))
	for i, m := range s.members {
		c := Counted{Up: m.up.count(), Down: m.down.count(), Switches: m.switches.Load()}
		if why := m.tooBig.Load(); why != nil {
			c.Why = *why
		}
		if i < len(weights) {
			c.Weight = weights[i]
			if c.Why == "" && c.Switches == 0 && s.enough && s.usable[i] {
				c.Why = NotDrawn
			}
		}
		counted[i] = c
	}
	out := s.o.NewStatus(backend, s.group, rows, counted)
	out.Since, out.Switches, out.Refused, out.Withheld = s.since, s.switches, s.refused, s.withheld
	if s.o.Schedule.Every.Auto {
		out.Every = s.sched.Period().String()
	}
	out.MTU, out.TooLarge = s.limit.all.InForce().Size, s.limit.tooLarge.Load()
	if server := s.server.Load(); server != nil {
		out.Server = server.String()
	}
	for i := range out.Paths {
		p := &out.Paths[i]
		p.Beside, p.Loss = i >= len(weights), s.loss.share(now, i)
		for _, r := range s.o.Rules {
			if r.Use == p.Name {
				p.Rules = append(p.Rules, r.When.String())
			}
		}
	}
	if load := s.load(now); load != "" {
		out.Warnings = append(out.Warnings, load)
	}
	if silence := s.silence(); silence != "" {
		out.Warnings = append(out.Warnings, silence)
	}
	out.Claim = s.claim(out.Claim, rows)
	return out
}

// claim adjusts a claim for rules and exits.
func (s *Session) claim(claim string, rows []group.Row) string {
	exits, bases := map[string]bool{}, map[string]bool{}
	for _, r := range rows {
		exits[r.Exit] = true
		bases[r.Base] = true
	}
	if exit := rows[0].Exit; exit != "" && len(exits) == 1 && len(bases) > 1 {
		claim = fmt.Sprintf("each of %d networks sees that you talk to one exit (%s) and a part of the packets; whoever runs the exit, or sees all networks, or the server, sees the whole", len(bases), exit)
	}
	if i := s.rules.handshakeMember(); i >= 0 {
		claim += "; QUIC's handshake, which names the server, is seen by path " + rows[i].Name + " alone"
	} else if names := s.shookBy(rows); len(names) > 0 {
		claim += "; QUIC's handshake, which names the server, goes by the session's path at that time alone until it is confirmed: so far by " + strings.Join(names, " and ")
	}
	return claim
}

// shookBy names the paths that carried a QUIC handshake. s.mu is held.
func (s *Session) shookBy(rows []group.Row) (names []string) {
	for i, r := range rows {
		if s.shook[i] {
			names = append(names, r.Name)
		}
	}
	return names
}

func (t *tally) count() Count {
	return Count{Packets: t.packets.Load(), Bytes: t.bytes.Load(), Dropped: t.dropped.Load()}
}

// shares fills the share of each path in both directions.
func shares(paths []PathStatus) {
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
