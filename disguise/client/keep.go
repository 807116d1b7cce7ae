package client

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"time"

	"heddle/disguise/cover"
	"heddle/disguise/link"
	"heddle/internal/netutil"
	"heddle/path"
)

const (
	lookEvery = 250 * time.Millisecond
	// stalledFor is how long a connection may carry nothing that is acknowledged, before another one replaces it. A filter that
	// drops packets in silence does that.
	stalledFor = 5 * time.Second
	// mostFruitless is how many connections in a row may carry nothing at all before the link counts as dead: a bridge that was
	// started anew does not know the link, and does not answer.
	mostFruitless = 4
	// A connection with a limit is replaced once this share of it is used, so that the next one is open before it ends.
	replaceAt = 0.5
	// restAfter is how long a link carries nothing before it rests. From then on it replaces only the last connection that ends, as a browser would.
	restAfter = time.Minute
	// maxOpening is how many connections are opened at a time.
	maxOpening = 8
)

// carrier is one cover connection.
type carrier struct {
	way     *way
	conn    net.Conn
	on      *link.Conn
	shape   cover.Cover
	since   time.Time
	stalled time.Time     // since when; zero if it is not
	heard   atomic.Bool   // something of the link arrived
	opened  chan struct{} // closed when the link is open; nil but for its first connection
	cut     context.CancelFunc
}

// feed tells when something of the bridge arrived.
type feed struct {
	*link.Conn
	taken bool        // used by Take only
	first func() bool // reports whether it is told
}

func (f *feed) Take(b []byte) error {
	err := f.Conn.Take(b)
	if err == nil && !f.taken {
		f.taken = f.first()
	}
	return err
}

// start carries blocks on a connection in the background. The channel is closed when that ended.
func (s *Session) start(c *carrier) (done <-chan struct{}) {
	ctx, cut := context.WithCancel(context.Background())
	c.cut, c.since = cut, time.Now()
	s.mu.Lock()
	s.live[c] = true
	s.mu.Unlock()
	s.members.began(c)
	ended := make(chan struct{})
	s.work.Go(func() {
		defer close(ended)
		err := c.shape.Carry(ctx, c.conn, &feed{Conn: c.on, first: func() bool {
			if s.ID() == 0 {
				return false // the answer is not whole
			}
			if c.opened != nil {
				close(c.opened)
			}
			c.heard.Store(true)
			s.mu.Lock()
			s.fruitless = 0
			s.mu.Unlock()
			s.members.heard(c.way)
			return true
		}})
		failed := err != nil && ctx.Err() == nil
		cut()
		c.on.Leave(err)
		c.conn.Close()
		if failed && !c.heard.Load() {
			s.members.silent(c.way)
		}
		s.mu.Lock()
		stalled := !c.stalled.IsZero()
		s.mu.Unlock()
		s.members.ended(c, failed || stalled)
		s.mu.Lock()
		delete(s.live, c)
		s.mu.Unlock()
		netutil.Offer(s.wake, struct{}{})
	})
	return ended
}

// keep holds the wanted number of connections open until the link ends. ready are connections that no path carries blocks on yet.
func (s *Session) keep(ready map[*member]proved) {
	ctx, cancel := context.WithCancel(context.Background())
	defer close(s.ended)
	defer s.partWays()
	defer cancel()
	for _, c := range ready {
		if s.count() < s.o.Connections {
			s.join(c.way, c.conn)
		} else {
			c.conn.Close()
		}
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	extra := 0
	for {
		s.look(ctx, time.Now(), extra)
		extra = 0
		select {
		case <-s.Done():
			return
		case <-s.Starved():
			extra = 1
		case <-s.wake:
		case <-tick.C:
		}
	}
}

// look opens what is missing, ends what carries nothing, and ends everything while too few paths work.
func (s *Session) look(ctx context.Context, now time.Time, extra int) {
	for _, one := range s.members.due(now) {
		s.open(ctx, one, func() { s.members.tried(one) })
	}
	if ok, _ := s.members.enough(); !ok {
		s.cutAll()
		return
	}
	s.cutStalled(now)
	want := min(s.wanted(now)+extra, MaxConnections)
	for s.count() < want && s.opening() < maxOpening {
		one := s.members.draw(now)
		if one == nil {
			return
		}
		s.open(ctx, one, func() {})
	}
}

// wanted returns how many connections the link is to have. A link over several paths does not rest: one path would have all that comes next. Only keep
// calls it.
func (s *Session) wanted(now time.Time) int {
	of := s.Stats()
	if carried := of.Sent + of.Received + of.DatagramsOut + of.DatagramsIn; carried != s.carried || s.used.IsZero() {
		s.carried, s.used = carried, now
	}
	if len(s.o.Paths) == 1 && now.Sub(s.used) > restAfter {
		return 1
	}
	return s.o.Connections
}

// open opens one more connection by a path in the background.
func (s *Session) open(ctx context.Context, one *way, then func()) {
	s.mu.Lock()
	s.opens++
	s.mu.Unlock()
	s.members.opening(one, 1)
	s.work.Go(func() {
		defer s.members.opening(one, -1)
		c, err := s.members.dial(ctx, one)
		s.mu.Lock()
		s.opens--
		s.mu.Unlock()
		then()
		if err == nil {
			s.join(one, c)
		}
		netutil.Offer(s.wake, struct{}{})
	})
}

// join lets a connection carry the link, if it is needed and enough paths work.
func (s *Session) join(one *way, c net.Conn) {
	enough, _ := s.members.enough()
	s.mu.Lock()
	full := len(s.live) >= MaxConnections
	s.mu.Unlock()
	if !enough || full || s.count() > s.o.Connections && !s.members.lacks(one) {
		c.Close()
		return
	}
	shape, parameters, err := one.cover.Client()
	if err != nil {
		c.Close()
		return
	}
	on, err := s.Join(parameters, s.o.Datagrams)
	if err != nil {
		c.Close()
		return
	}
	on.Via(one.member.Name)
	s.start(&carrier{way: one, conn: c, on: on, shape: shape})
}

// count returns how many connections the link has or will have, without those that are near their end.
func (s *Session) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.opens
	for c := range s.live {
		if c.stalled.IsZero() && !s.nearEnd(c) {
			n++
		}
	}
	return n
}

func (s *Session) opening() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opens
}

// nearEnd reports whether a connection has used most of what it may carry in a direction.
func (s *Session) nearEnd(c *carrier) bool {
	if s.o.Bytes == 0 {
		return false
	}
	carried := c.on.Stats()
	return float64(max(carried.WireIn, carried.WireOut)) >= replaceAt*float64(s.o.Bytes)
}

// cutStalled ends connections that carried nothing for long.
func (s *Session) cutStalled(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.live {
		switch {
		case !c.on.Stats().Stalled:
			c.stalled = time.Time{}
		case c.stalled.IsZero():
			c.stalled = now
		case now.Sub(c.stalled) > stalledFor:
			c.cut()
			if c.stalled = now; !c.heard.Load() && !s.members.barren(c.way) {
				s.fruitless++
			}
		}
	}
	if s.fruitless >= mostFruitless {
		const why = "it does not know the link any more, or something on the way blocks it"
		s.o.Log.Warn("the link is given up", "bridge", s.o.Line.Address, "why", why)
		go s.Abandon(&path.Error{What: "bridge " + s.o.Line.Address.String(), Why: why,
			Hint: "check that the bridge runs and that the network reaches it; a new link may work", Err: io.ErrUnexpectedEOF})
	}
}

// goodbye is how long the connections of a link that ended may take to tell the bridge.
const goodbye = 2 * time.Second

// partWays lets the connections tell the bridge that the link ended, and ends them.
func (s *Session) partWays() {
	defer time.AfterFunc(goodbye, s.cutAll).Stop()
	s.work.Wait()
}

func (s *Session) cutAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.live {
		c.cut()
	}
}

// Leave ends the link for both sides, and returns when the bridge was told, or some seconds later. Call it before the program ends: a
// bridge that was not told keeps the link for some time.
func (s *Session) Leave() {
	s.Reset(link.Closed)
	<-s.ended
}
