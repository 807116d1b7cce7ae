package stripe

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"heddle/identity"
	"heddle/internal/segment"
	"heddle/path"
	"heddle/stripe/share"
)

// settings are what both sides of a session agree on, and what this side adds.
type settings struct {
	id       [16]byte
	peer     identity.Key
	service  string
	schedule string
	scheme   share.Scheme
	legs     int
	minLegs  int
	degrade  bool
	segment  int

	client   bool
	weights  []float64
	patience time.Duration
	window   int
	minRate  int
	log      *slog.Logger
	// reserve asks for more memory for what is unread; nil is always granted.
	reserve func(n int64) bool
	// ended is told once that nothing of the session is left, whether it ended in order.
	ended func(inOrder bool)
}

// payload is how much of the stream, or of a share, a segment holds.
func (s *settings) payload() int { return s.segment - segment.DataOverhead }

// floor is on how many legs anything is sent.
func (s *settings) floor() int {
	switch {
	case !s.degrade:
		return s.minLegs
	case s.scheme.None():
		return 1
	}
	return s.scheme.K
}

// waits reports whether shares wait for all legs that are up, not only for as many as restore the stream.
func (s *settings) waits() bool { return s.schedule == Strict || s.scheme.K == s.scheme.N }

// Conn is one session. Read and Write may run concurrently with each other and with themselves.
type Conn struct {
	settings
	since  time.Time
	stop   context.CancelFunc // ends the dialling
	remote net.Addr

	reading, writing sync.Mutex // one Read, one Write at a time
	readBy, writeBy  path.Deadline
	begun            chan struct{} // closed once enough legs were up for the first time
	letIn            chan struct{} // closed once the other side let in enough of them
	over             chan struct{} // closed once the session sends nothing more but its last word
	gone             chan struct{} // closed once all its connections are
	closing          sync.Once
	closed           error // what Close says
	running          sync.WaitGroup

	mu       sync.Mutex
	legs     []*leg
	out      sender
	in       receiver
	started  bool // enough legs were up once
	stuck    time.Time
	finished bool
	failure  error                         // why it is over, where that was not in order
	told     bool                          // the other side ended it
	observe  func(leg int, d segment.Data) // for tests: each segment that arrives
	tamper   func(leg int, payload []byte) // for tests: changes what arrives behind its TLS
	local    net.Addr
}

var _ net.Conn = (*Conn)(nil)

func newConn(s settings, names []string) (*Conn, error) {
	c := &Conn{settings: s, since: time.Now(), stop: func() {}, begun: make(chan struct{}), letIn: make(chan struct{}), over: make(chan struct{}),
		gone: make(chan struct{}), stuck: time.Now()}
	for i := range s.legs {
		c.legs = append(c.legs, newLeg(c, i, names[i]))
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

func (c *Conn) what() string {
	if c.service == "" {
		return "stream"
	}
	return "stream " + c.service
}

func (c *Conn) name() string { return hex.EncodeToString(c.id[:8]) }

// up counts the legs that are up. c.mu is held, here and below.
func (c *Conn) up() int {
	n := 0
	for _, l := range c.legs {
		if l.link != nil {
			n++
		}
	}
	return n
}

// sending reports whether data may be sent.
func (c *Conn) sending() bool { return c.started && !c.finished && c.up() >= c.floor() }

// changed is called whenever a leg came or went.
func (c *Conn) changed() {
	if !c.started && (c.up() >= c.minLegs || c.degrade && c.up() >= c.floor() && c.allTried()) {
		c.begin()
	}
	if c.degrade && c.scheme.None() {
		c.rebalance()
	}
	if c.hopeless() {
		c.fail(c.tooFew())
	}
	for _, l := range c.legs {
		wake(l.wake)
	}
	wake(c.out.wake)
}

// welcomed notes that the other side let in a leg.
func (c *Conn) welcomed(l *leg) {
	l.welcomed = true
	n := 0
	for _, other := range c.legs {
		if other.welcomed {
			n++
		}
	}
	select {
	case <-c.letIn:
	default:
		if n >= c.floor() {
			close(c.letIn)
		}
	}
}

func (c *Conn) begin() {
	if !c.started {
		c.started = true
		close(c.begun)
	}
}

// hopeless reports whether somebody else answers on so many paths that the session cannot begin.
func (c *Conn) hopeless() bool {
	n := 0
	for _, l := range c.legs {
		if l.stranger {
			n++
		}
	}
	return !c.started && !c.finished && len(c.legs)-n < c.floor()
}

// allTried reports whether each leg that is not up failed before.
func (c *Conn) allTried() bool {
	for _, l := range c.legs {
		if l.link == nil && (l.why == "" || !c.client) {
			return false
		}
	}
	return true
}

// missing names the legs that are not up, and why.
func (c *Conn) missing() string {
	var names []string
	for _, l := range c.legs {
		if l.link == nil {
			names = append(names, l.name+" ("+orElse(l.why, "not there yet")+")")
		}
	}
	return strings.Join(names, "; ")
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// tooFew says why nothing is sent.
func (c *Conn) tooFew() *path.Error {
	e := &path.Error{What: c.what(), Why: fmt.Sprintf("%d of %d paths are up, and it takes %d: %s", c.up(), len(c.legs), c.floor(), c.missing())}
	if c.client {
		e.Hint = "take other paths, or permit fewer with --min-paths or --degrade"
	}
	return e
}

// fail ends the session in disorder, and tells the other side.
func (c *Conn) fail(err error) {
	why := err.Error()
	var explained *path.Error
	if errors.As(err, &explained) {
		why = explained.Why
	}
	c.finish(err, segment.Bye{Code: segment.Failed, Why: why})
}

// finish ends the session: each leg says bye and ends. failure is nil where it ends in order.
func (c *Conn) finish(failure error, bye segment.Bye) {
	if c.finished {
		return
	}
	c.finished, c.failure = true, failure
	if failure != nil {
		c.log.Warn("session failed", "session", c.name(), "why", failure)
	}
	close(c.over)
	c.stop()
	for _, l := range c.legs {
		l.ackDue, l.bye = true, &bye
		wake(l.wake)
	}
	wake(c.out.wake)
	wake(c.out.writable)
	wake(c.in.readable)
	time.AfterFunc(lastWords, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, l := range c.legs {
			if l.link != nil {
				l.link.shut()
			}
		}
	})
	go c.bury()
}

// lastWords is how long the connections of an ended session may take to say so.
const lastWords = 3 * time.Second

// bury waits until nothing of the session runs any more.
func (c *Conn) bury() {
	c.running.Wait()
	c.mu.Lock()
	inOrder := c.failure == nil && c.in.Ended() && c.out.Proved()
	c.mu.Unlock()
	if c.ended != nil {
		c.ended(inOrder)
	}
	close(c.gone)
}

// violated ends the session since the other side broke the protocol.
func (c *Conn) violated(l *leg, format string, a ...any) error {
	err := &path.Error{What: c.what(), Why: fmt.Sprintf("the other side broke the protocol on path %s: %s", l.name, fmt.Sprintf(format, a...)),
		Hint: "the two sides may be of different versions"}
	c.fail(err)
	return err
}
