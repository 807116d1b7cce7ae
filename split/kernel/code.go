package kernel

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// code is a program that is being written. R6 holds the context throughout; helpers leave R6 to R9 alone.
type code struct {
	ins   asm.Instructions
	label string // of the next instruction
}

func (c *code) add(ins ...asm.Instruction) {
	at := len(c.ins)
	c.ins = append(c.ins, ins...)
	if c.label != "" && len(ins) > 0 {
		c.ins[at], c.label = c.ins[at].WithSymbol(c.label), ""
	}
}

// at names the next instruction.
func (c *code) at(label string) { c.label = label }

// context loads a field of struct __sk_buff.
func (c *code) context(to asm.Register, field int16) {
	c.add(asm.LoadMem(to, asm.R6, field, asm.Word))
}

// fetch is an atomic operation on a word of 8 bytes at dst plus offset, which leaves the old value in src. The library
// (v0.22.0) forgets the operation when it encodes one, unless it is in the constant as well; an addition that fetches
// nothing would remain.
func (c *code) fetch(op asm.AtomicOp, dst, src asm.Register, offset int16) {
	i := op.Mem(dst, src, asm.DWord, offset)
	i.Constant = int64(op >> 8)
	c.add(i)
}

// Fields of struct __sk_buff (linux/bpf.h).
const (
	skbLength   = 0
	skbMark     = 8
	skbProtocol = 16
	skbDevice   = 40
	skbSegments = 164
	skbSegment  = 176
)

// keyAt is where the key of a look-up lies on the stack.
const keyAt = -4

// lookup leaves a pointer to the element whose number is on the stack in R0; where there is none it jumps to otherwise.
func (c *code) lookup(m *ebpf.Map, otherwise string) {
	c.add(asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, keyAt),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, otherwise))
}

func (c *code) lookupNumber(m *ebpf.Map, number int, otherwise string) {
	c.add(asm.StoreImm(asm.RFP, keyAt, int64(number), asm.Word))
	c.lookup(m, otherwise)
}

func (c *code) lookupRegister(m *ebpf.Map, r asm.Register, otherwise string) {
	c.add(asm.StoreMem(asm.RFP, keyAt, r, asm.Word))
	c.lookup(m, otherwise)
}

// load copies length bytes of the packet to the stack. Direct access would see only what is not in pages, which of a
// run of segments may be nothing.
func (c *code) load(stack int16, length int32, otherwise string, offset ...asm.Instruction) {
	c.add(asm.Mov.Reg(asm.R1, asm.R6))
	c.add(offset...) // leaves the offset in R2
	c.add(asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, int32(stack)),
		asm.Mov.Imm(asm.R4, length),
		asm.FnSkbLoadBytes.Call(),
		asm.JNE.Imm(asm.R0, 0, otherwise))
}

// notEqual jumps where a field on the stack is not these 4 or 16 bytes, given as words in the machine's order.
func (c *code) notEqual(stack int16, words []uint32, otherwise string) {
	for i, w := range words {
		c.add(asm.LoadMem(asm.R1, asm.RFP, stack+int16(4*i), asm.Word),
			asm.LoadImm(asm.R2, int64(w), asm.DWord),
			asm.JNE.Reg(asm.R1, asm.R2, otherwise))
	}
}

// notSame jumps where a field on the stack is not the one at R0 plus offset.
func (c *code) notSame(stack, offset int16, length int, otherwise string) {
	for i := int16(0); i < int16(length); i += 4 {
		c.add(asm.LoadMem(asm.R1, asm.RFP, stack+i, asm.Word),
			asm.LoadMem(asm.R2, asm.R0, offset+i, asm.Word),
			asm.JNE.Reg(asm.R1, asm.R2, otherwise))
	}
}

// segments leaves the number of datagrams in the packet in a register: those of a run, or 1.
func (c *code) segments(to asm.Register, label string) {
	c.context(to, skbSegments)
	c.add(asm.JNE.Imm(to, 0, label), asm.Mov.Imm(to, 1))
	c.at(label)
}

// count adds the packet's datagrams and payload to two words of the lane at R9. R7 is the offset of the UDP header.
func (c *code) count(offset int16, label string) {
	c.segments(asm.R1, label)
	c.add(asm.AddAtomic.Mem(asm.R9, asm.R1, asm.DWord, offset))
	c.context(asm.R1, skbLength)
	c.add(asm.Sub.Reg(asm.R1, asm.R7),
		asm.Sub.Imm(asm.R1, 8),
		asm.AddAtomic.Mem(asm.R9, asm.R1, asm.DWord, offset+8))
}

// replace puts an address into the packet, in the place of the one at old on the stack, and mends the checksums. pointer
// leaves where the new address is in R3; field is where in the IP header it goes.
func (c *code) replace(f family, link int, old int16, field int, pointer asm.Instructions) {
	c.context(asm.R1, skbSegment)
	c.add(asm.JEq.Imm(asm.R1, 0, "whole"))
	c.mendRun(f, old, pointer)
	c.add(asm.Ja.Label("mended"))
	c.at("whole")
	c.mendDatagram(f, old, pointer)
	c.at("mended")
	// IPv6 has no checksum of its own that would make up for the address in the device's sum over the packet.
	flags := int32(bpfRecompute)
	if !f.v6 {
		flags = 0
		c.add(pointer...)
		c.add(asm.LoadMem(asm.R4, asm.R3, 0, asm.Word),
			asm.LoadMem(asm.R3, asm.RFP, old, asm.Word),
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.Mov.Imm(asm.R2, int32(link+10)),
			asm.Mov.Imm(asm.R5, 4),
			asm.FnL3CsumReplace.Call(),
			asm.JNE.Imm(asm.R0, 0, dropFailed.label()))
	}
	c.add(pointer...)
	c.add(asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Imm(asm.R2, int32(link+field)),
		asm.Mov.Imm(asm.R4, int32(f.length())),
		asm.Mov.Imm(asm.R5, flags),
		asm.FnSkbStoreBytes.Call(),
		asm.JNE.Imm(asm.R0, 0, dropFailed.label()))
}

// Flags of the helpers that mend checksums (linux/bpf.h).
const (
	bpfRecompute = 1    // BPF_F_RECOMPUTE_CSUM
	bpfPseudo    = 0x10 // BPF_F_PSEUDO_HDR
	bpfKeepZero  = 0x20 // BPF_F_MARK_MANGLED_0: 0 is no checksum (RFC 768)
)

// difference leaves the sum over the new address less that over the old one in R0, and takes what to add it to in R5.
func (c *code) difference(f family, old int16, pointer asm.Instructions) {
	c.add(pointer...)
	c.add(asm.Mov.Reg(asm.R1, asm.RFP),
		asm.Add.Imm(asm.R1, int32(old)),
		asm.Mov.Imm(asm.R2, int32(f.length())),
		asm.Mov.Imm(asm.R4, int32(f.length())),
		asm.FnCsumDiff.Call())
}

// mendDatagram mends the checksum of UDP with its pseudo header (RFC 768; RFC 8200, section 8.1), whether it is complete
// or left to the device.
func (c *code) mendDatagram(f family, old int16, pointer asm.Instructions) {
	c.add(asm.Mov.Imm(asm.R5, 0))
	c.difference(f, old, pointer)
	c.add(asm.Mov.Reg(asm.R4, asm.R0),
		asm.Mov.Imm(asm.R3, 0),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R2, asm.R7),
		asm.Add.Imm(asm.R2, 6),
		asm.Mov.Imm(asm.R5, bpfPseudo|bpfKeepZero),
		asm.FnL4CsumReplace.Call(),
		asm.JNE.Imm(asm.R0, 0, dropFailed.label()))
}

// mendRun mends what a run of segments has in place of a checksum: the sum over the pseudo header, to which each segment
// adds its own. That is so also where the kernel did not mark the packet so, as on the way to a device that computes no
// checksums; the helper would then take it for a complete one.
func (c *code) mendRun(f family, old int16, pointer asm.Instructions) {
	c.add(asm.LoadMem(asm.R5, asm.RFP, udpAt+6, asm.Half))
	c.difference(f, old, pointer)
	c.add(asm.LSh.Imm(asm.R0, 32), asm.RSh.Imm(asm.R0, 32))
	for range 2 { // fold 32 bits to 16, and the carry
		c.add(asm.Mov.Reg(asm.R1, asm.R0),
			asm.RSh.Imm(asm.R1, 16),
			asm.And.Imm(asm.R0, 0xffff),
			asm.Add.Reg(asm.R0, asm.R1))
	}
	c.add(asm.StoreMem(asm.RFP, udpAt+6, asm.R0, asm.Half),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R2, asm.R7),
		asm.Add.Imm(asm.R2, 6),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, udpAt+6),
		asm.Mov.Imm(asm.R4, 2),
		asm.Mov.Imm(asm.R5, 0),
		asm.FnSkbStoreBytes.Call(),
		asm.JNE.Imm(asm.R0, 0, dropFailed.label()))
}
