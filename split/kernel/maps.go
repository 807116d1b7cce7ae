package kernel

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"heddle/internal/bpf"
	"heddle/split"
	"heddle/split/backend"
)

// drop is why a program dropped a datagram to the server, with the numbers of split.c.
type drop int

const (
	dropStopped  drop = 0
	dropTooLarge drop = 5
	dropKinds         = len(splitState{}.Drops)
)

// explain describes a reason and what helps.
func (d drop) explain() string {
	return [dropKinds]string{
		"while too few paths were healthy",
		"the plan of paths had run out; the machine may be too busy",
		"fragments of datagrams cannot be told apart: make the program send at most a path's MTU",
		"shorter than their headers",
		"they were not on the path that was decided; the path may just have changed",
		backend.TooLarge,
		"runs of segments cannot be counted as packets",
		"the kernel could not rewrite them",
	}[d]
}

// planSize is the number of units in the plan.
const planSize = 1 << 16

// maps are the maps of one session, which split.c describes, and those that this process maps into its memory.
type maps struct {
	all    map[string]*ebpf.Map
	mapped [][]byte

	state   *splitState
	members []splitMember
	plan    []uint64
}

func newMaps(members int) (m *maps, err error) {
	object, err := loadSplit()
	if err != nil {
		return nil, err
	}
	m = &maps{all: map[string]*ebpf.Map{}}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	object.Maps[splitMapHeddleMembers].MaxEntries = uint32(members)
	for _, name := range []string{splitMapHeddleState, splitMapHeddleMembers, splitMapHeddlePlan, splitMapHeddleSenders, splitMapHeddleHandshakes} {
		if m.all[name], err = ebpf.NewMap(object.Maps[name]); err != nil {
			return m, err
		}
	}
	state, err := share[splitState](m, splitMapHeddleState)
	if err != nil {
		return m, err
	}
	m.state = &state[0]
	if m.members, err = share[splitMember](m, splitMapHeddleMembers); err != nil {
		return m, err
	}
	m.plan, err = share[uint64](m, splitMapHeddlePlan)
	return m, err
}

// share maps a map's elements into this process.
func share[T any](m *maps, name string) ([]T, error) {
	all := m.all[name]
	n, size := int(all.MaxEntries()), int(all.ValueSize())
	data, err := unix.Mmap(all.FD(), 0, n*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	m.mapped = append(m.mapped, data)
	return unsafe.Slice((*T)(unsafe.Pointer(&data[0])), n), nil
}

func (m *maps) close() {
	for _, data := range m.mapped {
		unix.Munmap(data)
	}
	m.mapped, m.state, m.members, m.plan = nil, nil, nil, nil
	for _, one := range m.all {
		one.Close() // nil where it could not be made
	}
}

// permit lets the programs send until a time of CLOCK_MONOTONIC in nanoseconds; 0 stops them at once, with their trials.
func (m *maps) permit(until uint64) {
	if until == 0 {
		atomic.StoreUint64(&m.state.Trial, 0)
	}
	atomic.StoreUint64(&m.state.Deadline, until)
}

// taken returns how many packets took a unit from the plan.
func (m *maps) taken() uint64 { return atomic.LoadUint64(&m.state.Taken) }

// try begins a trial that lasts until then, regardless of the plan and of permit, in place of the last one.
func (m *maps) try(t backend.Trial, until uint64) {
	atomic.StoreUint64(&m.state.Trial, 0)
	if t.Member < 0 {
		return
	}
	var packets uint64
	if t.Burst {
		packets = backend.BurstLimit // BURST of split.c
	}
	atomic.StoreUint64(&m.state.Burst, packets)
	atomic.StoreUint64(&m.state.TrialUntil, until)
	atomic.StoreUint64(&m.state.Trial, uint64(t.Member+1))
}

// trial returns the member whose trial is under way, or -1.
func (m *maps) trial() int { return int(atomic.LoadUint64(&m.state.Trial)) - 1 }

// prolong lets the trial under way last until then. One that waits for a burst takes the next packet if the session has no pauses.
func (m *maps) prolong(until uint64, pauses bool) {
	atomic.StoreUint64(&m.state.TrialUntil, until)
	if !pauses {
		atomic.CompareAndSwapUint64(&m.state.Burst, backend.BurstLimit, 0)
	}
}

// pausesFor is how long a session counts as one of bursts after a pause.
const pausesFor = 2 * time.Second

// pauses reports whether the session paused lately, or does so now.
func (m *maps) pauses() bool {
	now := bpf.Monotonic()
	since := func(then *uint64) time.Duration { return time.Duration(now - atomic.LoadUint64(then)) }
	return since(&m.state.Paused) < pausesFor || since(&m.state.Last) >= split.PauseLength
}

// drops returns the number of dropped datagrams by reason.
func (m *maps) drops() (all [dropKinds]uint64) {
	for i := range all {
		all[i] = atomic.LoadUint64(&m.state.Drops[i])
	}
	return all
}

// plans writes a unit's member into the plan. The entry holds the unit, so that an old entry is not taken for a new one.
func (m *maps) plans(unit uint64, member int) {
	atomic.StoreUint64(&m.plan[unit%planSize], (unit+1)<<8|uint64(member))
}

// setHop sets how packets leave by a member; the zero hop disables it. The program drops a packet on a torn read.
func (m *maps) setHop(member int, h backend.Hop) {
	next := splitMember{Index: uint32(h.Index), Mtu: uint32(h.MTU)}
	if h.Source.IsValid() {
		copy((*[16]byte)(unsafe.Pointer(&next.Source))[:], h.Source.AsSlice())
	}
	const words = unsafe.Offsetof(next.Up) / 8 // the part before the counters
	from, to := (*[words]uint64)(unsafe.Pointer(&next)), (*[words]uint64)(unsafe.Pointer(&m.members[member]))
	for i := range to {
		atomic.StoreUint64(&to[i], from[i])
	}
}

// passed returns what the programs counted on each member.
func (m *maps) passed() []backend.Passage {
	out := make([]backend.Passage, len(m.members))
	for i := range m.members {
		out[i] = backend.Passage{Up: tally(&m.members[i].Up.Packets, &m.members[i].Up.Bytes), Down: tally(&m.members[i].Down.Packets, &m.members[i].Down.Bytes)}
	}
	return out
}

func tally(packets, bytes *uint64) backend.Tally {
	return backend.Tally{Packets: atomic.LoadUint64(packets), Bytes: atomic.LoadUint64(bytes)}
}
