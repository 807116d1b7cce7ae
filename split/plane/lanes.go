package plane

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"heddle/internal/errhint"
	"heddle/path"
	"heddle/split"
)

// Options say how a session is split by a plane below the socket.
type Options struct {
	split.Options
	// Server is the address of To; where it is zero, To is looked up.
	Server netip.AddrPort
	// Dir is where the journal is kept; it must outlive a crash, not a reboot.
	Dir string
	// Lookup finds the addresses of HOST:PORT; nil for this machine's resolver.
	Lookup func(ctx context.Context, to string) ([]netip.AddrPort, error)
	// LookAgain is how often a name is looked up again; 0 for each minute.
	LookAgain time.Duration
	// Ready, which may be nil, is called once, when packets may leave for the first time.
	Ready func()
}

// TendEvery is how often a plane looks after its lanes.
const TendEvery = 250 * time.Millisecond

// Lane is one path of a session.
type Lane struct {
	Spec path.Spec
	// Hop is how its packets leave; the zero Hop while the path is down.
	Hop Hop

	way    path.Path
	flow   path.Flow // a socket that sends nothing: it holds the address, and tells when the path changes
	health path.Health
	told   path.State
}

// Lanes are the paths of one session and what is known of them. All methods but [Lanes.Status] are for one goroutine.
type Lanes struct {
	Server netip.AddrPort

	o     Options
	mark  uint32
	plane string
	log   *slog.Logger
	since time.Time
	names *names

	mu       sync.Mutex
	list     []*Lane
	enough   bool
	proved   bool
	why      string
	warnings []string
}

// NewLanes checks the options, makes the paths and finds the server. It sends nothing but the lookup of a name. mark is
// the SO_MARK with which the paths look at the routes, or 0.
func NewLanes(ctx context.Context, plane string, o Options, mark uint32) (*Lanes, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Lookup == nil {
		o.Lookup = lookupServer
	}
	if len(o.Via) == 0 {
		return nil, &path.Error{What: "session " + o.Session, Why: "no path was given", Hint: "add --via NAME=KIND:ARG, for example --via home=if:eth0"}
	}
	if err := o.CheckPlane(plane); err != nil {
		return nil, err
	}
	if o.MinPaths == 0 {
		o.MinPaths = min(2, len(o.Via))
	}
	if o.MinPaths < 1 || o.MinPaths > len(o.Via) {
		return nil, &path.Error{What: fmt.Sprintf("min-paths %d", o.MinPaths), Why: fmt.Sprintf("%d paths were given", len(o.Via)),
			Hint: fmt.Sprintf("choose 1 to %d, or add paths", len(o.Via))}
	}
	o.Mark = mark
	ways, err := o.Ways()
	if err != nil {
		return nil, err
	}
	s := &Lanes{o: o, mark: mark, plane: plane, log: o.Log, since: time.Now()}
	var found []netip.AddrPort
	if s.Server, found, err = resolve(ctx, o, ways); err != nil {
		return nil, err
	}
	s.names = newNames(o, s.Server, found)
	if a := s.Server.Addr(); !a.IsGlobalUnicast() {
		return nil, &path.Error{What: "server " + s.Server.String(), Why: "this plane reaches only global unicast addresses", Hint: "use --backend relay"}
	}
	for _, spec := range o.Via {
		s.list = append(s.list, &Lane{Spec: spec, way: ways[spec.Name]})
	}
	s.warnSharedObservers()
	s.warnOthers()
	return s, nil
}

func (s *Lanes) warnSharedObservers() {
	by := map[string]string{}
	for _, l := range s.list {
		observer := l.way.Describe().Observer
		if other, shared := by[observer]; shared {
			s.Warn("paths %s and %s share an observer (%s): whoever watches there sees both, so they count as one for privacy", other, l.Spec.Name, observer)
			continue
		}
		by[observer] = l.Spec.Name
	}
}

// Warn logs each warning once and keeps it for status.
func (s *Lanes) Warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.mu.Lock()
	known := slices.Contains(s.warnings, text) || len(s.warnings) >= 20
	if !known {
		s.warnings = append(s.warnings, text)
	}
	s.mu.Unlock()
	if !known {
		s.log.Warn(text, "session", s.o.Session)
	}
}

// Hops gives how each lane leaves now; the zero Hop for a lane that is down.
func (s *Lanes) Hops() []Hop {
	var all []Hop
	for _, l := range s.list {
		all = append(all, l.Hop)
	}
	return all
}

// Follow opens lanes that can be opened, and finds out how each leaves now. It reports whether that changed.
func (s *Lanes) Follow(ctx context.Context) (changed bool) {
	for _, l := range s.list {
		hop, err := l.follow(ctx, s.Server, s.mark)
		s.mu.Lock()
		if err != nil {
			l.health.Fail(errhint.Reason(err))
		} else {
			l.health.Restore()
		}
		if hop != l.Hop {
			l.Hop, changed = hop, true
		}
		s.mu.Unlock()
	}
	return changed
}

func (l *Lane) follow(ctx context.Context, server netip.AddrPort, mark uint32) (Hop, error) {
	if c, ok := l.flow.(path.Checker); ok {
		if err := c.Check(); err != nil {
			l.shut()
			return Hop{}, err
		}
	}
	if l.flow == nil {
		var err error
		if l.flow, err = path.Open(ctx, l.way, server); err != nil {
			l.flow = nil
			return Hop{}, err
		}
	}
	return findHop(l.Spec, l.flow.(path.Addressed).LocalAddr().Addr(), server.Addr(), mark)
}

func (l *Lane) shut() {
	if l.flow != nil {
		l.flow.Close()
		l.flow = nil
	}
}

// Close closes what the lanes hold open.
func (s *Lanes) Close() {
	for _, l := range s.list {
		l.shut()
	}
}

// Sent notes that n datagrams went up by lane i, Heard that something came down by it.
func (s *Lanes) Sent(now time.Time, i, n int) { s.list[i].health.Sent(now, n) }

// Heard notes that something came down by lane i.
func (s *Lanes) Heard(now time.Time, i int) { s.list[i].health.Heard(now) }

// Silent lists the lanes that were given up but could send: whether they came back only a packet can tell.
func (s *Lanes) Silent() (lanes []int) {
	for i, l := range s.list {
		if state, _ := l.health.State(); state == path.Silent {
			lanes = append(lanes, i)
		}
	}
	return lanes
}

// Judge decides which lanes may carry packets, and whether they are enough to send at all. permit makes that so. Only then
// status and log say it, so that packets leave once they say "running"; where permit fails, they do not.
func (s *Lanes) Judge(now time.Time, permit func(usable []bool, enough bool) error) error {
	states := make([]path.State, len(s.list))
	for i, l := range s.list {
		var others time.Time
		for k, other := range s.list {
			if h := other.health.LastHeard(); k != i && h.After(others) {
				others = h
			}
		}
		states[i] = l.health.Judge(now, others)
		if states[i] != l.told {
			l.told = states[i]
			_, why := l.health.State()
			s.log.Info("path is "+string(states[i]), "session", s.o.Session, "path", l.Spec.Name, "why", why)
		}
	}
	usable := split.Usable(states, s.need(), true)
	healthy := 0
	for _, u := range usable {
		if u {
			healthy++
		}
	}
	enough := healthy >= s.need()
	if err := permit(usable, enough); err != nil {
		return err
	}
	s.tell(usable, healthy, states)
	return nil
}

// tell makes known what packets may do now.
func (s *Lanes) tell(usable []bool, healthy int, states []path.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	enough, why := healthy >= s.need(), ""
	if !enough {
		why = s.explainStop(usable, healthy, states)
	}
	switch {
	case enough && !s.enough:
		s.log.Info("running", "session", s.o.Session, "paths", healthy)
		if !s.proved && s.o.Ready != nil {
			s.o.Ready()
		}
	case !enough && (s.enough || why != s.why):
		s.log.Warn("nothing is sent: "+why, "session", s.o.Session)
	}
	s.enough, s.why, s.proved = enough, why, s.proved || enough
}

func (s *Lanes) need() int {
	if s.o.Degrade {
		return 1
	}
	return s.o.MinPaths
}

func (s *Lanes) explainStop(usable []bool, healthy int, states []path.State) string {
	var parts []string
	for i, l := range s.list {
		if usable[i] {
			continue
		}
		_, why := l.health.State()
		parts = append(parts, fmt.Sprintf("%s is %s (%s)", l.Spec.Name, states[i], why))
	}
	return fmt.Sprintf("%d of %d required paths healthy; %s", healthy, s.need(), strings.Join(parts, ", "))
}
