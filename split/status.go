package split

import (
	"net/netip"
	"time"
)

// Status is what `heddle status` prints of one running session. Its JSON fields are a stable interface.
type Status struct {
	Session  string       `json:"session"`       // such as "office" or "127.0.0.1:51820/127.0.0.1:40112"
	Plane    string       `json:"plane"`         // "wireguard" or "relay"
	To       string       `json:"to"`            // the server as the user wrote it
	Server   string       `json:"server"`        // the address in use
	Schedule string       `json:"schedule"`      // such as "weighted"
	Every    string       `json:"every"`         // such as "100ms" or "50p"
	MinPaths int          `json:"min_paths"`     // fewer healthy paths than this and nothing is sent
	Degrade  bool         `json:"degrade"`       // fewer are permitted
	State    string       `json:"state"`         // "starting", "running", "stopped" (fail closed)
	Why      string       `json:"why,omitempty"` // why it is not running
	Since    time.Time    `json:"since"`         // start of the session
	Switches uint64       `json:"switches"`      // changes of path
	Claim    string       `json:"claim"`         // what the split hides and what it does not
	Warnings []string     `json:"warnings,omitempty"`
	Paths    []PathStatus `json:"paths"`
}

// PathStatus is one path of a session.
type PathStatus struct {
	Name      string         `json:"name"`
	Kind      string         `json:"kind"`
	Observer  string         `json:"observer"`
	State     string         `json:"state"`         // see path.State
	Why       string         `json:"why,omitempty"` // why the path is idle or down
	Address   netip.AddrPort `json:"address"`       // local address, zero where none
	MTU       int            `json:"mtu"`
	Weight    float64        `json:"weight"`         // probability that the schedule draws it
	RTT       time.Duration  `json:"rtt_ns"`         // 0 where unknown
	Loss      *float64       `json:"loss,omitempty"` // share of downlink datagrams lost, nil where unknown
	Up        Count          `json:"up"`             // client to server
	Down      Count          `json:"down"`           // server to client
	Switches  uint64         `json:"switches"`       // switches to this path
	LastHeard *time.Time     `json:"last_heard,omitempty"`
}

// Count is traffic in one direction over one path.
type Count struct {
	Packets uint64  `json:"packets"`
	Bytes   uint64  `json:"bytes"`   // UDP payload
	Dropped uint64  `json:"dropped"` // refused by this machine, or not from the server
	Share   float64 `json:"share"`   // of the session's bytes in this direction, 0 to 1
}
