package split

import (
	"encoding/binary"
	"slices"
	"sync"
	"time"
)

// WireGuard transport data messages (WireGuard paper, section 5.4.6): type 4 and three zero bytes, the receiver's index, a
// counter. The counter is in the clear: gaps in it are downlink losses.
const (
	transportType   = 4
	transportHeader = 16
	transportMin    = 32
)

// A gap counts as loss only after lossSettles, since a slower path may deliver late. At most lossGaps are kept.
const (
	lossSettles = time.Second
	lossGaps    = 128
)

// lossMeter finds lost downlink packets, per path, from the counters of WireGuard's transport messages.
type lossMeter struct {
	mu    sync.Mutex
	index uint32 // of the key pair
	next  uint64
	gaps  []gap
	seen  []uint64 // packets by path
	lost  []uint64
}

type gap struct {
	from, to uint64 // counters missing, to excluded
	path     int
	at       time.Time
}

func newLossMeter(paths int) *lossMeter {
	return &lossMeter{seen: make([]uint64, paths), lost: make([]uint64, paths)}
}

// arrived records a datagram from the server on a path.
func (m *lossMeter) arrived(now time.Time, path int, datagram []byte) {
	if len(datagram) < transportMin || binary.LittleEndian.Uint32(datagram) != transportType {
		return
	}
	index := binary.LittleEndian.Uint32(datagram[4:])
	counter := binary.LittleEndian.Uint64(datagram[8:])
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle(now)
	if index != m.index || slices.Max(m.seen) == 0 {
		// A new key pair counts from 0. Its first packets may be late, so counting starts here.
		m.index, m.next, m.gaps = index, counter+1, m.gaps[:0]
		m.seen[path]++
		return
	}
	m.seen[path]++
	if counter < m.next {
		m.fill(counter)
		return
	}
	if counter > m.next && len(m.gaps) < lossGaps && counter-m.next < 1<<16 {
		m.gaps = append(m.gaps, gap{m.next, counter, path, now})
	}
	m.next = counter + 1
}

// fill removes a late packet from its gap.
func (m *lossMeter) fill(counter uint64) {
	for i, g := range m.gaps {
		if counter < g.from || counter >= g.to {
			continue
		}
		left, right := gap{g.from, counter, g.path, g.at}, gap{counter + 1, g.to, g.path, g.at}
		m.gaps = slices.Delete(m.gaps, i, i+1)
		for _, part := range []gap{left, right} {
			if part.from < part.to && len(m.gaps) < lossGaps {
				m.gaps = append(m.gaps, part)
			}
		}
		return
	}
}

func (m *lossMeter) settle(now time.Time) {
	m.gaps = slices.DeleteFunc(m.gaps, func(g gap) bool {
		late := now.Sub(g.at) >= lossSettles
		if late {
			m.lost[g.path] += g.to - g.from
		}
		return late
	})
}

// share returns the lost share of a path's downlink datagrams, 0 to 1; nil if the path never carried a counter.
func (m *lossMeter) share(now time.Time, path int) *float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle(now)
	total := m.seen[path] + m.lost[path]
	if total == 0 {
		return nil
	}
	s := float64(m.lost[path]) / float64(total)
	return &s
}
