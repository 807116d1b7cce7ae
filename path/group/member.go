package group

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"heddle/internal/errhint"
	"heddle/path"
)

// Member is one path of one session, with its current flow and its health. It is safe for concurrent use.
type Member struct {
	Index  int // position in the group
	Spec   path.Spec
	Path   path.Path
	Health path.Health

	current atomic.Pointer[Current] // nil without a flow

	mu      sync.Mutex
	changed *sync.Cond     // current or closed changed
	wanted  netip.AddrPort // wanted remote address of the flow
	opening bool
	closed  bool
	failing time.Time // start of the current series of failures to open, or zero
	retry   time.Time // time of the next try

	mtu        int // last known
	reported   int // largest packet that a router reported, or 0
	reportedAt time.Time

	// Trial spaces the tries of a silent path. It belongs to the goroutine that judges the group.
	Trial Backoff
	told  path.State // last logged state; belongs to the same goroutine
}

type Current struct {
	Flow  path.Flow
	Local netip.AddrPort // zero if unknown
	To    netip.AddrPort // remote address
}

const (
	// openPatience limits one try to open a flow. A tunnel must first reach its own server.
	openPatience = 10 * time.Second
	// The time between the starts of two tries is a quarter of the time since the first failed try began, within these
	// bounds. After a longer try, or a change of this machine, the next try follows at once.
	retryFirst   = 250 * time.Millisecond
	retryLongest = 5 * time.Second
)

// Reasons why a member without a flow is down. What the old flow proved does not hold for the next one.
const (
	opening  = "it is being opened"
	reopened = "it is being opened again"
)

func newMember(index int, spec path.Spec, p path.Path) *Member {
	m := &Member{Index: index, Spec: spec, Path: p}
	m.changed = sync.NewCond(&m.mu)
	return m
}

// Current returns the member's flow and its addresses, or nil if it has no flow. It takes no lock.
func (m *Member) Current() *Current { return m.current.Load() }

// Open opens the flow to an address, and closes a flow to another one. If another goroutine is opening the member, Open
// returns at once, and that goroutine goes on until the flow leads to the address of the last call.
func (m *Member) Open(ctx context.Context, to netip.AddrPort) error {
	m.aim(to)
	return m.follow(ctx)
}

// aim records the wanted address of the flow.
func (m *Member) aim(to netip.AddrPort) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wanted = to
}

// follow opens a flow to the wanted address, unless there is one.
func (m *Member) follow(ctx context.Context) error {
	to, begun := m.begin()
	if !begun {
		return nil
	}
	if state, _ := m.Health.State(); state == path.Unproven {
		m.Health.Fail(opening) // an unproven path may count as up, and a tunnel takes its time
	}
	for {
		began := time.Now()
		flow, err := m.open(ctx, to)
		if next := m.opened(ctx, began, flow, to, err); next.IsValid() {
			to = next
			continue
		}
		return err
	}
}

// begin reports whether the caller must open a flow, and to which address.
func (m *Member) begin() (to netip.AddrPort, begun bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.current.Load(); m.closed || m.opening || c != nil && c.To == m.wanted {
		return to, false
	}
	if m.current.Load() != nil {
		m.Health.Fail(reopened)
	}
	m.drop()
	m.opening = true
	return m.wanted, true
}

func (m *Member) open(ctx context.Context, to netip.AddrPort) (path.Flow, error) {
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	return path.Open(ctx, m.Path, to)
}

// opened records the result of a try that began then. It returns another address if the wanted one changed meanwhile.
func (m *Member) opened(ctx context.Context, began time.Time, flow path.Flow, to netip.AddrPort, err error) (next netip.AddrPort) {
	m.mu.Lock()
	defer m.mu.Unlock()
	elsewhere := m.wanted != to && ctx.Err() == nil
	if err == nil && (m.closed || elsewhere) {
		flow.Close()
	}
	if !m.closed && elsewhere {
		return m.wanted
	}
	m.opening = false
	switch {
	case err != nil:
		if m.failing.IsZero() {
			m.failing = began
		}
		m.retry = began.Add(min(max(time.Since(m.failing)/4, retryFirst), retryLongest))
		m.Health.Fail(errhint.Reason(err))
	case !m.closed:
		m.failing, m.retry = time.Time{}, time.Time{}
		m.current.Store(&Current{flow, path.LocalOf(flow), to})
		m.Health.Restore()
		m.changed.Broadcast()
	}
	return netip.AddrPort{}
}

func (m *Member) drop() {
	if c := m.current.Swap(nil); c != nil {
		c.Flow.Close()
	}
}

// Shut closes the flow. The next Open makes a new one.
func (m *Member) Shut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop()
}

// Forget removes a flow that was found closed.
func (m *Member) Forget(flow path.Flow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.current.Load(); c != nil && c.Flow == flow {
		m.Health.Fail(reopened)
		m.current.Store(nil)
	}
}

// Check closes the flow if it would no longer leave by the path, and returns the reason.
func (m *Member) Check() error {
	c := m.current.Load()
	if c == nil {
		return nil
	}
	err := path.Check(c.Flow)
	if err != nil {
		m.Health.Fail(errhint.Reason(err))
		m.Shut()
	}
	return err
}

// Rotate changes the local port if the kind of path supports it.
func (m *Member) Rotate() error {
	c := m.current.Load()
	if c == nil {
		return nil
	}
	r, ok := c.Flow.(path.Rotator)
	if !ok {
		return nil
	}
	if err := r.Rotate(); err != nil {
		return err
	}
	m.current.CompareAndSwap(c, &Current{c.Flow, path.LocalOf(c.Flow), c.To})
	return nil
}

// Wait blocks until the member has a flow. It returns nil once the member is closed.
func (m *Member) Wait() path.Flow {
	if c := m.current.Load(); c != nil {
		return c.Flow
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.current.Load() == nil && !m.closed {
		m.changed.Wait()
	}
	if m.closed {
		return nil
	}
	return m.current.Load().Flow
}

// wantsOpening reports whether to open the member now; changed means that this machine changed.
func (m *Member) wantsOpening(now time.Time, changed bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if changed {
		m.failing, m.retry = time.Time{}, time.Time{}
	}
	return m.current.Load() == nil && !m.closed && !m.opening && !now.Before(m.retry)
}

// close closes the member until it is opened again. Callers of Wait return.
func (m *Member) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.changed.Broadcast()
	m.drop()
}

func (m *Member) reopenable() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = false
}
