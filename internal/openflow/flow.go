package openflow

import (
	"encoding/binary"
	"time"
)

// Port is that of a bridge, by its number or one of the reserved ones (section 4.5).
type Port uint32

// Reserved ports.
const (
	Normal     Port = 0xfffffffa // where a switch without OpenFlow would send the packet
	Controller Port = 0xfffffffd
	anyPort    Port = 0xffffffff
)

const (
	anyGroup   = 0xffffffff
	noBuffer   = 0xffffffff
	firstTable = 0
)

// Action is one in the form of the wire (section 7.2.5).
type Action []byte

const (
	actionOutput   = 0
	actionSetTTL   = 23
	actionSetField = 25
	applyActions   = 4 // the type of instruction (section 7.2.4)
)

// Output sends the packet to a port. The controller gets the first bytes alone.
func Output(p Port, bytes uint16) Action {
	b := binary.BigEndian.AppendUint32([]byte{0, actionOutput, 0, 16}, uint32(p))
	return append(binary.BigEndian.AppendUint16(b, bytes), 0, 0, 0, 0, 0, 0)
}

// SetTTL sets the TTL or hop limit.
func SetTTL(ttl uint8) Action { return Action{0, actionSetTTL, 0, 8, ttl, 0, 0, 0} }

// Set sets a field.
func Set(f Field) Action {
	b := pad(f.append([]byte{0, actionSetField, 0, 0}), 0)
	b[3] = byte(len(b))
	return b
}

const nicira = 0x2320 // the vendor of NX

func nx(subtype uint16, rest ...uint16) Action {
	b := binary.BigEndian.AppendUint32([]byte{0xff, 0xff, 0, 0}, nicira)
	for _, v := range append([]uint16{subtype}, rest...) {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	b[3] = byte(len(b))
	return b
}

// FinTimeout shortens the flow's idle timeout when a packet has the flag FIN or RST (NXAST_FIN_TIMEOUT).
func FinTimeout(idle time.Duration) Action { return nx(19, seconds(idle), 0, 0) }

// LookAt lets a flow look at addresses and ports of packets, by a hash that nothing reads (NXAST_MULTIPATH into register 15). So no packet of
// another connection tells Open vSwitch's cache what to do with one of this flow.
func LookAt() Action {
	const symmetricL3L4, moduloN, register, bits = 2, 0, 1<<16 | 15<<9 | 4, 15
	return nx(10, symmetricL3L4, 0, 0, moduloN, 0, 0, 0, 0, bits, register>>16, register&0xffff)
}

func seconds(d time.Duration) uint16 { return uint16(min(d/time.Second, 1<<16-1)) }

func appendActions(b []byte, all []Action) []byte {
	for _, a := range all {
		b = append(b, a...)
	}
	return b
}

// Flow is a flow of the first table. Among flows that match a packet, the one of the highest priority applies. Without an action it drops.
type Flow struct {
	Cookie   uint64
	Priority uint16
	Match    Match
	Actions  []Action
	Idle     time.Duration // whole seconds after the last packet; for ever if it is 0
	Hard     time.Duration // whole seconds after it was added; for ever if it is 0
	Report   bool          // the switch says when the flow ends
}

// Change is a change of the flows.
type Change struct {
	command  uint8
	mask     uint64
	reported uint16
	flow     Flow
}

const (
	commandAdd    = 0
	commandDelete = 3
	sendRemoved   = 1 // the flag of flows
)

// Add adds a flow in the place of one with the same match and priority, whose count of packets and idle time go on.
func (f Flow) Add() Change {
	c := Change{command: commandAdd, flow: f}
	if f.Report {
		c.reported = sendRemoved
	}
	return c
}

// Delete deletes the flows whose cookie is the given one, as far as mask has a 1.
func Delete(cookie, mask uint64) Change {
	return Change{command: commandDelete, mask: mask, flow: Flow{Cookie: cookie}}
}

func (c Change) body() []byte {
	f := c.flow
	b := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, f.Cookie), c.mask)
	b = append(b, firstTable, c.command)
	for _, v := range []uint16{seconds(f.Idle), seconds(f.Hard), f.Priority} {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	for _, v := range []uint32{noBuffer, uint32(anyPort), anyGroup} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	b = f.Match.append(append(binary.BigEndian.AppendUint16(b, c.reported), 0, 0)) // after its importance
	if len(f.Actions) == 0 {
		return b
	}
	at := len(b)
	b = appendActions(append(b, 0, applyActions, 0, 0, 0, 0, 0, 0), f.Actions)
	binary.BigEndian.PutUint16(b[at+2:], uint16(len(b)-at))
	return b
}

// Known is a flow of the switch.
type Known struct {
	Cookie  uint64
	Idle    time.Duration // after the last packet; for ever if it is 0
	Packets uint64        // that it applied to
	Match   Match
	Sets    Match // the fields that its actions set
}

// parseKnown returns the first flow of the body of an answer (section 7.3.5.2), and what follows it.
func parseKnown(b []byte) (k Known, rest []byte, err error) {
	const fixed = 48
	if len(b) < fixed {
		return k, nil, errShort
	}
	n := int(binary.BigEndian.Uint16(b))
	if n < fixed || n > len(b) {
		return k, nil, errShort
	}
	k.Idle = time.Duration(binary.BigEndian.Uint16(b[14:])) * time.Second
	k.Cookie, k.Packets = binary.BigEndian.Uint64(b[24:]), binary.BigEndian.Uint64(b[32:])
	var instructions []byte
	if k.Match, instructions, err = parseMatch(b[fixed:n]); err != nil {
		return k, nil, err
	}
	k.Sets, err = parseSets(instructions)
	return k, b[n:], err
}

// parseSets returns the fields that instructions set.
func parseSets(b []byte) (sets Match, err error) {
	err = each(b, 8, func(kind uint16, instruction []byte) error {
		if kind != applyActions {
			return nil
		}
		return each(instruction[8:], 4, func(kind uint16, action []byte) error {
			if kind != actionSetField {
				return nil
			}
			f, _, err := parseField(action[4:])
			sets = append(sets, f)
			return err
		})
	})
	return sets, err
}

// each calls do with each of the parts of b that begin with a type and a size, of least bytes or more.
func each(b []byte, least int, do func(kind uint16, part []byte) error) error {
	for len(b) > 0 {
		if len(b) < 4 {
			return errShort
		}
		n := int(binary.BigEndian.Uint16(b[2:]))
		if n < least || n > len(b) {
			return errShort
		}
		if err := do(binary.BigEndian.Uint16(b), b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// Removed says that a flow ended that was to be reported.
type Removed struct{ Cookie uint64 }

func parseRemoved(b []byte) (Removed, error) {
	if len(b) < 8 {
		return Removed{}, errShort
	}
	return Removed{binary.BigEndian.Uint64(b)}, nil
}

// Packet is one that a flow hands to the controller.
type Packet struct {
	Cookie uint64
	From   Port
	Frame  []byte // of Ethernet
}

func parsePacket(b []byte) (p Packet, err error) {
	if len(b) < 16 {
		return p, errShort
	}
	p.Cookie = binary.BigEndian.Uint64(b[8:])
	match, rest, err := parseMatch(b[16:])
	if err != nil {
		return p, err
	}
	port := match.Get(InPort)
	if len(port) != 4 || len(rest) < 2 {
		return p, errShort
	}
	p.From, p.Frame = Port(binary.BigEndian.Uint32(port)), rest[2:]
	return p, nil
}

// body is a packet that the switch is to treat as if it had come from its port, with actions (section 7.3.6).
func (p Packet) body(actions []Action) []byte {
	b := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, noBuffer), uint32(p.From))
	all := appendActions(nil, actions)
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(all))), 0, 0, 0, 0, 0, 0)
	return append(append(b, all...), p.Frame...)
}
