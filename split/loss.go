package split

import (
	"encoding/binary"
	"slices"
	"sync"
	"time"
)

// WireGuard transport data messages: type 4 and three zero bytes, the receiver's index, a counter (WireGuard paper,
// section 5.4.6). The counter is in the clear, so that gaps in it are losses on the way down.
const (
	transportType   = 4
	transportHeader = 16
	transportMin    = 32
)

// Gaps wait so long for late packets of a slower path before they count as losses; so many at most.
const (
	lossSettles = time.Second
	lossGaps    = 128
)

// lossMeter finds lost downlink packets, by path, from the counters of WireGuard's transport messages. It ignores others.
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

// arrived notes one datagram from the server on a path.
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
		// A new key pair counts from 0; its first packets may come late, so the count starts where we are.
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

// fill takes a late packet out of its gap.
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

// share is the part of a path's downlink datagrams that was lost, 0 to 1; nil where no counter was ever seen on it.
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
