package kernel

import (
	"encoding/binary"
	"net/netip"

	"github.com/cilium/ebpf"

	"heddle/internal/bpf"
	"heddle/schedule"
)

// markMask is the part of a packet's mark that says "decided"; the rest is the member.
const markMask = 0xffffff00

// session is what all programs of a session are loaded with.
type session struct {
	server netip.AddrPort
	every  schedule.Every
	start  uint64 // of unit 0, CLOCK_MONOTONIC in nanoseconds
	mark   uint32 // its last byte is 0
	maps   *maps
}

// outbound loads the program for packets leaving a device with this link header length. Decided packets to the server pass
// at their own device. For others it decides or, if divert is not 0, sends them to that device, to be segmented first.
func (s session) outbound(link, divert int) (*ebpf.Program, error) {
	return s.load([]string{splitProgHeddleOut4, splitProgHeddleOut6}, link, divert)
}

// inbound loads the program for arriving packets. It restores the destination address of answers.
func (s session) inbound(link int) (*ebpf.Program, error) {
	return s.load([]string{splitProgHeddleIn4, splitProgHeddleIn6}, link, 0)
}

func (s session) load(programs []string, link, divert int) (*ebpf.Program, error) {
	object, err := loadSplit()
	if err != nil {
		return nil, err
	}
	program := programs[0]
	if s.server.Addr().Is6() {
		program = programs[1]
	}
	var address [16]byte
	copy(address[:], s.server.Addr().AsSlice())
	return bpf.Load(object, program, map[string]any{
		splitVarServer:  address,
		splitVarPort:    [2]byte(binary.BigEndian.AppendUint16(nil, s.server.Port())),
		splitVarMark:    s.mark,
		splitVarStart:   s.start,
		splitVarPeriod:  uint64(s.every.Period),
		splitVarPackets: uint32(s.every.Packets),
		splitVarHeader:  uint32(link),
		splitVarDivert:  uint32(divert),
	}, s.maps.all)
}
