// Package path is the narrow waist of Heddle: one way out of this machine, seen by one observer.
//
// A [Path] is written NAME=KIND:ARG, the same in flags and in heddle.toml; a tunnel may ride another path, as
// NAME=KIND:ARG@BASE. Kinds are registered by their scheme, so
// that a plane which offers a way out (an overlay node, a disguised link) adds a kind and no other plane knows of it.
//
// A path carries datagrams, streams or both: see [Carries]. [Open] makes a [Flow], datagrams to and from one remote
// address, and [Dial] a stream; both use that path and no other. What cannot be sent on its own path fails; it never
// falls back to another one.
//
// Do not use this package to decide which path a packet takes: that is package schedule.
package path

import (
	"errors"
	"net/netip"
)

// Path is one way out of this machine.
//
// It is an [Opener], a [Dialer] or both. It may hold something open for its flows, such as a tunnel. It does so from the
// first Open on, and lets go of it a while after the last flow was closed.
type Path interface {
	// Describe says what the path is at this moment. It is cheap enough to be called once a second.
	Describe() Info
}

// Flow carries the datagrams of one session over one path. Send and Receive may run concurrently with each other;
// neither may run concurrently with itself.
type Flow interface {
	// Send sends each element of datagrams as one UDP datagram, in order, in as few system calls as the kernel allows.
	// It returns how many went out; where that is fewer than given, err says why.
	Send(datagrams [][]byte) (n int, err error)
	// Receive blocks until datagrams arrive, fills into and returns how many elements it filled. The data stays valid
	// until the next call. It returns [net.ErrClosed] after Close.
	Receive(into []Inbound) (n int, err error)
	Close() error
}

// Rotator is a flow that takes a new local port (or the like) at each switch.
type Rotator interface {
	Rotate() error
}

// Addressed is a flow that knows the local address its datagrams leave from.
type Addressed interface {
	LocalAddr() netip.AddrPort
}

// Inbound is one receive: one datagram, or a run of datagrams that the kernel joined (UDP_GRO).
type Inbound struct {
	// Data holds the payload: datagrams of Size bytes each, of which the last may be shorter.
	Data []byte
	// Size is the length of each datagram in Data, in bytes; at least 1 where Data is not empty.
	Size int
	// From is who sent it.
	From netip.AddrPort
	// Exit tells apart those who count what they send towards this machine, such as a proxy that several paths lead to;
	// 0 where nobody counts.
	Exit uint64
	// Order is the place of the first datagram, from 1, in what Exit sent by all paths; the others follow it. 0 where the
	// place is unknown.
	Order uint64
}

// Info is what a path is at one moment.
type Info struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	Arg  string `json:"arg"`
	// Observer names the place in the network that sees this path, such as "if:eth0". Paths that share an observer
	// are one observer.
	Observer string `json:"observer"`
	// Exit names the place that the server sees the packets come from, where that is another one than this machine's
	// own address and is known: paths that share an exit show the server one address.
	Exit string `json:"exit,omitempty"`
	// Endpoint is where a tunnel's own packets go, HOST:PORT; empty for what is no tunnel.
	Endpoint string `json:"endpoint,omitempty"`
	// Addresses are the local addresses that the path can send from.
	Addresses []netip.Addr `json:"addresses"`
	// MTU is the largest IP packet in bytes, or 0 where it is unknown.
	MTU int `json:"mtu"`
	// Ready reports whether the path could send now as far as this machine knows; Why says why not, and Hint what to
	// do about it. A ready path may still be dead further away: see [Health].
	Ready bool   `json:"ready"`
	Why   string `json:"why,omitempty"`
	Hint  string `json:"hint,omitempty"`
	// Claim says in a line what this way out hides, and what it does not.
	Claim string `json:"claim"`
}

// Explain fills Ready, Why and Hint from the error that keeps the path from working, or nil.
func (i *Info) Explain(err error) {
	i.Ready, i.Why, i.Hint = err == nil, "", ""
	if e, ok := errors.AsType[*Error](err); ok {
		i.Why, i.Hint = e.Why, e.Hint
	} else if err != nil {
		i.Why = err.Error()
	}
}
