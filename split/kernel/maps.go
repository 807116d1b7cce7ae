package kernel

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"heddle/split/plane"
)

// What the programs and this process share. All maps are arrays, so that none can overflow, and all but the last are
// mapped into this process.
//
//	state   one element: until when the programs may send, and what they dropped
//	lanes   one element a path: how packets leave by it, and what was counted
//	plan    which path each unit takes, in a ring; a unit that is not there is dropped
//	senders the source address that the program of each local port had, so that answers find back to it

// Offsets in the state.
const (
	stateDeadline = 0  // CLOCK_MONOTONIC in nanoseconds; after it nothing leaves
	stateTaken    = 8  // packets, where units are packets
	stateTrial    = 16 // a lane plus one that shall carry the next packet whatever the plan says, or 0
	stateDrops    = 24
	stateSize     = stateDrops + 8*dropKinds
)

// drop is why a program dropped a datagram to the server.
type drop int

const (
	dropStopped   drop = iota // the deadline passed: too few paths, or this process is dead
	dropUnplanned             // the plan has no such unit
	dropFragment              // a fragment, or other headers before UDP's: no port to tell whose it is
	dropMalformed             // shorter than its headers
	dropStray                 // marked as decided, but not on its path
	dropTooBig                // larger than the path's MTU
	dropRun                   // a run of segments where packets are counted
	dropFailed                // the kernel could not rewrite it
	dropKinds     = int(iota)
)

// explain says what was dropped for a reason, and what helps.
func (d drop) explain() string {
	return [dropKinds]string{
		"while too few paths were healthy",
		"the plan of paths had run out; the machine may be too busy",
		"fragments of datagrams cannot be told apart: make the program send at most a path's MTU",
		"shorter than their headers",
		"they were not on the path that was decided; the path may just have changed",
		"larger than the path's MTU: make the program send less",
		"runs of segments cannot be counted as packets",
		"the kernel could not rewrite them",
	}[d]
}

// Offsets in a lane.
const (
	laneIndex     = 0 // of the device; 0 while the lane is down
	laneMTU       = 4
	laneSource    = 8  // the path's own address
	laneUp        = 24 // packets, bytes of UDP payload
	laneDown      = 40
	laneSize      = 56
	planSize      = 1 << 16 // units
	senderSize    = 16
	sendersNumber = 1 << 16 // one a port
)

// maps are the maps of one session.
type maps struct {
	state, lanes, plan, senders *ebpf.Map

	mapped [][]byte
	words  struct{ state, lanes, plan []uint64 }
}

func newMaps(lanes int) (m *maps, err error) {
	m = &maps{}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	for _, w := range []struct {
		to       **ebpf.Map
		name     string
		size, n  int
		unmapped bool
		words    *[]uint64
	}{
		{&m.state, "heddle_state", stateSize, 1, false, &m.words.state},
		{&m.lanes, "heddle_lanes", laneSize, lanes, false, &m.words.lanes},
		{&m.plan, "heddle_plan", 8, planSize, false, &m.words.plan},
		{&m.senders, "heddle_senders", senderSize, sendersNumber, true, nil},
	} {
		spec := &ebpf.MapSpec{Name: w.name, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(w.size), MaxEntries: uint32(w.n)}
		if !w.unmapped {
			spec.Flags = unix.BPF_F_MMAPABLE
		}
		if *w.to, err = ebpf.NewMap(spec); err != nil {
			return m, err
		}
		if w.unmapped {
			continue
		}
		data, err := unix.Mmap((*w.to).FD(), 0, w.size*w.n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return m, err
		}
		m.mapped = append(m.mapped, data)
		*w.words = unsafe.Slice((*uint64)(unsafe.Pointer(&data[0])), len(data)/8)
	}
	return m, nil
}

func (m *maps) close() {
	for _, data := range m.mapped {
		unix.Munmap(data)
	}
	m.mapped, m.words.state, m.words.lanes, m.words.plan = nil, nil, nil, nil
	for _, one := range []*ebpf.Map{m.state, m.lanes, m.plan, m.senders} {
		if one != nil {
			one.Close()
		}
	}
}

// permit lets the programs send until a time of CLOCK_MONOTONIC in nanoseconds; 0 stops them at once.
func (m *maps) permit(until uint64) { atomic.StoreUint64(&m.words.state[stateDeadline/8], until) }

// taken is how many packets were taken from the plan.
func (m *maps) taken() uint64 { return atomic.LoadUint64(&m.words.state[stateTaken/8]) }

// try sends the next packet by a lane, whatever the plan says.
func (m *maps) try(lane int) { atomic.StoreUint64(&m.words.state[stateTrial/8], uint64(lane+1)) }

// drops gives how many datagrams were dropped, by reason.
func (m *maps) drops() (all [dropKinds]uint64) {
	for i := range all {
		all[i] = atomic.LoadUint64(&m.words.state[stateDrops/8+i])
	}
	return all
}

// plans puts a unit's lane into the plan. The unit is part of it, so that an old one is not taken for a new one.
func (m *maps) plans(unit uint64, lane int) {
	atomic.StoreUint64(&m.words.plan[unit%planSize], (unit+1)<<8|uint64(lane))
}

// setLane says how packets leave by a lane; the zero hop takes it out of use. A packet that meanwhile reads half of it
// is dropped when it arrives at the device.
func (m *maps) setLane(lane int, h plane.Hop) {
	var b [laneUp]byte
	binary.NativeEndian.PutUint32(b[laneIndex:], uint32(h.Index))
	binary.NativeEndian.PutUint32(b[laneMTU:], uint32(h.MTU))
	if h.Source.IsValid() {
		copy(b[laneSource:], h.Source.AsSlice())
	}
	at := m.words.lanes[lane*laneSize/8:]
	for i := range laneUp / 8 {
		atomic.StoreUint64(&at[i], binary.NativeEndian.Uint64(b[8*i:]))
	}
}

// counted is what the programs counted on a lane.
func (m *maps) counted(lane int) (up, down plane.Tally) {
	word := func(offset int) uint64 { return atomic.LoadUint64(&m.words.lanes[(lane*laneSize+offset)/8]) }
	return plane.Tally{Packets: word(laneUp), Bytes: word(laneUp + 8)}, plane.Tally{Packets: word(laneDown), Bytes: word(laneDown + 8)}
}

// monotonic is CLOCK_MONOTONIC in nanoseconds, which is what bpf_ktime_get_ns gives.
func monotonic() uint64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0 // never on Linux; and then nothing leaves
	}
	return uint64(t.Nano())
}
