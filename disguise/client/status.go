package client

import (
	"time"

	"heddle/path"
)

// Status is one link, as its client sees it.
type Status struct {
	Since       time.Time    `json:"since"`
	Connections int          `json:"connections"`
	Up          uint64       `json:"up"`   // bytes of the stream to the bridge
	Down        uint64       `json:"down"` // and from it
	WireUp      uint64       `json:"wire_up"`
	WireDown    uint64       `json:"wire_down"`
	Again       uint64       `json:"retransmitted"` // bytes of Up that were sent more than once
	PostQuantum bool         `json:"post_quantum"`
	Streams     int          `json:"streams"`
	Why         string       `json:"why,omitempty"` // why nothing is sent
	Paths       []PathStatus `json:"paths"`
}

// PathStatus is one path of a link.
type PathStatus struct {
	Name        string     `json:"name"`
	Kind        string     `json:"kind"`
	Observer    string     `json:"observer"`
	State       path.State `json:"state"`
	Why         string     `json:"why,omitempty"`
	Connections int        `json:"connections"`
	Opened      uint64     `json:"opened"` // connections since the link began
	WireUp      uint64     `json:"wire_up"`
	WireDown    uint64     `json:"wire_down"`
	// Covers are those that share the link, if there are several.
	Covers []CoverStatus `json:"covers,omitempty"`
}

// CoverStatus is one cover of a link on one path.
type CoverStatus struct {
	Name        string     `json:"name"`
	State       path.State `json:"state"`
	Why         string     `json:"why,omitempty"`
	Connections int        `json:"connections"`
	Opened      uint64     `json:"opened"`
	Up          uint64     `json:"up"`   // bytes of the stream to the bridge, again or not
	Down        uint64     `json:"down"` // and from it, that no other connection brought before
	WireUp      uint64     `json:"wire_up"`
	WireDown    uint64     `json:"wire_down"`
}

// add adds what a connection carried.
func (s *CoverStatus) add(c *carrier) {
	carried := c.on.Stats()
	s.Up, s.Down, s.WireUp, s.WireDown = s.Up+carried.Sent, s.Down+carried.Received, s.WireUp+carried.WireOut, s.WireDown+carried.WireIn
}

// Status returns the state of the link.
func (s *Session) Status() Status {
	of := s.Link.Stats()
	st := Status{Since: s.since, Up: of.Sent - of.Retransmitted, Down: of.Received, WireUp: of.WireOut, WireDown: of.WireIn, Again: of.Retransmitted, PostQuantum: of.PostQuantum}
	_, st.Why = s.members.enough()
	s.mu.Lock()
	st.Connections = len(s.live)
	s.mu.Unlock()
	st.Paths = s.members.status()
	return st
}

// status returns the state of each path. A path may ask the kernel, so no lock is held for that.
func (m *members) status() []PathStatus {
	all := make([]PathStatus, len(m.all))
	for i, one := range m.all {
		info := one.Path.Path.Describe()
		all[i] = PathStatus{Name: one.Name, Kind: info.Kind, Observer: info.Observer}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, one := range m.all {
		s := &all[i]
		s.State, s.Why = one.state()
		for _, w := range one.ways {
			c := w.status()
			s.Connections, s.Opened, s.WireUp, s.WireDown = s.Connections+c.Connections, s.Opened+c.Opened, s.WireUp+c.WireUp, s.WireDown+c.WireDown
			if len(one.ways) > 1 {
				s.Covers = append(s.Covers, c)
			}
		}
	}
	return all
}

// status returns the state of one way. members.mu is held.
func (w *way) status() CoverStatus {
	s := w.past
	s.Name, s.Connections, s.Opened = w.cover.Name, len(w.live), w.opened
	s.State, s.Why = w.health.State()
	for c := range w.live {
		s.add(c)
	}
	return s
}

// Status returns the state of the link. ok is false if none is open, and err then says why the last one did not open.
func (m *Many) Status() (s Status, ok bool, err error) {
	m.mu.Lock()
	shared, err := m.shared, m.failed
	m.mu.Unlock()
	if shared == nil || over(shared) {
		return s, false, err
	}
	s = shared.Session.Status()
	s.Streams = shared.streams.Count()
	return s, true, nil
}
