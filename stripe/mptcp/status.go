package mptcp

import (
	"fmt"
	"net/netip"
	"time"

	"heddle/path/identity"
)

// Status is what is known of a connection. Its JSON fields are a stable interface.
type Status struct {
	Plane    string       `json:"plane"` // "mptcp"
	Peer     identity.Key `json:"peer"`
	Service  string       `json:"service"`
	MinPaths int          `json:"min_paths"`     // fewer subflows than this and nothing is written
	Degrade  bool         `json:"degrade"`       // fewer are permitted
	State    string       `json:"state"`         // "running", "stopped" (waits for a path), "closed" or "failed"
	Why      string       `json:"why,omitempty"` // why it is not running
	Since    time.Time    `json:"since"`
	Claim    string       `json:"claim"`
	Paths    []PathStatus `json:"paths"`
}

// PathStatus is one subflow. The counts are the kernel's, of TCP payload with what was sent again; those of a subflow
// that ended are as of up to a twentieth of a second before its end.
type PathStatus struct {
	Name  string         `json:"name"` // as given, or the address it comes from on the side that listens
	Local netip.AddrPort `json:"local"`
	To    netip.AddrPort `json:"to"`
	State string         `json:"state"` // "dialling", "up", "stalled" (what it sends is not acknowledged) or "down"
	Why   string         `json:"why,omitempty"`
	RTT   time.Duration  `json:"rtt_ns"`
	Up    Count          `json:"up"`   // sent by this side
	Down  Count          `json:"down"` // received by this side
	Joins int            `json:"joins"`
}

// Count is the traffic in one direction of a subflow.
type Count struct {
	Bytes uint64  `json:"bytes"`
	Again uint64  `json:"again"` // bytes of those that TCP sent again on this subflow
	Share float64 `json:"share"` // of the connection's bytes in this direction, 0 to 1
}

// The states of a subflow.
const (
	stateDialling = "dialling"
	stateUp       = "up"
	stateStalled  = "stalled"
	stateDown     = "down"
)

// Claim says what the connection hides and what it does not. The limits are the kernel's.
func (c *Conn) Claim() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return claim(c.min, len(c.subflows), c.degrade)
}

func claim(required, paths int, degrade bool) string {
	text := fmt.Sprintf("Linux MPTCP over %d subflows, TLS 1.3 from end to end inside. ", paths) +
		"Each node's networks see the TCP of their own subflow: addresses, sizes, times and a part of the encrypted stream, which the kernel chooses, not Heddle. " +
		"There is ONE SCHEDULER, which fills the fastest subflow first: no share is promised, and a message of less than some tens of kB takes ONE subflow whole. " +
		"It FAILS OPEN: what a dying subflow holds is sent again over the others by the kernel, with what it already took to send, before Heddle stops. "
	if degrade {
		return text + "With --degrade the rest follows over whatever is left, even one subflow."
	}
	return text + fmt.Sprintf("Heddle writes nothing while fewer than %d are up, and ends the connection if that lasts. --plane stripe promises more.", required)
}

// Status says how the connection is.
func (c *Conn) Status() Status {
	c.look(false)
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Status{Plane: "mptcp", Peer: c.peer, Service: c.service, MinPaths: c.min, Degrade: c.degrade, State: "running", Since: c.since,
		Claim: claim(c.min, len(c.subflows), c.degrade)}
	switch {
	case c.failure != nil:
		s.State, s.Why = "failed", c.failure.Error()
	case c.isClosed(), c.ended && c.socket.ended():
		s.State = "closed"
	case !c.open:
		s.State, s.Why = "stopped", fmt.Sprintf("fewer than %d paths are up", c.required())
	}
	var up, down uint64
	for _, w := range c.subflows {
		s.Paths = append(s.Paths, w.PathStatus)
		up, down = up+w.Up.Bytes, down+w.Down.Bytes
	}
	for i := range s.Paths {
		p := &s.Paths[i]
		p.Up.Share, p.Down.Share = share(p.Up.Bytes, up), share(p.Down.Bytes, down)
	}
	return s
}

func share(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
