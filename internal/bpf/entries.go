package bpf

import (
	"encoding/binary"
	"errors"
	"os"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Put makes an entry of a map, or replaces it. K and V have the layout that the map has. [ebpf.Map.Put] finds that out each time by reflection, and tells Go's
// scheduler of a call that does not wait.
func Put[K, V any](m *ebpf.Map, k *K, v *V) error {
	if unsafe.Sizeof(*k) != uintptr(m.KeySize()) || unsafe.Sizeof(*v) != uintptr(m.ValueSize()) {
		return ebpf.ErrMapIncompatible
	}
	return entry(unix.BPF_MAP_UPDATE_ELEM, "BPF_MAP_UPDATE_ELEM", m, unsafe.Pointer(k), unsafe.Pointer(v))
}

// Delete removes an entry. That there is none is no error.
func Delete[K any](m *ebpf.Map, k *K) error {
	if unsafe.Sizeof(*k) != uintptr(m.KeySize()) {
		return ebpf.ErrMapIncompatible
	}
	err := entry(unix.BPF_MAP_DELETE_ELEM, "BPF_MAP_DELETE_ELEM", m, unsafe.Pointer(k), nil)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// pointer has 64 bits on all machines.
type pointer [8 / unsafe.Sizeof(uintptr(0))]unsafe.Pointer

func pointerTo(p unsafe.Pointer) (all pointer) {
	low := 0
	if one := [2]byte{0, 1}; binary.NativeEndian.Uint16(one[:]) == 1 {
		low = len(all) - 1
	}
	all[low] = p
	return all
}

// entry is bpf(2) for one entry.
func entry(command uintptr, name string, m *ebpf.Map, k, v unsafe.Pointer) error {
	of := struct {
		file, _    uint32
		key, value pointer
		flags      uint64
	}{file: uint32(m.FD()), key: pointerTo(k), value: pointerTo(v)}
	_, _, errno := unix.RawSyscall(unix.SYS_BPF, command, uintptr(unsafe.Pointer(&of)), unsafe.Sizeof(of))
	if errno != 0 {
		return os.NewSyscallError(name, errno)
	}
	return nil
}
