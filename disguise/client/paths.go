package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"heddle/internal/errhint"
	"heddle/path"
	"heddle/path/group"
	"heddle/schedule"
)

// Path is one path that cover connections leave by.
type Path struct {
	Name string
	Path path.Path
}

// Times between the tries of a path that failed, and the time for one try.
const (
	retryFirst   = 250 * time.Millisecond
	retryLongest = 15 * time.Second
	dialPatience = 10 * time.Second
)

// member is one path of a link. It is down if all its ways are.
type member struct {
	Path
	ways []*way // one for each cover
}

// way is one cover on one path. A way may fail alone: a filter may stop what looks like one protocol, or one port.
type way struct {
	member *member
	cover  *Cover
	health path.Health
	retry  group.Backoff
	broken bool // a connection broke, and none was made since
	trying bool // a try of a way that is down or broken
	opens  int  // connections that are being opened
	live   map[*carrier]bool
	opened uint64
	past   CoverStatus // the bytes of connections that ended
}

// proved is a connection that no blocks were sent on yet.
type proved struct {
	way  *way
	conn net.Conn
}

// members are the paths of a link. The schedule draws one for each connection.
type members struct {
	bridge    netip.AddrPort
	datagrams bool

	mu     sync.Mutex
	all    []*member
	draws  *schedule.Schedule
	quorum group.Quorum
	why    string // why nothing may be sent
}

func newMembers(o Options) (*members, error) {
	least, err := group.CheckMinPaths("disguise", len(o.Paths), o.MinPaths)
	if err != nil {
		return nil, err
	}
	needs := path.Streams
	if o.Datagrams {
		needs = path.Datagrams
	}
	if o.Datagrams && least > 1 && !o.Degrade {
		return nil, &path.Error{What: "disguise", Why: fmt.Sprintf("%d paths must work before anything is sent, and over UDP only sending tells which do", least),
			Hint: "use a cover over TCP, or set --min-paths 1"}
	}
	m := &members{bridge: o.Line.Address, datagrams: o.Datagrams, quorum: group.Quorum{Min: least, Degrade: o.Degrade}}
	o.Schedule.Every, o.Schedule.Settle = schedule.Every{}, 0 // the unit is one connection
	if m.draws, err = schedule.New(o.Schedule, len(o.Paths)); err != nil {
		return nil, err
	}
	for _, p := range o.Paths {
		if err := path.Need(p.Path, needs, "a disguised link"); err != nil {
			return nil, err
		}
		one := &member{Path: p}
		for i := range o.Covers {
			one.ways = append(one.ways, &way{member: one, cover: &o.Covers[i], live: map[*carrier]bool{}})
		}
		m.all = append(m.all, one)
	}
	return m, nil
}

// draw returns the path and the cover of the next connection, or nil while too few paths work.
func (m *members) draw(now time.Time) *way {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.judge(); !m.quorum.Enough() {
		return nil
	}
	usable := make([]bool, len(m.all))
	for i, one := range m.all {
		usable[i] = !one.down()
	}
	m.draws.Cut()
	i, _ := m.draws.Turn(now, usable)
	if i < 0 {
		return nil
	}
	return m.choose(m.all[i])
}

// choose returns the way of a path whose cover has the fewest connections for its weight, by the method of Webster and Sainte-Lague. It
// returns nil if all of them are down. m.mu is held.
func (m *members) choose(one *member) (best *way) {
	most := 0.0
	for i, w := range one.ways {
		has := 0
		for _, other := range m.all {
			has += len(other.ways[i].live) + other.ways[i].opens
		}
		if claim := float64(max(w.cover.Weight, 1)) / float64(2*has+1); !w.down() && claim > most {
			best, most = w, claim
		}
	}
	return best
}

// down reports whether no way of the path works. m.mu is held.
func (m *member) down() bool {
	return !slices.ContainsFunc(m.ways, func(w *way) bool { return !w.down() })
}

func (w *way) down() bool {
	state, _ := w.health.State()
	return state == path.Down
}

// state returns that of the best way, and why it is no better. m.mu is held.
func (m *member) state() (best path.State, why string) {
	var all []string
	for i, w := range m.ways {
		state, why := w.health.State()
		if i == 0 || !w.down() && best != path.Up {
			best = state
		}
		switch {
		case why == "":
		case len(m.ways) > 1:
			all = append(all, w.cover.Name+": "+why)
		default:
			all = append(all, why)
		}
	}
	return best, strings.Join(all, "; ")
}

// judge counts the paths that work. m.mu is held.
func (m *members) judge() {
	healthy := 0
	var missing []string
	for _, one := range m.all {
		if one.down() {
			_, why := one.state()
			missing = append(missing, fmt.Sprintf("%s is down (%s)", one.Name, why))
		} else {
			healthy++
		}
	}
	m.quorum.Set(healthy)
	m.why = ""
	if !m.quorum.Enough() {
		m.why = fmt.Sprintf("%d of %d required paths work; %s", healthy, m.quorum.Need(), strings.Join(missing, ", "))
	}
}

// enough reports whether anything may be sent, and if not, why.
func (m *members) enough() (bool, string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.judge()
	return m.quorum.Enough(), m.why
}

// reach connects to the bridge by one path, with the first cover that leads there.
func (m *members) reach(ctx context.Context, one *member) (proved, error) {
	var failed []error
	for {
		m.mu.Lock()
		w := m.choose(one)
		m.mu.Unlock()
		if w == nil {
			return proved{}, errors.Join(failed...)
		}
		c, err := m.dial(ctx, w)
		if err == nil {
			return proved{w, c}, nil
		}
		failed = append(failed, err)
	}
}

// dial connects to the bridge by one path, and by no other one.
func (m *members) dial(ctx context.Context, one *way) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	c, err := m.connect(ctx, one)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		one.health.Fail(errhint.Reason(err))
		one.retry.Tried(time.Now(), retryFirst, retryLongest)
		return nil, err
	}
	one.health.Restore()
	one.broken = false
	one.opened++
	return c, nil
}

// connect opens a TCP connection, or a UDP socket, which proves nothing yet.
func (m *members) connect(ctx context.Context, one *way) (net.Conn, error) {
	via, at := one.member.Path.Path, netip.AddrPortFrom(m.bridge.Addr(), cmp.Or(one.cover.Port, m.bridge.Port()))
	if m.datagrams {
		flow, err := path.Open(path.WithSession(ctx, ""), via, at)
		if err != nil {
			return nil, err
		}
		return &flowConn{path.PacketConn(flow, at), at}, nil
	}
	c, err := path.Dial(ctx, via, path.At(at))
	if err == nil {
		path.KeepAlive(c)
	}
	return c, err
}

// flowConn is the conversation with the bridge over a flow. It treats a failed send as a loss. It also ignores ICMP messages, since
// anybody may forge them.
type flowConn struct {
	*path.Conn
	bridge netip.AddrPort
}

func (c *flowConn) Read(b []byte) (int, error) {
	for {
		n, _, err := c.ReadFrom(b)
		if _, lost := errors.AsType[*path.Unreachable](err); !lost {
			return n, err
		}
	}
}

func (c *flowConn) Write(b []byte) (int, error) {
	if _, err := c.WriteTo(b, nil); errors.Is(err, net.ErrClosed) {
		return 0, err
	}
	return len(b), nil
}

func (c *flowConn) RemoteAddr() net.Addr { return net.UDPAddrFromAddrPort(c.bridge) }

// silent counts a connection that ended without a byte of the bridge as a failure of its way.
func (m *members) silent(one *way) {
	m.mu.Lock()
	defer m.mu.Unlock()
	one.health.Fail("the bridge did not answer on it")
	one.retry.Tried(time.Now(), retryFirst, retryLongest)
}

// barren counts a connection on which nothing arrived, although it stayed open. If the path has another way that works, this one has failed, and it
// is tried again later. It reports whether that is so.
func (m *members) barren(one *way) bool {
	m.mu.Lock()
	works := slices.ContainsFunc(one.member.ways, func(w *way) bool { return w != one && !w.down() })
	m.mu.Unlock()
	if works {
		m.silent(one)
	}
	return works
}

// heard notes that something of the bridge arrived by a way.
func (m *members) heard(one *way) {
	m.mu.Lock()
	defer m.mu.Unlock()
	one.health.Restore()
	one.health.Heard(time.Now())
	one.retry.Reset()
}

// due returns the ways that may be tried again now, since they are down or a connection of theirs broke: the schedule may not
// come to them for long, and until then they would count as ways that work. The caller must call tried for each.
func (m *members) due(now time.Time) (all []*way) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, of := range m.all {
		for _, one := range of.ways {
			if (one.down() || one.broken) && !one.trying && one.retry.Due(now) {
				one.trying = true
				all = append(all, one)
			}
		}
	}
	return all
}

func (m *members) tried(one *way) {
	m.mu.Lock()
	defer m.mu.Unlock()
	one.trying = false
}

// lacks reports whether a cover that shares the link with others has no connection, since a filter stopped it, or nobody answered.
func (m *members) lacks(one *way) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.Index(one.member.ways, one)
	return len(one.member.ways) > 1 && !slices.ContainsFunc(m.all, func(of *member) bool { return len(of.ways[i].live) > 0 })
}

// opening counts the connections of a way that are being opened.
func (m *members) opening(one *way, more int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	one.opens += more
}

// began and ended follow the connections of a way.
func (m *members) began(c *carrier) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.way.live[c] = true
}

func (m *members) ended(c *carrier, broke bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(c.way.live, c)
	c.way.broken = c.way.broken || broke
	c.way.past.add(c)
}
