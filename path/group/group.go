// Package group manages the paths of one session: it opens and reopens them, tracks their health, and decides which may
// carry packets and whether they are enough. A session with its own sockets lets a [Group] open members in the background
// ([Group.Open], [Group.Tend]). A backend below the socket opens each member on its own goroutine ([Member.Open]).
//
// Do not use it to choose the member for the next packet: package schedule does that.
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

type Options struct {
	Session string // name in logs
	// Specs are the members. The first Counted of them count for the quorum.
	Specs   []path.Spec
	Counted int
	Paths   map[string]path.Path // by member name
	// MinPaths is the number of healthy members below which nothing is sent. 0 means 2, or 1 if only one member counts.
	MinPaths int
	Degrade  bool         // one healthy member is enough
	Log      *slog.Logger // messages for the user
}

// Group is the paths of one session.
type Group struct {
	Members []*Member // never changes
	proved  bool      // members are up only after an answer of the server

	o       Options
	watch   *path.Watch // nil if closed or unsupported
	changed func() bool // reports whether this machine changed
	work    sync.WaitGroup

	mu       sync.Mutex
	quorum   Quorum
	why      string // why there are too few members
	warnings []string
	noted    map[string]bool
}

// New returns a group without opening anything.
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

// NeedProof requires an answer of the server before a member counts as up. Call it before opening the members.
func (g *Group) NeedProof() {
	g.proved = true
	for _, m := range g.Members {
		m.Health.Proved = true
	}
}

// Open starts to open all members, until ctx ends. The channel receives a value for each member that is open or has failed.
// [Group.Tend] retries the failed ones.
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

// openOne opens a member in the background, as a tunnel may take seconds.
func (g *Group) openOne(ctx context.Context, m *Member, to netip.AddrPort, opened chan<- struct{}) {
	m.aim(to) // not in the background: the last call must win
	g.work.Go(func() {
		if m.follow(ctx) == nil {
			g.WarnShared() // some kinds know their observer only now
		}
		if opened != nil {
			opened <- struct{}{}
		}
	})
}

// Tend closes flows that would no longer leave by their path, and opens members without a flow in the background. It does
// not block. Only one goroutine may call it.
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

// Move reopens all members to another address of the server. It does not block.
func (g *Group) Move(ctx context.Context, to netip.AddrPort) {
	for _, m := range g.Members {
		g.openOne(ctx, m, to, nil)
	}
}

// Close closes the members. The contexts of [Group.Open] and [Group.Tend] must have ended. Open may be called again.
func (g *Group) Close() error {
	for _, m := range g.Members {
		m.close()
	}
	g.work.Wait()
	err := g.watch.Close()
	g.watch = nil
	return err
}

// LastHeard returns when the server was last heard over any member, or the zero time.
func (g *Group) LastHeard() (latest time.Time) {
	for _, m := range g.Members {
		if h := m.Health.LastHeard(); h.After(latest) {
			latest = h
		}
	}
	return latest
}

// WarnShared warns of paths that share an observer or an exit.
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

// Warn logs a warning once, and keeps it for [Group.Warnings].
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

// Once reports whether this is the first call for a thing. It remembers a limited number of things, so that a stranger
// cannot fill the memory; for further ones it returns false.
func (g *Group) Once(thing string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.noted[thing] || len(g.noted) >= maxNoted {
		return false
	}
	g.noted[thing] = true
	return true
}

// Note logs a text about a member once.
func (g *Group) Note(m *Member, text string) {
	if g.Once(m.Spec.Name + ": " + text) {
		g.o.Log.Warn(text, "session", g.o.Session, "path", m.Spec.Name)
	}
}
