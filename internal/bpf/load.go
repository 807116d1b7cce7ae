package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Load loads one program of an object, with values for its constants (volatile const), and with maps that replace those of
// the object. The program keeps references to the maps.
func Load(object *ebpf.CollectionSpec, program string, constants map[string]any, maps map[string]*ebpf.Map) (*ebpf.Program, error) {
	object = object.Copy()
	for name, value := range constants {
		v := object.Variables[name]
		if v == nil {
			return nil, fmt.Errorf("program %s has no constant %s", program, name)
		}
		if err := v.Set(value); err != nil {
			return nil, fmt.Errorf("program %s, constant %s: %w", program, name, err)
		}
	}
	for name := range object.Programs {
		if name != program {
			delete(object.Programs, name)
		}
	}
	for name, m := range maps {
		if object.Maps[name] == nil {
			return nil, fmt.Errorf("program %s has no map %s", program, name)
		}
		object.Maps[name].MaxEntries = m.MaxEntries()
	}
	loaded, err := ebpf.NewCollectionWithOptions(object, ebpf.CollectionOptions{MapReplacements: maps})
	if err != nil {
		return nil, err
	}
	defer loaded.Close()
	p := loaded.DetachProgram(program)
	if p == nil {
		return nil, fmt.Errorf("there is no program %s", program)
	}
	return p, nil
}

// Monotonic returns CLOCK_MONOTONIC in nanoseconds, the clock of bpf_ktime_get_ns.
func Monotonic() uint64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0 // never happens on Linux
	}
	return uint64(t.Nano())
}
