package observe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/net/bpf"

	"heddle/path"
)

// Filter lets some packets of a capture through, by an expression in the language of pcap-filter(7). tcpdump compiles
// it, once for each link type.
type Filter struct {
	expression string
	programs   map[LinkType]program
}

type program struct {
	instructions []bpf.Instruction
	vm           *bpf.VM
}

// NewFilter returns the filter of an expression, or nil for an empty one.
func NewFilter(expression string) *Filter {
	if expression == "" {
		return nil
	}
	return &Filter{expression: expression, programs: map[LinkType]program{}}
}

func (f *Filter) passes(c captured) (bool, error) {
	if f == nil {
		return true, nil
	}
	p, compiled := f.programs[c.link]
	if !compiled {
		var err error
		if p.instructions, err = f.compile(c.link); err != nil {
			return false, err
		}
		if p.vm, err = bpf.NewVM(p.instructions); err != nil {
			return false, f.fail(err.Error())
		}
		f.programs[c.link] = p
	}
	if len(c.data) < c.info.Length {
		var err error
		if p.vm, err = bpf.NewVM(withLength(p.instructions, c.info.Length)); err != nil {
			return false, f.fail(err.Error())
		}
	}
	accepted, err := p.vm.Run(c.data)
	return accepted > 0, err
}

// withLength has a program take the length on the wire for the packet's, which is otherwise that of the captured bytes.
func withLength(instructions []bpf.Instruction, length int) []bpf.Instruction {
	instructions = slices.Clone(instructions)
	for i, in := range instructions {
		if load, ok := in.(bpf.LoadExtension); ok && load.Num == bpf.ExtLen {
			instructions[i] = bpf.LoadConstant{Dst: bpf.RegA, Val: uint32(length)}
		}
	}
	return instructions
}

func (f *Filter) fail(why string) error {
	return &path.Error{What: "filter " + f.expression, Why: why, Hint: "see man pcap-filter"}
}

// compile has tcpdump compile the expression, for a capture of the link type that holds no packets.
func (f *Filter) compile(link LinkType) ([]bpf.Instruction, error) {
	tcpdump, err := exec.LookPath("tcpdump")
	if err != nil {
		return nil, &path.Error{What: "filter " + f.expression, Why: "tcpdump, which compiles it, is not installed",
			Hint: "install tcpdump"}
	}
	header := binary.LittleEndian.AppendUint32(nil, 0xA1B2C3D4)
	header = append(header, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	header = binary.LittleEndian.AppendUint32(header, 262144)
	header = binary.LittleEndian.AppendUint32(header, uint32(link))
	run := exec.Command(tcpdump, "-ddd", "-r", "-", "--", f.expression)
	run.Stdin = bytes.NewReader(header)
	out, err := run.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, f.fail("tcpdump says: " + complaint(string(failed.Stderr)))
	}
	if err != nil {
		return nil, f.fail(err.Error())
	}
	var raw []bpf.RawInstruction
	for line := range strings.Lines(string(out)) {
		var i bpf.RawInstruction
		if n, _ := fmt.Sscan(line, &i.Op, &i.Jt, &i.Jf, &i.K); n == 4 { // the first line is their number
			raw = append(raw, i)
		}
	}
	instructions, understood := bpf.Disassemble(raw)
	if !understood || len(raw) == 0 {
		return nil, f.fail("tcpdump's program for it is of an unknown kind")
	}
	return instructions, nil
}

// complaint is what tcpdump says beside where it reads from.
func complaint(stderr string) string {
	var said []string
	for line := range strings.Lines(stderr) {
		if !strings.Contains(line, "reading from") {
			said = append(said, strings.TrimPrefix(strings.TrimSpace(line), "tcpdump: "))
		}
	}
	return strings.Join(said, " ")
}
