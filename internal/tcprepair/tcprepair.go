// Package tcprepair moves an established TCP connection from one socket to another, also of another process or network namespace. The
// peer notices nothing. It works by TCP_REPAIR of Linux, as CRIU does (https://lwn.net/Articles/495304/), and both sides need CAP_NET_ADMIN.
//
//	held, err := tcprepair.Hold(conn)         // the kernel ignores what arrives for it from here on
//	state, err := held.State()                // to the other side
//	twin, err := tcprepair.Restore(state, o)  // there; it ignores packets too, and is silent
//	                                          // the network now leads the peer's packets to twin
//	err = held.Close()                        // no packet leaves
//	conn, err = twin.Resume()
//
// The peer repeats what it sent in between. Until [Held.Close] the old side can take the connection up again with [Held.Resume], if the new
// side has not.
//
// The new socket begins with an initial congestion window, and without ECN. It echoes no timestamp of the peer before it hears from it.
package tcprepair

import (
	"errors"
	"net"
	"net/netip"
)

// Held is a connection that ignores what arrives and sends nothing new: the old side of a move until [Held.Close], or the new one until
// [Held.Resume]. The old side may still repeat a packet that was not acknowledged.
type Held struct {
	conn *net.TCPConn // of the old side
	fd   int          // of the new side
	new  *State       // of the new side, as far as Resume has to restore it; nil at the old side
}

// State is all of a connection that moves. The sizes of its queues are bounded by [MaxQueue].
type State struct {
	Local, Remote netip.AddrPort
	Receive       []byte // that the program has not read
	Received      uint32 // sequence number of the first byte of Receive
	Send          []byte // that the peer has not acknowledged
	Sent          uint32 // sequence number of the first byte of Send
	Unsent        int    // bytes at the end of Send that never left
	MSS           uint16 // that the peer accepts, in bytes

	SACK, Timestamps bool
	Timestamp        uint32 // of the next packet; an opaque value of the kernel
	// Scaling says that both sides announced a window scale (RFC 7323): the peer's shifts SendScale, ours ReceiveScale bits.
	Scaling                 bool
	SendScale, ReceiveScale uint8
	Window                  Window

	SendBuffer, ReceiveBuffer uint32 // bytes, as SO_SNDBUF and SO_RCVBUF say
	NoDelay                   bool
	KeepAlive                 KeepAlive
	// Congestion is the name of the congestion control, or "" for that of the new side's machine, which is also taken if that lacks the other one.
	Congestion string
}

// Window is the state of flow control, as TCP_REPAIR_WINDOW has it. All are bytes or sequence numbers.
type Window struct {
	SendLast  uint32 // sequence number of the segment that updated Send last
	Send      uint32 // that the peer announced last
	SendMost  uint32 // that it ever announced
	Receive   uint32 // that this side announced last
	ReceiveAt uint32 // sequence number that this side had received then
}

// KeepAlive has the times of keep-alive probes, in seconds.
type KeepAlive struct {
	On                     bool
	Idle, Interval, Probes uint16
}

// Options say how to restore a connection.
type Options struct {
	// Foreign permits a local address that is none of this machine's (IP_TRANSPARENT). Routes have to lead its packets here.
	Foreign bool
}

// MaxQueue bounds each queue of a connection that moves, in bytes. It is more than the kernel's buffers hold by default.
const MaxQueue = 8 << 20

// The reasons why a connection cannot move. It goes on where it is.
var (
	ErrNotEstablished = errors.New("the connection is not established, or one side has ended it")
	ErrTooLarge       = errors.New("too much data is queued")
	ErrBusy           = errors.New("packets change the connection")
)
