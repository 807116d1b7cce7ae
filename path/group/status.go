package group

import (
	"net/netip"
	"slices"
	"time"

	"heddle/path"
)

// Row is the status of one member.
type Row struct {
	Name, Kind, Base string
	Observer, Exit   string
	State            path.State
	Why              string
	Address          netip.AddrPort
	MTU              int
	RTT              time.Duration
	LastHeard        *time.Time
}

// Rows returns the status of each member. A path may ask the kernel: do not hold a lock that sending needs.
func (g *Group) Rows() []Row {
	rows := make([]Row, len(g.Members))
	for i, m := range g.Members {
		info := m.Path.Describe()
		r := Row{Name: m.Spec.Name, Kind: m.Spec.Kind, Base: m.Spec.Base, Observer: info.Observer, Exit: info.Exit, MTU: m.size(time.Now(), info), RTT: m.Health.RTT()}
		r.State, r.Why = m.Health.State()
		if c := m.Current(); c != nil {
			r.Address = c.Local
		}
		if heard := m.Health.LastHeard(); !heard.IsZero() {
			r.LastHeard = &heard
		}
		rows[i] = r
	}
	return rows
}

// Idle returns why a member carries nothing, if no better reason is known.
func (r Row) Idle() string {
	if r.State == path.Unproven {
		return unheard
	}
	return ""
}

// State returns whether packets may leave ("starting", "running" or "stopped"), and if not, why.
func (g *Group) State() (state, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.quorum.Enough():
		return "running", ""
	case g.quorum.Ran():
		return "stopped", g.why
	}
	return "starting", g.why
}

func (g *Group) Warnings() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.warnings)
}

// MinPaths returns [Options.MinPaths], or its default.
func (g *Group) MinPaths() int { return g.o.MinPaths }
