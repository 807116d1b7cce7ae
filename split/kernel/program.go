package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"heddle/schedule"
)

// Verdicts of a program at tc (linux/pkt_cls.h).
const (
	verdictNext = -1 // TC_ACT_UNSPEC: other programs may look at the packet too
	verdictDrop = 2  // TC_ACT_SHOT
)

// markMask is the part of the packet's mark that says "decided"; the rest is the lane. The mark is drawn anew for each
// session, and the programs do not take its word: they compare device and address as well.
const markMask = 0xffffff00

// Where the programs keep the packet's headers on the stack.
const (
	headerAt = -48
	udpAt    = -56
)

// ethernetHeader is the length of an Ethernet header in bytes.
const ethernetHeader = 14

// family says where the fields of an IP header are (RFC 791; RFC 8200).
type family struct{ v6 bool }

func (f family) length() int { return map[bool]int{false: 4, true: 16}[f.v6] }
func (f family) header() int { return map[bool]int{false: 20, true: 40}[f.v6] }
func (f family) source() int { return map[bool]int{false: 12, true: 8}[f.v6] }
func (f family) target() int { return map[bool]int{false: 16, true: 24}[f.v6] }
func (f family) etherType() uint16 {
	return map[bool]uint16{false: unix.ETH_P_IP, true: unix.ETH_P_IPV6}[f.v6]
}

// session is what all programs of one session are written for.
type session struct {
	server netip.AddrPort
	every  schedule.Every
	start  uint64 // of unit 0, CLOCK_MONOTONIC in nanoseconds
	mark   uint32 // its last byte is 0
	lanes  int
	maps   *maps
}

func (s session) family() family { return family{s.server.Addr().Is6()} }

func (d drop) label() string { return fmt.Sprintf("drop-%d", int(d)) }

func networkOrder(v uint16) int32 {
	return int32(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v)))
}

func words(a netip.Addr) (all []uint32) {
	b := a.AsSlice()
	for i := 0; i < len(b); i += 4 {
		all = append(all, binary.NativeEndian.Uint32(b[i:]))
	}
	return all
}

// outbound writes the program for packets that leave a device whose link header is so long. Packets to the server that
// were decided pass where they belong; for the others it decides, or where divert is not 0 it sends them to the device
// of that number, which takes runs of segments apart first.
func (s session) outbound(link int, divert int) asm.Instructions {
	c := &code{}
	s.match(c, link, false)
	s.passDecided(c)
	c.at("undecided")
	if divert != 0 {
		s.divert(c, link, divert)
	} else {
		s.decide(c, link)
	}
	s.end(c)
	return c.ins
}

// match falls through with the offset of the UDP header in R7 where the packet is a datagram to the server, or, where
// back is true, from it. Fragments to the server are dropped: all but the first have no port.
func (s session) match(c *code, link int, back bool) {
	f := s.family()
	far, farPort, unclear := f.target(), 2, dropFragment.label()
	if back {
		far, farPort, unclear = f.source(), 0, "pass"
	}
	c.add(asm.Mov.Reg(asm.R6, asm.R1))
	c.context(asm.R1, skbProtocol)
	c.add(asm.JNE.Imm(asm.R1, networkOrder(f.etherType()), "pass"))
	c.load(headerAt, int32(f.header()), "pass", asm.Mov.Imm(asm.R2, int32(link)))
	c.notEqual(int16(headerAt+far), words(s.server.Addr()), "pass")
	if f.v6 {
		c.add(asm.LoadMem(asm.R1, asm.RFP, headerAt+6, asm.Byte))
		// Hop-by-hop options, routing, fragment, authentication and destination options may have UDP behind them.
		for _, extension := range []int32{0, 43, 44, 51, 60} {
			c.add(asm.JEq.Imm(asm.R1, extension, unclear))
		}
		c.add(asm.JNE.Imm(asm.R1, unix.IPPROTO_UDP, "pass"), asm.Mov.Imm(asm.R7, int32(link+40)))
	} else {
		c.add(asm.LoadMem(asm.R1, asm.RFP, headerAt+9, asm.Byte),
			asm.JNE.Imm(asm.R1, unix.IPPROTO_UDP, "pass"),
			asm.LoadMem(asm.R1, asm.RFP, headerAt+6, asm.Half),
			asm.And.Imm(asm.R1, networkOrder(0x3fff)), // more fragments, or an offset
			asm.JNE.Imm(asm.R1, 0, unclear),
			asm.LoadMem(asm.R7, asm.RFP, headerAt, asm.Byte),
			asm.And.Imm(asm.R7, 15),
			asm.LSh.Imm(asm.R7, 2),
			asm.Add.Imm(asm.R7, int32(link)))
	}
	malformed := dropMalformed.label()
	if back {
		malformed = "pass"
	}
	c.load(udpAt, 8, malformed, asm.Mov.Reg(asm.R2, asm.R7))
	c.add(asm.LoadMem(asm.R1, asm.RFP, int16(udpAt+farPort), asm.Half),
		asm.JNE.Imm(asm.R1, networkOrder(s.server.Port()), "pass"))
}

// passDecided lets a decided packet pass on the device and with the address of its lane, and nowhere else.
func (s session) passDecided(c *code) {
	c.context(asm.R8, skbMark)
	c.add(asm.Mov.Reg(asm.R1, asm.R8),
		asm.LoadImm(asm.R2, markMask, asm.DWord),
		asm.And.Reg(asm.R1, asm.R2),
		asm.LoadImm(asm.R2, int64(s.mark), asm.DWord),
		asm.JNE.Reg(asm.R1, asm.R2, "undecided"),
		asm.And.Imm(asm.R8, 0xff))
	c.lookupRegister(s.maps.lanes, asm.R8, dropStray.label())
	c.context(asm.R1, skbDevice)
	c.add(asm.LoadMem(asm.R2, asm.R0, laneIndex, asm.Word),
		asm.JNE.Reg(asm.R1, asm.R2, dropStray.label()))
	c.notSame(int16(headerAt+s.family().source()), laneSource, s.family().length(), dropStray.label())
	c.add(asm.Ja.Label("pass"))
}

// divert sends the packet to another device of this machine. Without an Ethernet header it gets an empty one.
func (s session) divert(c *code, link, device int) {
	s.addHeader(c, link)
	c.add(asm.Mov.Imm(asm.R1, int32(device)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return())
}

func (s session) addHeader(c *code, link int) {
	if link == 0 {
		c.add(asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, ethernetHeader), asm.Mov.Imm(asm.R3, 0),
			asm.FnSkbChangeHead.Call(), asm.JNE.Imm(asm.R0, 0, dropFailed.label()))
	}
}

// decide picks the lane, gives the packet its address and sends it by its device.
func (s session) decide(c *code, link int) {
	f := s.family()
	s.pick(c)
	c.lookupRegister(s.maps.lanes, asm.R8, dropUnplanned.label())
	c.add(asm.Mov.Reg(asm.R9, asm.R0),
		asm.LoadMem(asm.R1, asm.R9, laneIndex, asm.Word),
		asm.JEq.Imm(asm.R1, 0, dropStray.label()))
	c.context(asm.R1, skbSegment)
	c.add(asm.JEq.Imm(asm.R1, 0, "single"),
		asm.Add.Reg(asm.R1, asm.R7),
		asm.Add.Imm(asm.R1, int32(8-link)),
		asm.Ja.Label("size"))
	c.at("single")
	c.context(asm.R1, skbLength)
	c.add(asm.Sub.Imm(asm.R1, int32(link)))
	c.at("size")
	c.add(asm.LoadMem(asm.R2, asm.R9, laneMTU, asm.Word),
		asm.JGT.Reg(asm.R1, asm.R2, dropTooBig.label()))
	s.remember(c)
	c.add(asm.Mov.Reg(asm.R0, asm.R9))
	c.notSame(int16(headerAt+f.source()), laneSource, f.length(), "rewrite")
	c.add(asm.Ja.Label("rewritten"))
	c.at("rewrite")
	c.replace(f, link, int16(headerAt+f.source()), f.source(), asm.Instructions{asm.Mov.Reg(asm.R3, asm.R9), asm.Add.Imm(asm.R3, laneSource)})
	c.at("rewritten")
	c.count(laneUp, "counted")
	c.add(asm.LoadImm(asm.R1, int64(s.mark), asm.DWord),
		asm.Or.Reg(asm.R1, asm.R8),
		asm.StoreMem(asm.R6, skbMark, asm.R1, asm.Word))
	s.addHeader(c, link)
	// The kernel looks the neighbour up itself. Were it told, packets that wait for a neighbour's address would keep the
	// route that they were made for, and go to the other path's neighbour in the end.
	c.add(asm.LoadMem(asm.R1, asm.R9, laneIndex, asm.Word),
		asm.Mov.Imm(asm.R2, 0),
		asm.Mov.Imm(asm.R3, 0),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnRedirectNeigh.Call(),
		asm.Return())
}

// pick leaves the lane of the packet in R8.
func (s session) pick(c *code) {
	c.lookupNumber(s.maps.state, 0, dropStopped.label())
	c.add(asm.Mov.Reg(asm.R9, asm.R0),
		asm.FnKtimeGetNs.Call(),
		asm.LoadMem(asm.R1, asm.R9, stateDeadline, asm.DWord),
		asm.JGT.Reg(asm.R0, asm.R1, dropStopped.label()))
	switch {
	case s.every.Packets > 0:
		c.context(asm.R1, skbSegments)
		c.add(asm.JGT.Imm(asm.R1, 1, dropRun.label()),
			asm.Mov.Imm(asm.R8, 1))
		c.fetch(asm.FetchAdd, asm.R9, asm.R8, stateTaken)
		c.add(asm.Div.Imm(asm.R8, int32(s.every.Packets)))
	case s.every.Period > 0:
		c.add(asm.LoadImm(asm.R1, int64(s.start), asm.DWord),
			asm.Sub.Reg(asm.R0, asm.R1),
			asm.LoadImm(asm.R1, int64(s.every.Period), asm.DWord),
			asm.Div.Reg(asm.R0, asm.R1),
			asm.Mov.Reg(asm.R8, asm.R0))
	default:
		c.add(asm.Mov.Imm(asm.R8, 0))
	}
	c.add(asm.LoadMem(asm.R1, asm.R9, stateTrial, asm.DWord),
		asm.JEq.Imm(asm.R1, 0, "planned"),
		asm.Mov.Imm(asm.R1, 0))
	c.fetch(asm.Xchg, asm.R9, asm.R1, stateTrial)
	c.add(asm.JEq.Imm(asm.R1, 0, "planned"),
		asm.Mov.Reg(asm.R8, asm.R1),
		asm.Sub.Imm(asm.R8, 1),
		asm.Ja.Label("picked"))
	c.at("planned")
	c.add(asm.Mov.Reg(asm.R1, asm.R8), asm.And.Imm(asm.R1, planSize-1))
	c.lookupRegister(s.maps.plan, asm.R1, dropUnplanned.label())
	c.add(asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.RSh.Imm(asm.R2, 8),
		asm.Add.Imm(asm.R8, 1),
		asm.JNE.Reg(asm.R2, asm.R8, dropUnplanned.label()),
		asm.And.Imm(asm.R1, 0xff),
		asm.Mov.Reg(asm.R8, asm.R1))
	c.at("picked")
}

// remember keeps the address that the program of this port sent from. Where two programs share a port on two addresses
// the last one to send gets the answers.
func (s session) remember(c *code) {
	from := int16(headerAt + s.family().source())
	c.add(asm.LoadMem(asm.R1, asm.RFP, udpAt, asm.Half))
	c.lookupRegister(s.maps.senders, asm.R1, dropFailed.label())
	c.notSame(from, 0, s.family().length(), "remember")
	c.add(asm.Ja.Label("remembered"))
	c.at("remember")
	for i := int16(0); i < int16(s.family().length()); i += 4 {
		c.add(asm.LoadMem(asm.R1, asm.RFP, from+i, asm.Word), asm.StoreMem(asm.R0, i, asm.R1, asm.Word))
	}
	c.at("remembered")
}

// inbound writes the program for packets that arrive on a device: answers from the server to a lane's address get the
// address of the program that they are for.
func (s session) inbound(link int) asm.Instructions {
	f := s.family()
	c := &code{}
	s.match(c, link, true)
	to := int16(headerAt + f.target())
	for i := range s.lanes {
		next := fmt.Sprintf("lane-%d", i+1)
		c.lookupNumber(s.maps.lanes, i, "pass")
		c.context(asm.R1, skbDevice)
		c.add(asm.LoadMem(asm.R2, asm.R0, laneIndex, asm.Word), asm.JNE.Reg(asm.R1, asm.R2, next))
		c.notSame(to, laneSource, f.length(), next)
		c.add(asm.Mov.Reg(asm.R9, asm.R0), asm.Ja.Label("found"))
		c.at(next)
	}
	c.add(asm.Ja.Label("pass"))
	c.at("found")
	c.count(laneDown, "counted")
	c.add(asm.LoadMem(asm.R1, asm.RFP, udpAt+2, asm.Half))
	c.lookupRegister(s.maps.senders, asm.R1, "pass")
	c.add(asm.Mov.Reg(asm.R9, asm.R0))
	c.notSame(to, 0, f.length(), "known")
	c.add(asm.Ja.Label("pass"))
	c.at("known")
	c.add(asm.LoadMem(asm.R1, asm.R9, 0, asm.DWord), asm.JEq.Imm(asm.R1, 0, "pass")) // no program sent from this port
	c.replace(f, link, to, f.target(), asm.Instructions{asm.Mov.Reg(asm.R3, asm.R9)})
	s.end(c)
	return c.ins
}

// end writes what the others jump to; the kernel refuses instructions that nothing reaches.
func (s session) end(c *code) {
	used := map[string]bool{}
	for _, i := range c.ins {
		used[i.Reference()] = true
	}
	c.at("pass")
	c.add(asm.Mov.Imm(asm.R0, verdictNext), asm.Return())
	for d := range drop(dropKinds) {
		if used[d.label()] {
			c.at(d.label())
			c.add(asm.Mov.Imm(asm.R7, int32(stateDrops+8*int(d))), asm.Ja.Label("drop"))
		}
	}
	c.at("drop")
	c.lookupNumber(s.maps.state, 0, "dropped")
	c.add(asm.Add.Reg(asm.R0, asm.R7), asm.Mov.Reg(asm.R9, asm.R0))
	c.segments(asm.R1, "segments")
	c.add(asm.AddAtomic.Mem(asm.R9, asm.R1, asm.DWord, 0))
	c.at("dropped")
	c.add(asm.Mov.Imm(asm.R0, verdictDrop), asm.Return())
}

// load hands a program to the kernel.
func (s session) load(name string, ins asm.Instructions) (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.SchedCLS, Instructions: ins, License: "Apache-2.0"})
}
