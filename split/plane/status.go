package plane

import (
	"cmp"
	"net/netip"
	"slices"

	"heddle/path"
	"heddle/split"
)

// Counted is what a plane counted on one lane.
type Counted struct {
	Up, Down split.Count
	Weight   float64
	Switches uint64
	// Why says why it is idle, where the plane knows.
	Why string
}

// Status says how the session is; counted has one element a lane. The plane fills in what it alone knows.
func (s *Lanes) Status(counted []Counted) split.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := split.Status{Session: s.o.Session, Plane: s.plane, To: cmp.Or(s.o.To, s.Server.String()), Server: s.Server.String(),
		Schedule: cmp.Or(s.o.Schedule.Name, "weighted"), Every: s.o.Schedule.Every.String(), MinPaths: s.o.MinPaths, Degrade: s.o.Degrade,
		Since: s.since, Why: s.why, Warnings: slices.Clone(s.warnings)}
	switch {
	case s.enough:
		out.State = "running"
	case s.proved:
		out.State = "stopped"
	default:
		out.State = "starting"
	}
	observers := map[string]bool{}
	for i, l := range s.list {
		info := l.way.Describe()
		observers[info.Observer] = true
		state, why := l.health.State()
		c := counted[i]
		p := split.PathStatus{Name: l.Spec.Name, Kind: l.Spec.Kind, Observer: info.Observer, State: string(state),
			Why: cmp.Or(why, c.Why), MTU: l.Hop.MTU, Weight: c.Weight, Up: c.Up, Down: c.Down, Switches: c.Switches}
		if a := l.Hop.Source; a.IsValid() {
			p.Address = netip.AddrPortFrom(a, 0) // each program keeps its own port
		}
		if p.Why == "" && state == path.Unproven {
			p.Why = "nothing heard yet"
		}
		if heard := l.health.LastHeard(); !heard.IsZero() {
			p.LastHeard = &heard
		}
		out.Switches += c.Switches
		out.Paths = append(out.Paths, p)
	}
	split.Shares(out.Paths)
	out.Claim = split.Claim(len(observers))
	return out
}
