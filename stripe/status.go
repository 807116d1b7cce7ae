package stripe

import (
	"time"

	"heddle/identity"
)

// Status is the state of a session. Its JSON fields are a stable interface.
type Status struct {
	Session  string       `json:"session"` // first half of the id, in hexadecimal
	Peer     identity.Key `json:"peer"`
	Service  string       `json:"service"`
	Schedule string       `json:"schedule"`
	Shares   string       `json:"shares"`
	Segment  int          `json:"segment"`       // bytes
	MinPaths int          `json:"min_paths"`     // nothing is sent over fewer paths
	Degrade  bool         `json:"degrade"`       // fewer paths are permitted
	State    string       `json:"state"`         // "starting", "running", "stopped" (fail closed), "closed" or "failed"
	Why      string       `json:"why,omitempty"` // why it is not running
	Since    time.Time    `json:"since"`
	Sent     uint64       `json:"sent"`     // bytes of the stream cut into segments
	Received uint64       `json:"received"` // bytes of the stream received in order
	Unproved uint64       `json:"unproved"` // bytes written that the peer has not confirmed
	Claim    string       `json:"claim"`    // what the session hides and what it does not
	Paths    []PathStatus `json:"paths"`
}

// FillShares computes the share of each path in both directions.
func (s *Status) FillShares() {
	var up, down uint64
	for _, p := range s.Paths {
		up, down = up+p.Up.Bytes, down+p.Down.Bytes
	}
	for i := range s.Paths {
		p := &s.Paths[i]
		p.Up.Share, p.Down.Share = float64(p.Up.Bytes)/float64(max(up, 1)), float64(p.Down.Bytes)/float64(max(down, 1))
	}
}

// PathStatus is the state of one path.
type PathStatus struct {
	Name     string `json:"name"`     // as given; on the listening side its number from 1
	Observer string `json:"observer"` // who sees it; on the listening side its remote address
	// State is "dialling", "up", "slow" (up, but its shares arrive too late to be useful) or "down".
	State     string        `json:"state"`
	Why       string        `json:"why,omitempty"` // why it is not up, or idle
	Weight    float64       `json:"weight"`        // share that the schedule intends, 0 to 1
	RTT       time.Duration `json:"rtt_ns"`        // of a ping behind queued data; 0 if unknown
	Up        Count         `json:"up"`            // sent by this side
	Down      Count         `json:"down"`          // received by this side
	Queued    int           `json:"queued"`        // bytes
	Joins     int           `json:"joins"`         // times it came up
	LastHeard *time.Time    `json:"last_heard,omitempty"`
}

// Count is the traffic in one direction over one path.
type Count struct {
	Segments uint64  `json:"segments"` // data only, each counted once
	Bytes    uint64  `json:"bytes"`    // of those segments, with their headers
	Again    uint64  `json:"again"`    // segments retransmitted after a reconnect, or received twice
	Skipped  uint64  `json:"skipped"`  // shares not sent because the peer no longer needed them
	Share    float64 `json:"share"`    // of the session's bytes in this direction, 0 to 1
}
