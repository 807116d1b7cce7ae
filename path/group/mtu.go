package group

import (
	"time"

	"heddle/path"
)

// Narrow is the member that carries the smallest packets, and their size in bytes. Size is 0 if no member knows its own.
type Narrow struct {
	Path string
	Size int
}

// Add takes a member into account. A size of 0 is unknown.
func (n *Narrow) Add(name string, size int) {
	if size > 0 && (n.Size == 0 || size < n.Size) {
		*n = Narrow{name, size}
	}
}

// NarrowestOf returns what [Group.Narrowest] returns, for paths that are not open yet.
func NarrowestOf(specs []path.Spec, paths map[string]path.Path) (all, whole Narrow) {
	for _, s := range specs {
		info := paths[s.Name].Describe()
		all.Add(s.Name, info.MTU)
		if !info.Fragments {
			whole.Add(s.Name, info.MTU)
		}
	}
	return all, whole
}

// Narrowest returns the narrowest member, and the narrowest of those that refuse larger packets instead of sending
// fragments. A member that is down counts with the last size known, since it may return. Paths may ask the kernel: do not
// hold a lock that sending needs.
func (g *Group) Narrowest(now time.Time) (all, whole Narrow) {
	for _, m := range g.Members {
		info := m.Path.Describe()
		size := m.size(now, info)
		all.Add(m.Spec.Name, size)
		if !info.Fragments {
			whole.Add(m.Spec.Name, size)
		}
	}
	return all, whole
}

// reportFor is how long a reported size counts, as in the kernel (net.ipv4.route.mtu_expires).
const reportFor = 10 * time.Minute

// leastReport is the smallest size that a report may set, so that a forged one does not stop QUIC: 1,200 bytes of payload
// (RFC 9000, section 14.1) and the headers of IPv6 and UDP.
const leastReport = 1200 + 48

// TooLarge records the report that the path carries packets of at most size bytes, which may be less than its device does.
func (m *Member) TooLarge(now time.Time, size int) {
	if size <= 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reported, m.reportedAt = max(size, leastReport), now
}

// size returns the largest packet that the member carries in bytes, 0 if unknown, given what its path says.
func (m *Member) size(now time.Time, info path.Info) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.current.Load()
	if info.MTU > 0 && (info.Ready || c != nil) {
		m.mtu = info.MTU
	}
	if c != nil {
		if flow, ok := c.Flow.(path.Sized); ok {
			m.mtu = flow.MTU()
			return m.mtu
		}
	}
	if m.reported > 0 && now.Sub(m.reportedAt) < reportFor && (m.mtu == 0 || m.reported < m.mtu) {
		return m.reported
	}
	return m.mtu
}

// widenAfter is how long the paths must carry more before a [Ceiling] widens. A tunnel that reconnects begins with small
// packets and widens within seconds.
const widenAfter = 10 * time.Second

// Ceiling is the size of packets that all paths of a session carry. It narrows at once, and widens late: a program that
// uses the larger size loses all its large packets when the ceiling narrows again, and many programs do not notice.
type Ceiling struct {
	now   Narrow
	wider Narrow // the narrowest since the paths began to carry more
	since time.Time
}

// InForce returns the narrowest path in force, or the zero value.
func (c *Ceiling) InForce() Narrow { return c.now }

// Follow takes the narrowest path as it is now, and returns the one in force. If no path knows its size, nothing changes.
func (c *Ceiling) Follow(now time.Time, n Narrow) Narrow {
	switch {
	case n.Size == 0:
	case c.now.Size == 0 || n.Size <= c.now.Size:
		*c = Ceiling{now: n}
	case c.wider.Size == 0:
		c.wider, c.since = n, now
	default:
		if n.Size < c.wider.Size {
			c.wider = n
		}
		if now.Sub(c.since) >= widenAfter {
			*c = Ceiling{now: c.wider}
		}
	}
	return c.now
}
