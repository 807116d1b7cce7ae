package backend

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"heddle/internal/errhint"
	"heddle/path"
	"heddle/path/group"
	"heddle/path/resolve"
	"heddle/split"
)

// Options configure a session that a backend below the socket splits.
type Options struct {
	split.Options
	Server netip.AddrPort // address of To; zero looks To up
	Dir    string         // directory of the journal; must survive a crash, but not a reboot
	// Lookup finds the addresses of HOST:PORT; nil means this machine's resolver.
	Lookup    func(ctx context.Context, to string) ([]netip.AddrPort, error)
	LookAgain time.Duration // time between lookups of a name; 0 means a minute
	// Ready is called once, when packets may first leave, with what programs must know of the size of their datagrams. It may
	// be nil.
	Ready func(limit string)
}

// TendEvery is the time between two checks of the members.
const TendEvery = 250 * time.Millisecond

// Members manages the paths of one session and how their packets leave. Each path has a socket that sends nothing: it holds
// the address and detects changes. Only one goroutine may call the methods, except [Members.Status].
type Members struct {
	Server netip.AddrPort

	o       Options
	mark    uint32
	backend string
	group   *group.Group
	since   time.Time

	name   *resolve.Name    // nil if the server was given by address
	listed bool             // the name still has the server's address
	now    []netip.AddrPort // the name's current addresses

	before []Passage // at the last Count
	usable []bool    // as last judged
	enough bool
	trials trials

	mu   sync.Mutex
	hops []Hop // how each member leaves; the zero Hop while it is down
	mtus []int // last known of each member, 0 if unknown
	mtu  group.Ceiling
}

// Passage is the traffic over one member.
type Passage struct{ Up, Down Tally }

// NewMembers validates the options, makes the paths and finds the server. It sends nothing but the lookup of a name. mark is
// the SO_MARK of the paths' route lookups, or 0.
func NewMembers(ctx context.Context, backend string, o Options, mark uint32) (*Members, error) {
	o.Log = cmp.Or(o.Log, slog.Default())
	if o.Lookup == nil {
		o.Lookup = lookup
	}
	if _, err := group.CheckMinPaths(o.Session, len(o.Via), o.MinPaths); err != nil {
		return nil, err
	}
	if err := o.CheckBackend(backend); err != nil {
		return nil, err
	}
	o.Mark = mark
	paths, err := o.Paths()
	if err != nil {
		return nil, err
	}
	s := &Members{o: o, mark: mark, backend: backend, since: time.Now(), hops: make([]Hop, len(o.Via)), mtus: make([]int, len(o.Via)), before: make([]Passage, len(o.Via))}
	if err := s.resolve(ctx, paths); err != nil {
		return nil, err
	}
	if a := s.Server.Addr(); !a.IsGlobalUnicast() {
		return nil, &path.Error{What: "server " + s.Server.String(), Why: "this backend reaches only global unicast addresses", Hint: "use --backend relay"}
	}
	if s.group, err = group.New(group.Options{Session: o.Session, Specs: o.Via, Counted: len(o.Via), Paths: paths, MinPaths: o.MinPaths, Degrade: o.Degrade, Log: o.Log}); err != nil {
		return nil, err
	}
	s.warnOthers()
	path.GuardAnswers(s.Server.Addr())
	return s, nil
}

// Warn logs a warning the first time, and keeps it for the status.
func (s *Members) Warn(format string, args ...any) { s.group.Warn(format, args...) }

// Hops returns how each member leaves now. The hop of a member that is down is zero.
func (s *Members) Hops() []Hop {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.hops)
}

// Follow opens members that are not open and finds how each leaves now. It reports whether that changed. It opens them on
// the calling goroutine, in whose network namespace they must be. The kinds that backends take open at once.
func (s *Members) Follow(ctx context.Context) (changed bool) {
	for i, m := range s.group.Members {
		hop, err := s.hopOf(ctx, m)
		if err != nil {
			m.Health.Fail(errhint.Reason(err))
		} else {
			m.Health.Restore()
		}
		s.mu.Lock()
		if hop != s.hops[i] {
			s.hops[i], changed = hop, true
		}
		s.mtus[i] = cmp.Or(hop.MTU, s.mtus[i])
		s.mu.Unlock()
	}
	return s.measure(time.Now()) || changed
}

// measure finds the largest packet that all members carry, and reports whether it changed. A member that is down counts with
// its last size, since it may return.
func (s *Members) measure(now time.Time) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var n group.Narrow
	for i, m := range s.group.Members {
		n.Add(m.Spec.Name, s.mtus[i])
	}
	before := s.mtu.InForce()
	return s.mtu.Follow(now, n) != before
}

// narrowest returns the member whose packet size holds for all.
func (s *Members) narrowest() group.Narrow {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mtu.InForce()
}

// MTU returns the largest IP packet in bytes that may leave by any path. A program that searches for the largest size (RFC
// 8899) searches on all paths at once, so a larger packet that one path carries would mislead it.
func (s *Members) MTU() int { return s.narrowest().Size }

func (s *Members) hopOf(ctx context.Context, m *group.Member) (Hop, error) {
	if err := m.Check(); err != nil {
		return Hop{}, err
	}
	if err := m.Open(ctx, s.Server); err != nil {
		return Hop{}, err
	}
	c := m.Current()
	if c == nil {
		return Hop{}, net.ErrClosed
	}
	return findHop(m.Spec, c.Local.Addr(), s.Server.Addr(), s.mark)
}

// Close closes the members' sockets.
func (s *Members) Close() error { return s.group.Close() }

// Count updates the members' health from the traffic over each so far.
func (s *Members) Count(now time.Time, passed []Passage) {
	for i, p := range passed {
		health := &s.group.Members[i].Health
		if n := p.Up.Packets - s.before[i].Up.Packets; n > 0 {
			health.Sent(now, int(n))
		}
		if p.Down.Packets > s.before[i].Down.Packets {
			health.Heard(now)
		}
		s.before[i] = p
	}
}

// Judge decides which members may carry packets and whether they suffice, and calls permit to apply that. The status and the
// log change only if permit succeeds, so that packets do leave once they say "running".
func (s *Members) Judge(now time.Time, permit func(usable []bool, enough bool) error) error {
	v := s.group.Judge(now)
	s.usable, s.enough = v.Usable, v.Enough
	if err := permit(v.Usable, v.Enough); err != nil {
		return err
	}
	if first := s.group.Tell(v); first && s.o.Ready != nil {
		s.o.Ready(split.TellLimit(s.narrowest(), s.Server.Addr()))
	}
	return nil
}

// TooLarge explains drops of datagrams that exceed [Members.MTU].
const TooLarge = "larger than the MTU of the narrowest path: lower the MTU of the program and of the server, or leave that path out"

// IsSearch reports whether so few datagrams were too large that QUIC may have searched for the largest size with them.
func IsSearch(tooLarge uint64, passed []Passage) bool {
	var all uint64
	for _, p := range passed {
		all += p.Up.Packets + p.Down.Packets
	}
	return tooLarge < 20 || tooLarge < all/20
}

// Counted returns the counters of each member for [Members.Status].
func Counted(passed []Passage, weights []float64, switches []uint64) (counted []split.Counted) {
	for i, p := range passed {
		c := split.Counted{Up: p.Up.count(), Down: p.Down.count(), Weight: weights[i], Switches: switches[i]}
		if c.Switches == 0 {
			c.Why = split.NotDrawn
		}
		counted = append(counted, c)
	}
	return counted
}

func (t Tally) count() split.Count { return split.Count{Packets: t.Packets, Bytes: t.Bytes} }

// Status returns the status of the session; counted has one element per member. The backend adds what only it knows. Status
// asks the kernel, so do not hold a lock that sends wait for.
func (s *Members) Status(counted []split.Counted) split.Status {
	rows, hops := s.group.Rows(), s.Hops()
	for i, h := range hops {
		rows[i].MTU, rows[i].Address = h.MTU, netip.AddrPort{}
		if h.Source.IsValid() {
			rows[i].Address = netip.AddrPortFrom(h.Source, 0) // each program keeps its own port
		}
		rows[i].Exit, rows[i].RTT = "", 0
	}
	out := s.o.NewStatus(s.backend, s.group, rows, counted)
	out.MTU = s.MTU()
	out.To, out.Server, out.Since = cmp.Or(s.o.To, s.Server.String()), s.Server.String(), s.since
	for _, c := range counted {
		out.Switches += c.Switches
	}
	return out
}

// resolve finds the server's address: the first that most paths can send to.
func (s *Members) resolve(ctx context.Context, paths map[string]path.Path) error {
	if at := s.o.Server; at.IsValid() {
		s.Server = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
		return nil
	}
	all, err := s.o.Lookup(ctx, s.o.To)
	if err != nil {
		return err
	}
	counts := make([]int, len(all))
	for _, spec := range s.o.Via {
		resolve.Reach(ctx, paths[spec.Name], all, counts)
	}
	s.Server, _ = resolve.Best(all, counts)
	s.name = resolve.NewName(func(ctx context.Context) resolve.Found {
		found, err := s.o.Lookup(ctx, s.o.To)
		return resolve.Found{Addresses: found, Err: err}
	})
	s.name.Note([]netip.AddrPort{s.Server})
	s.take(all)
	return nil
}

// lookup asks this machine's resolver for the addresses of HOST:PORT.
func lookup(ctx context.Context, to string) ([]netip.AddrPort, error) {
	server, err := resolve.Parse(to)
	if err != nil {
		return nil, err
	}
	return resolve.System(ctx, server)
}

// take records the result of a lookup. It reports whether the name has new addresses.
func (s *Members) take(found []netip.AddrPort) (more bool) {
	s.now, s.listed = found, slices.Contains(found, s.Server)
	return s.name.Note(found)
}
