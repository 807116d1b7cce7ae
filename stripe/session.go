package stripe

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"heddle/identity"
	"heddle/internal/reliable"
	"heddle/internal/segment"
	"heddle/path"
	"heddle/stripe/share"
)

// settings are what both sides agree on, and this side's own options.
type settings struct {
	id         [16]byte
	peer       identity.Key
	service    string
	schedule   string
	scheme     share.Scheme
	members    int
	minMembers int
	degrade    bool
	segment    int

	client   bool
	weights  []float64
	patience time.Duration
	window   int
	minRate  int
	log      *slog.Logger
	memory   *reliable.Loan     // for unread data; may be nil
	ended    func(inOrder bool) // called once, when nothing of the session is left
}

// payload returns the bytes of stream or share in a segment.
func (s *settings) payload() int { return s.segment - segment.DataOverhead }

// floor returns the number of members below which nothing is sent.
func (s *settings) floor() int {
	switch {
	case !s.degrade:
		return s.minMembers
	case s.scheme.None():
		return 1
	}
	return s.scheme.K
}

// waits reports whether shares wait for all live members, not only for as many as restore the stream.
func (s *settings) waits() bool { return s.schedule == Strict || s.scheme.K == s.scheme.N }

// Conn is one session. Read and Write may be called concurrently.
type Conn struct {
	settings
	since  time.Time
	stop   context.CancelFunc // ends dialling
	remote net.Addr

	reading, writing sync.Mutex // serialize Read and Write
	readBy, writeBy  path.Deadline
	begun            chan struct{} // closed once enough members were up for the first time
	admitted         chan struct{} // closed once the peer admitted enough of them
	over             chan struct{} // closed once only the close may still be sent
	gone             chan struct{} // closed once all connections are
	closing          sync.Once
	closed           error // the result of Close
	running          sync.WaitGroup

	mu           sync.Mutex
	members      []*member
	out          sender
	in           receiver
	started      bool // enough members were up once
	blockedSince time.Time
	finished     bool
	failure      error                                            // why the session failed, if it did
	peerClosed   bool                                             // the peer ended the session
	spy          func(member int, d segment.Data, payload []byte) // for tests: sees and may change what TLS decrypted
	local        net.Addr
}

var _ net.Conn = (*Conn)(nil)

func newConn(s settings, names []string) (*Conn, error) {
	c := &Conn{settings: s, since: time.Now(), stop: func() {}, begun: make(chan struct{}), admitted: make(chan struct{}), over: make(chan struct{}),
		gone: make(chan struct{}), blockedSince: time.Now()}
	for i := range s.members {
		c.members = append(c.members, newMember(c, i, names[i]))
	}
	if err := c.prepareSender(); err != nil {
		return nil, err
	}
	c.prepareReceiver()
	c.running.Add(2)
	go c.cut()
	go c.keep()
	return c, nil
}

func (s *settings) errorSubject() string {
	if s.service == "" {
		return "stream"
	}
	return "stream " + s.service
}

func (c *Conn) name() string { return hex.EncodeToString(c.id[:8]) }

// count counts members. c.mu is held, here and below.
func (c *Conn) count(is func(*member) bool) (n int) {
	for _, m := range c.members {
		if is(m) {
			n++
		}
	}
	return n
}

// up counts the members that are up, and letIn those that the peer admitted.
func (c *Conn) up() int    { return c.count(func(m *member) bool { return m.link != nil }) }
func (c *Conn) letIn() int { return c.count(func(m *member) bool { return m.welcomed }) }

// live returns the indexes of the members that are up.
func (c *Conn) live() (up []int) {
	for i, m := range c.members {
		if m.link != nil {
			up = append(up, i)
		}
	}
	return up
}

// sending reports whether data may be sent.
func (c *Conn) sending() bool { return c.started && !c.finished && c.up() >= c.floor() }

// changed must be called whenever a member comes or goes.
func (c *Conn) changed() {
	if !c.started && (c.up() >= c.minMembers || c.degrade && c.up() >= c.floor() && c.allTried()) {
		c.begin()
	}
	if c.degrade && c.scheme.None() {
		c.rebalance()
	}
	if c.hopeless() {
		c.fail(c.tooFew())
	}
	for _, m := range c.members {
		wake(m.wake)
	}
	wake(c.out.wake)
}

// welcomed notes that the peer admitted a member.
func (c *Conn) welcomed(m *member) {
	m.welcomed = true
	if c.letIn() >= c.floor() && !isClosed(c.admitted) {
		close(c.admitted)
	}
}

func (c *Conn) begin() {
	if !c.started {
		c.started = true
		close(c.begun)
	}
}

// hopeless reports whether strangers answer on so many paths that the session cannot begin.
func (c *Conn) hopeless() bool {
	strangers := c.count(func(m *member) bool { return m.stranger })
	return !c.started && !c.finished && len(c.members)-strangers < c.floor()
}

// allTried reports whether each member that is not up has failed before.
func (c *Conn) allTried() bool {
	return !slices.ContainsFunc(c.members, func(m *member) bool { return m.link == nil && (m.why == "" || !c.client) })
}

// missing names the members that are not up, and why.
func (c *Conn) missing() string {
	var names []string
	for _, m := range c.members {
		if m.link == nil {
			names = append(names, m.name+" ("+cmp.Or(m.why, "not there yet")+")")
		}
	}
	return strings.Join(names, "; ")
}

// tooFew returns why nothing is sent.
func (c *Conn) tooFew() *path.Error {
	e := &path.Error{What: c.errorSubject(), Why: fmt.Sprintf("%d of %d paths are up, and it takes %d: %s", c.up(), len(c.members), c.floor(), c.missing())}
	if c.client {
		e.Hint = "take other paths, or permit fewer with --min-paths or --degrade"
	}
	return e
}

// fail ends the session with an error and tells the peer.
func (c *Conn) fail(err error) {
	why := err.Error()
	var explained *path.Error
	if errors.As(err, &explained) {
		why = explained.Why
	}
	c.finish(err, segment.Close{Code: segment.Failed, Why: why})
}

// finish ends the session: each member sends last and closes. failure is nil if it ends in order.
func (c *Conn) finish(failure error, last segment.Close) {
	if c.finished {
		return
	}
	c.finished, c.failure = true, failure
	if failure != nil {
		c.log.Warn("session failed", "session", c.name(), "why", failure)
	}
	close(c.over)
	c.stop()
	for _, m := range c.members {
		m.ackDue, m.close = true, &last
		wake(m.wake)
	}
	wake(c.out.wake)
	wake(c.out.writable)
	wake(c.in.readable)
	time.AfterFunc(lastWords, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, m := range c.members {
			if m.link != nil {
				m.link.shut()
			}
		}
	})
	go c.waitDone()
}

// lastWords limits how long an ended session takes to send its close.
const lastWords = 3 * time.Second

// waitDone waits until nothing of the session runs.
func (c *Conn) waitDone() {
	c.running.Wait()
	c.mu.Lock()
	inOrder := c.failure == nil && c.in.Ended() && c.out.Proved()
	c.mu.Unlock()
	if c.ended != nil {
		c.ended(inOrder)
	}
	close(c.gone)
}

// violated fails the session because the peer broke the protocol.
func (c *Conn) violated(m *member, format string, a ...any) error {
	err := &path.Error{What: c.errorSubject(), Why: fmt.Sprintf("the other side broke the protocol on path %s: %s", m.name, fmt.Sprintf(format, a...)),
		Hint: "the two sides may be of different versions"}
	c.fail(err)
	return err
}
