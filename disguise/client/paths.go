package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
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

// member is one path of a link.
type member struct {
	Path
	health path.Health
	retry  group.Backoff
	broken bool              // a connection broke, and none was made since
	trying bool              // a try of a path that is down or broken
	live   map[*carrier]bool // connections
	opened uint64
	// sent and got count the bytes of connections that ended.
	sent, got uint64
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
		m.all = append(m.all, &member{Path: p, live: map[*carrier]bool{}})
	}
	return m, nil
}

// draw returns the path of the next connection, or nil while too few paths work.
func (m *members) draw(now time.Time) *member {
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
	return m.all[i]
}

func (m *member) down() bool {
	state, _ := m.health.State()
	return state == path.Down
}

// judge counts the paths that work. m.mu is held.
func (m *members) judge() {
	healthy := 0
	var missing []string
	for _, one := range m.all {
		if state, why := one.health.State(); state == path.Down {
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

// dial connects to the bridge by one path, and by no other one.
func (m *members) dial(ctx context.Context, one *member) (net.Conn, error) {
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
func (m *members) connect(ctx context.Context, one *member) (net.Conn, error) {
	if m.datagrams {
		flow, err := path.Open(path.WithSession(ctx, ""), one.Path.Path, m.bridge)
		if err != nil {
			return nil, err
		}
		return &flowConn{path.PacketConn(flow, m.bridge), m.bridge}, nil
	}
	c, err := path.Dial(ctx, one.Path.Path, path.At(m.bridge))
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

// silent counts a connection that ended without a byte of the bridge as a failure of its path.
func (m *members) silent(one *member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	one.health.Fail("the bridge did not answer on it")
	one.retry.Tried(time.Now(), retryFirst, retryLongest)
}

// heard notes that something of the bridge arrived by a path.
func (m *members) heard(one *member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	one.health.Restore()
	one.health.Heard(time.Now())
	one.retry.Reset()
}

// due returns the paths that may be tried again now, since they are down or a connection of theirs broke: the schedule may not
// come to them for long, and until then they would count as paths that work. The caller must call tried for each.
func (m *members) due(now time.Time) (all []*member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range m.all {
		if (one.down() || one.broken) && !one.trying && one.retry.Due(now) {
			one.trying = true
			all = append(all, one)
		}
	}
	return all
}

func (m *members) tried(one *member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	one.trying = false
}

// began and ended follow the connections of a path.
func (m *members) began(c *carrier) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.member.live[c] = true
}

func (m *members) ended(c *carrier, broke bool) {
	carried := c.on.Stats()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(c.member.live, c)
	c.member.broken = c.member.broken || broke
	c.member.sent += carried.WireOut
	c.member.got += carried.WireIn
}
