package link

import "time"

// route is what the connections of one path share: they meet at the same bottleneck. If all of them carried the stream, each would
// probe for the rate of the bottleneck on its own, fill its queue, and lose packets there, and the stream would arrive as late as the
// slowest of them. So one of them, the lead, carries the stream as long as it keeps up. The others carry acks, datagrams and what is
// their own.
type route struct {
	lead *Conn // nil before the first block
}

// leadPatience is the least time after which a lead that was woken has fallen behind.
const leadPatience = 100 * time.Millisecond

// Via names the path of the connection. Connections of different paths do not compete. An empty name says that the path is not known,
// and then the connection takes all that waits. Call it before the connection carries blocks.
func (c *Conn) Via(path string) {
	l := c.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if path == "" {
		return
	}
	c.path, c.route = path, &route{}
	for _, other := range l.conns {
		if other != c && other.path == path {
			c.route = other.route
		}
	}
}

// follows reports whether the connection leaves the stream to the lead of its path. It may take over from a lead that is gone, that is
// stalled, or that was woken two round trips ago and is still busy: a window opens within the first of them, and a loss is repaired
// within the second. l.mu is held.
func (c *Conn) follows(now time.Time) bool {
	if c.route == nil {
		return false
	}
	lead := c.route.lead
	if lead == nil || lead == c || lead.left || lead.mute || lead.stalled {
		return false
	}
	if lead.waiting {
		return true
	}
	behind := lead.woken.Add(max(leadPatience, 2*lead.rtt.smooth))
	if !now.Before(behind) {
		return false
	}
	c.l.alarm(behind)
	return true
}

// leads makes the connection the lead of its path, unless it follows another one. l.mu is held.
func (c *Conn) leads(now time.Time) {
	if c.route != nil && !c.follows(now) {
		c.route.lead = c
	}
}

// turn returns the connection whose turn it is at a place of the queue. If the lead of a path waits further behind, it takes the turn
// of the one that follows it: so a path has as many turns as it has connections. l.mu is held.
func (l *Link) turn(place int) *Conn {
	c := l.waiters[place]
	if c.route == nil || c.route.lead == nil || !c.route.lead.waiting {
		return c
	}
	for i := place + 1; i < len(l.waiters); i++ {
		if l.waiters[i] == c.route.lead {
			l.waiters[place], l.waiters[i] = l.waiters[i], l.waiters[place]
		}
	}
	return l.waiters[place]
}
