// Package group holds the paths of one session: it opens them and opens them again, follows their health, and says which
// of them may carry packets and whether these are enough.
//
// A session that is split by sockets has a [Group] open its members in the background ([Group.Open], [Group.Tend]). A backend
// that steers packets below the socket opens them one by one, on a goroutine of its own ([Member.Open]).
//
// Do not use it to decide which member takes the next packet: that is package schedule.
package group

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"heddle/internal/errhint"
	"heddle/path"
)

// Options say what a group is made of.
type Options struct {
	// Session names the session in logs.
	Session string
	// Specs are the members. The first Counted of them count for the quorum.
	Specs   []path.Spec
	Counted int
	// Paths are the paths by name.
	Paths map[string]path.Path
	// MinPaths is how many healthy members it takes to send at all. 0 means 2, or all where fewer than two are counted.
	MinPaths int
	// Degrade permits fewer.
	Degrade bool
	// Log is where what a person should know is told.
	Log *slog.Logger
}

// Group is the paths of one session.
type Group struct {
	// Members never changes.
	Members []*Member
	// proved makes members count as up only once the server answered on them.
	proved bool

	o       Options
	watch   *path.Watch // while it is open; nil where there can be none
	changed func() bool // reports whether this machine changed
	work    sync.WaitGroup

	mu       sync.Mutex
	quorum   Quorum
	why      string // there are too few
	warnings []string
	noted    map[string]bool
}

// New makes a group. It sends nothing.
func New(o Options) (*Group, error) {
	var err error
	if o.MinPaths, err = CheckMinPaths(o.Session, o.Counted, o.MinPaths); err != nil {
		return nil, err
	}
	g := &Group{o: o, quorum: Quorum{Min: o.MinPaths, Degrade: o.Degrade}, noted: map[string]bool{}}
	for i, s := range o.Specs {
		g.Members = append(g.Members, newMember(i, s, o.Paths[s.Name]))
	}
	g.WarnShared()
	return g, nil
}

// NeedProof makes members count as up only once the server has proved that it answers by them. It must come before they are
// opened.
func (g *Group) NeedProof() {
	g.proved = true
	for _, m := range g.Members {
		m.Health.Proved = true
	}
}

// Open begins to open all members, until ctx ends. Each one that is open or has failed tells so; those that failed are tried
// again by [Group.Tend].
func (g *Group) Open(ctx context.Context, to netip.AddrPort) <-chan struct{} {
	var err error
	if g.watch, err = path.NewWatch(); err != nil {
		g.o.Log.Debug("changes of this machine are not told, so it is asked all the time", "session", g.o.Session, "error", err)
	}
	g.changed = g.watch.Changed
	opened := make(chan struct{}, len(g.Members))
	for _, m := range g.Members {
		m.reopenable()
		g.openOne(ctx, m, to, opened)
	}
	return opened
}

// openOne opens a member in the background: a tunnel takes its time, and the others need looking after.
func (g *Group) openOne(ctx context.Context, m *Member, to netip.AddrPort, opened chan<- struct{}) {
	m.aim(to) // now, since what is aimed at later must win
	g.work.Go(func() {
		if m.follow(ctx) == nil {
			g.WarnShared() // some kinds know their observer only now
		}
		if opened != nil {
			opened <- struct{}{}
		}
	})
}

// Tend opens, in the background, the members that have no flow, and closes those that would not leave by their path any
// more. It does not wait, and is for one goroutine.
func (g *Group) Tend(ctx context.Context, now time.Time, to netip.AddrPort) {
	changed := g.changed()
	for _, m := range g.Members {
		if err := m.Check(); err != nil {
			g.o.Log.Info("path changed: "+errhint.Reason(err), "session", g.o.Session, "path", m.Spec.Name)
		}
		if m.wantsOpening(now, changed) {
			g.openOne(ctx, m, to, nil)
		}
	}
}

// Move leads all members to another address of the server. It does not wait.
func (g *Group) Move(ctx context.Context, to netip.AddrPort) {
	for _, m := range g.Members {
		g.openOne(ctx, m, to, nil)
	}
}

// Close closes the members; the contexts that they are opened with must have ended. Open may be called again.
func (g *Group) Close() error {
	for _, m := range g.Members {
		m.close()
	}
	g.work.Wait()
	err := g.watch.Close()
	g.watch = nil
	return err
}

// LastHeard is when the server was last heard by any member; the zero time where it never was.
func (g *Group) LastHeard() (latest time.Time) {
	for _, m := range g.Members {
		if h := m.Health.LastHeard(); h.After(latest) {
			latest = h
		}
	}
	return latest
}

// WarnShared says which paths one observer sees both of.
func (g *Group) WarnShared() {
	observers, exits := map[string]*Member{}, map[string]*Member{}
	for _, m := range g.Members {
		info := m.Path.Describe()
		switch other, exit := observers[info.Observer], exits[info.Exit]; {
		case exit != nil && info.Exit != "" && exit.Spec.Base != m.Spec.Base:
			g.Warn("paths %s and %s leave by one exit (%s): the networks before it see a part each, and whoever runs it sees both", exit.Spec.Name, m.Spec.Name, info.Exit)
		case other != nil:
			g.Warn("paths %s and %s share an observer (%s): whoever watches there sees both, so they count as one for privacy", other.Spec.Name, m.Spec.Name, info.Observer)
		}
		observers[info.Observer], exits[info.Exit] = m, m
	}
}

const (
	maxWarnings = 20
	maxNoted    = 200
)

// Warn logs each warning once and keeps it for [Group.Warnings].
func (g *Group) Warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	g.mu.Lock()
	known := g.noted[text] || len(g.warnings) >= maxWarnings
	if !known {
		g.noted[text] = true
		g.warnings = append(g.warnings, text)
	}
	g.mu.Unlock()
	if !known {
		g.o.Log.Warn(text, "session", g.o.Session)
	}
}

// Once reports whether it is asked about a thing for the first time. It holds so many things that a stranger cannot fill
// the memory; further ones are no longer new.
func (g *Group) Once(thing string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.noted[thing] || len(g.noted) >= maxNoted {
		return false
	}
	g.noted[thing] = true
	return true
}

// Note logs a line about a member, the first time.
func (g *Group) Note(m *Member, text string) {
	if g.Once(m.Spec.Name + ": " + text) {
		g.o.Log.Warn(text, "session", g.o.Session, "path", m.Spec.Name)
	}
}
