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

func TestEntries(t *testing.T) {
	load(t)
	type key struct{ A, B uint32 }
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 4, MaxEntries: 2, Flags: unix.BPF_F_NO_PREALLOC})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	one, two, three := key{1, 2}, key{3, 4}, key{5, 6}
	for i, k := range []key{one, two, one} {
		if err := Put(m, &k, new(uint32(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := Put(m, &three, new(uint32)); !errors.Is(err, unix.E2BIG) {
		t.Errorf("an entry too many: %v", err)
	}
	for _, k := range []key{two, two, three} {
		if err := Delete(m, &k); err != nil {
			t.Errorf("without %v: %v", k, err)
		}
	}
	var value uint32
	if err := m.Lookup(&one, &value); err != nil || value != 2 {
		t.Errorf("the first is %d, %v", value, err)
	}
	if err := m.Lookup(&two, &value); !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Errorf("the second is still there: %d, %v", value, err)
	}
	for _, err := range []error{Put(m, new(uint32), new(uint32)), Put(m, &one, new(uint64)), Delete(m, new(uint32))} {
		if !errors.Is(err, ebpf.ErrMapIncompatible) {
			t.Errorf("another type: %v", err)
		}
	}
}
