package kernel

import (
	"encoding/binary"
	"net/netip"

	"github.com/cilium/ebpf"

	"heddle/internal/bpf"
	"heddle/schedule"
)

// markMask is the part of the packet's mark that says "decided"; the rest is the member.
const markMask = 0xffffff00

// session is what all programs of one session are loaded for.
type session struct {
	server netip.AddrPort
	every  schedule.Every
	start  uint64 // of unit 0, CLOCK_MONOTONIC in nanoseconds
	mark   uint32 // its last byte is 0
	maps   *maps
}

// outbound loads the program for packets that leave a device whose link header is so long. Packets to the server that
// were decided pass where they belong; for the others it decides, or where divert is not 0 it sends them to the device
// of that number, which takes runs of segments apart first.
func (s session) outbound(link, divert int) (*ebpf.Program, error) {
	return s.load([]string{splitProgHeddleOut4, splitProgHeddleOut6}, link, divert)
}

// inbound loads the program for arriving packets. It gives answers the address of the program that they are for.
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
