package bpf

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heddle/internal/nstest"
)

// object has a program that passes all packets, and nothing else.
var object = &ebpf.CollectionSpec{Programs: map[string]*ebpf.ProgramSpec{"pass": {Name: "pass", Type: ebpf.SchedCLS, License: "Apache-2.0",
	Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}}}}

func load(t *testing.T) *ebpf.Program {
	t.Helper()
	p, err := Load(object, "pass", nil, nil)
	if errors.Is(err, unix.EPERM) || errors.Is(err, ebpf.ErrNotSupported) {
		t.Skip("typed skip:", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func TestLoadErrors(t *testing.T) {
	load(t)
	for what, err := range map[string]error{
		"a constant": second(Load(object, "pass", map[string]any{"none": uint32(1)}, nil)),
		"a map":      second(Load(object, "pass", nil, map[string]*ebpf.Map{"none": nil})),
		"a program":  second(Load(object, "none", nil, nil)),
	} {
		if err == nil {
			t.Errorf("%s that the object does not have: no error", what)
		}
	}
	if len(object.Programs) != 1 {
		t.Error("loading changed the object")
	}
}

func second(_ *ebpf.Program, err error) error { return err }

func TestAttach(t *testing.T) {
	nstest.New(t).Enter(t)
	p := load(t)
	const index = 1 // lo
	clsact := &Clsact{Device: "lo", Index: index}
	has := func(want bool) {
		t.Helper()
		if got, err := HasClsact(index); err != nil || got != want {
			t.Errorf("there is a clsact: %v, %v", got, err)
		}
	}
	do := func(all ...func() error) {
		t.Helper()
		for _, f := range all {
			if err := f(); err != nil {
				t.Fatal(err)
			}
		}
	}
	first := &Filter{Device: "lo", Index: index, Hook: Out, Name: "first", Program: p}
	second := &Filter{Device: "lo", Index: index, Hook: Out, Name: "second", Program: p}
	attached := func(f *Filter, want bool) {
		t.Helper()
		if got := f.Attached(); got != want {
			t.Errorf("filter %s is attached: %v", f.Name, got)
		}
	}
	has(false)
	do(first.Undo) // without a place for filters there is nothing to undo
	do(clsact.Apply, first.Apply, second.Apply)
	has(true)
	lo, err := netlink.LinkByIndex(index)
	if err != nil {
		t.Fatal(err)
	}
	filters, err := netlink.FilterList(lo, Out.Parent())
	if err != nil || len(filters) != 2 || filters[0].(*netlink.BpfFilter).Name != "second" {
		t.Errorf("the last to come is not the first to see packets: %v, %v", filters, err)
	}
	attached(first, true)
	do(first.Undo, clsact.Undo)
	attached(first, false)
	attached(second, true)
	has(true) // others use it
	tcx, err := AttachFirst(index, p)
	if err != nil {
		t.Fatal(err)
	}
	if tcx != nil {
		do(tcx.Close)
	}
	do(second.Undo, clsact.Undo, clsact.Undo)
	has(false)
	gone := &Filter{Device: "gone", Index: 1 << 20, Hook: In, Name: "gone"}
	do(gone.Undo, (&Clsact{Device: "gone", Index: 1 << 20}).Undo)
	attached(gone, false)
	if gone.Apply() == nil {
		t.Error("a filter on a device that is gone was attached")
	}
}
