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
		s.State, s.Why = one.health.State()
		s.Connections, s.Opened, s.WireUp, s.WireDown = len(one.live), one.opened, one.sent, one.got
		for c := range one.live {
			carried := c.on.Stats()
			s.WireUp += carried.WireOut
			s.WireDown += carried.WireIn
		}
	}
	return all
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
