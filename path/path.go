// Package path is the center of Heddle: a path is one way out of this machine, seen by one observer.
//
// A [Path] is written NAME=KIND:ARG, in flags and in heddle.toml; a tunnel may ride another path: NAME=KIND:ARG@BASE. Kinds
// register by scheme, so that a plane can add a kind that no other plane knows of.
//
// A path carries datagrams, streams or both: see [Carries]. [Open] opens a [Flow] of datagrams to one remote address, [Dial]
// a stream. Both use only that path: what it cannot send fails, and never falls back to another path.
//
// Do not use this package to decide which path a packet takes: package schedule does that.
package path

import (
	"errors"
	"net/netip"
)

// Path is one way out of this machine. It is an [Opener], a [Dialer] or both. What its flows share, such as a tunnel, is
// opened with the first flow and closed some time after the last one.
type Path interface {
	// Describe returns the state of the path now. It is cheap enough to call once a second.
	Describe() Info
}

// Flow carries the datagrams of one session over one path. Send and Receive may run concurrently, but neither with itself.
type Flow interface {
	// Send sends each element of datagrams as one UDP datagram, in order, in as few system calls as possible. It returns how
	// many were sent; if fewer than given, err says why.
	Send(datagrams [][]byte) (n int, err error)
	// Receive blocks until datagrams arrive, fills into and returns how many elements it filled. The data is valid until the
	// next call. After Close, Receive returns [net.ErrClosed].
	Receive(into []Inbound) (n int, err error)
	Close() error
}

// Rotator is a flow that can change its local port, or the like, at each switch.
type Rotator interface {
	Rotate() error
}

// Sized is a flow that knows its largest packet better than its path does.
type Sized interface {
	// MTU returns the size of the largest IP packet that the flow carries now in bytes.
	MTU() int
}

// Addressed is a flow that knows its local address.
type Addressed interface {
	LocalAddr() netip.AddrPort
}

// Inbound is one receive: one datagram, or several that the kernel joined (UDP_GRO).
type Inbound struct {
	// Data holds the payloads: datagrams of Size bytes each; the last may be shorter.
	Data []byte
	// Size is the length of each datagram in Data, in bytes; at least 1 if Data is not empty.
	Size int
	From netip.AddrPort // the sender
	// Exit identifies who counts what it sends to this machine, such as a proxy that several paths lead to; 0 means nobody.
	Exit uint64
	// Order is the position of the first datagram, from 1, in what Exit sent by all paths; 0 if unknown.
	Order uint64
}

// Info is the state of a path at one moment.
type Info struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	Arg  string `json:"arg"`
	// Observer names the place in the network that sees this path, such as "if:eth0". One name is one observer.
	Observer string `json:"observer"`
	// Exit names the place that the server sees as the source, if known and not this machine's own address. Paths that share
	// an exit show the server one address.
	Exit string `json:"exit,omitempty"`
	// Endpoint is the destination of a tunnel's own packets, HOST:PORT, or empty.
	Endpoint string `json:"endpoint,omitempty"`
	// Addresses are the local addresses that the path can send from.
	Addresses []netip.Addr `json:"addresses"`
	// MTU is the largest IP packet in bytes, or 0 if unknown.
	MTU int `json:"mtu"`
	// Fragments reports that larger datagrams leave as IP fragments. Other paths refuse them.
	Fragments bool `json:"fragments,omitempty"`
	// Ready reports whether this machine could send by the path now, else Why says why not and Hint what to do. A ready path
	// may still be dead farther away: see [Health].
	Ready bool   `json:"ready"`
	Why   string `json:"why,omitempty"`
	Hint  string `json:"hint,omitempty"`
	// Claim says in one line what this path hides and what it does not.
	Claim string `json:"claim"`
}

// Explain sets Ready, Why and Hint from the error that keeps the path from working, or nil.
func (i *Info) Explain(err error) {
	i.Ready, i.Why, i.Hint = err == nil, "", ""
	if e, ok := errors.AsType[*Error](err); ok {
		i.Why, i.Hint = e.Why, e.Hint
	} else if err != nil {
		i.Why = err.Error()
	}
}
