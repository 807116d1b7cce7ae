package tcprepair

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
)

// version is the first byte of an encoded State.
const version = 2

// The flags of an encoded State.
const (
	flagIPv6 = 1 << iota
	flagSACK
	flagTimestamps
	flagScaling
	flagNoDelay
	flagKeepAlive
	flagsEnd
)

// Limits of the kernel, and of what makes sense.
const (
	mostScale    = 14       // RFC 7323, section 2.3
	mostBuffer   = 64 << 20 // bytes
	mostKeep     = 32767    // seconds; MAX_TCP_KEEPIDLE and MAX_TCP_KEEPINTVL
	mostProbes   = 127      // MAX_TCP_KEEPCNT
	mostScaled   = 65535 << mostScale
	addressBytes = 16
	nameBytes    = 16 // TCP_CA_NAME_MAX, with a zero at the end
)

// head is the part of an encoded State with a fixed size, in network byte order. The queues follow it: Receive, Send.
type head struct {
	Version, Flags            uint8
	Local, Remote             [addressBytes]byte // IPv4 in the first four bytes
	LocalPort, RemotePort     uint16
	Received, Sent, Unsent    uint32
	MSS                       uint16
	Timestamp                 uint32
	SendScale, ReceiveScale   uint8
	Window                    Window
	SendBuffer, ReceiveBuffer uint32
	Idle, Interval, Probes    uint16
	Congestion                [nameBytes]byte // zeros follow the name
	ReceiveSize, SendSize     uint32
}

var headSize = binary.Size(head{})

var errEncoding = errors.New("it is no state of a TCP connection")

// MarshalBinary implements [encoding.BinaryMarshaler]. It fails if the state is impossible.
func (s State) MarshalBinary() ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	h := head{Version: version, LocalPort: s.Local.Port(), RemotePort: s.Remote.Port(), Received: s.Received, Sent: s.Sent, Unsent: uint32(s.Unsent),
		MSS: s.MSS, Timestamp: s.Timestamp, SendScale: s.SendScale, ReceiveScale: s.ReceiveScale, Window: s.Window, SendBuffer: s.SendBuffer,
		ReceiveBuffer: s.ReceiveBuffer, Idle: s.KeepAlive.Idle, Interval: s.KeepAlive.Interval, Probes: s.KeepAlive.Probes,
		ReceiveSize: uint32(len(s.Receive)), SendSize: uint32(len(s.Send))}
	for flag, is := range s.flags() {
		if is {
			h.Flags |= flag
		}
	}
	copy(h.Local[:], s.Local.Addr().AsSlice())
	copy(h.Remote[:], s.Remote.Addr().AsSlice())
	copy(h.Congestion[:], s.Congestion)
	b, err := binary.Append(make([]byte, 0, headSize+len(s.Receive)+len(s.Send)), binary.BigEndian, h)
	if err != nil {
		return nil, err
	}
	return append(append(b, s.Receive...), s.Send...), nil
}

func (s State) flags() map[uint8]bool {
	return map[uint8]bool{flagIPv6: s.Local.Addr().Is6(), flagSACK: s.SACK, flagTimestamps: s.Timestamps, flagScaling: s.Scaling,
		flagNoDelay: s.NoDelay, flagKeepAlive: s.KeepAlive.On}
}

// UnmarshalBinary implements [encoding.BinaryUnmarshaler]. The queues refer to b.
func (s *State) UnmarshalBinary(b []byte) error {
	var h head
	n, err := binary.Decode(b, binary.BigEndian, &h)
	if err != nil || h.Version != version || h.Flags >= flagsEnd || h.ReceiveSize > MaxQueue || h.SendSize > MaxQueue || h.Unsent > h.SendSize {
		return errEncoding
	}
	if b = b[n:]; uint64(len(b)) != uint64(h.ReceiveSize)+uint64(h.SendSize) {
		return errEncoding
	}
	v6 := h.Flags&flagIPv6 != 0
	local, ok := address(h.Local, v6)
	remote, alsoOK := address(h.Remote, v6)
	if !ok || !alsoOK {
		return errEncoding
	}
	congestion := string(bytes.TrimRight(h.Congestion[:], "\x00"))
	*s = State{Local: netip.AddrPortFrom(local, h.LocalPort), Remote: netip.AddrPortFrom(remote, h.RemotePort),
		Receive: b[:h.ReceiveSize:h.ReceiveSize], Received: h.Received, Send: b[h.ReceiveSize:], Sent: h.Sent, Unsent: int(h.Unsent), MSS: h.MSS,
		SACK: h.Flags&flagSACK != 0, Timestamps: h.Flags&flagTimestamps != 0, Timestamp: h.Timestamp,
		Scaling: h.Flags&flagScaling != 0, SendScale: h.SendScale, ReceiveScale: h.ReceiveScale, Window: h.Window,
		SendBuffer: h.SendBuffer, ReceiveBuffer: h.ReceiveBuffer, NoDelay: h.Flags&flagNoDelay != 0,
		KeepAlive: KeepAlive{h.Flags&flagKeepAlive != 0, h.Idle, h.Interval, h.Probes}, Congestion: congestion}
	return s.check()
}

// address reads an address, and reports whether nothing follows it.
func address(b [addressBytes]byte, v6 bool) (netip.Addr, bool) {
	if v6 {
		return netip.AddrFrom16(b), true
	}
	return netip.AddrFrom4([4]byte(b[:4])), [addressBytes - 4]byte(b[4:]) == [addressBytes - 4]byte{}
}

// check refuses what no connection of a kernel has.
func (s State) check() error {
	k, w := s.KeepAlive, s.Window
	within := func(n, most uint16) bool { return n >= 1 && n <= most }
	switch {
	case !unicast(s.Local) || !unicast(s.Remote) || s.Local.Addr().Is4() != s.Remote.Addr().Is4():
	case len(s.Receive) > MaxQueue || len(s.Send) > MaxQueue:
		return ErrTooLarge
	case s.Unsent < 0 || s.Unsent > len(s.Send) || s.MSS == 0:
	case s.SendScale > mostScale || s.ReceiveScale > mostScale || !s.Scaling && (s.SendScale > 0 || s.ReceiveScale > 0):
	case !s.Timestamps && s.Timestamp != 0:
	case w.Send > w.SendMost || w.SendMost > mostScaled || w.Receive > mostScaled:
	case s.SendBuffer > mostBuffer || s.ReceiveBuffer > mostBuffer:
	case !within(k.Idle, mostKeep) || !within(k.Interval, mostKeep) || !within(k.Probes, mostProbes):
	case len(s.Congestion) >= nameBytes || strings.IndexFunc(s.Congestion, func(r rune) bool { return r <= ' ' || r > '~' }) >= 0:
	default:
		return nil
	}
	return errEncoding
}

// unicast reports whether a TCP connection of another machine may have an address. Those of one link need its number on this machine.
func unicast(a netip.AddrPort) bool {
	ip := a.Addr()
	return ip.IsValid() && !ip.Is4In6() && ip.Zone() == "" && !ip.IsUnspecified() && !ip.IsMulticast() && !ip.IsLinkLocalUnicast() &&
		ip != netip.AddrFrom4([4]byte{255, 255, 255, 255}) && a.Port() != 0
}
