package split

import (
	"encoding/binary"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"heddle/observe"
	"heddle/path"
	"heddle/path/group"
)

// member is one path of one session, with its counters.
type member struct {
	*group.Member
	tap observe.Tap

	up, down tally
	switches atomic.Uint64
	tooBig   atomic.Pointer[string] // why a datagram did not fit, nil if all did

	probe  question
	trial  trial
	tested uint64 // datagrams in trials while the path was usable
	jar    jar
}

// question is a probe in flight on a member. The session's lock guards it. The member's Trial says when the next is due.
type question struct {
	id   uint32
	sent time.Time // zero if none is in flight
	last time.Time // when the last one was sent
}

// tally counts one direction.
type tally struct{ packets, bytes, dropped atomic.Uint64 }

func (t *tally) add(packets int, bytes int) {
	t.packets.Add(uint64(packets))
	t.bytes.Add(uint64(bytes))
}

func newMember(of *group.Member, o Options) *member {
	m := &member{Member: of}
	m.Health.Tested = true
	if o.Tap != nil {
		m.tap = o.Tap(of.Spec.Name)
	}
	return m
}

func (m *member) send(now time.Time, to netip.AddrPort, datagrams [][]byte) error {
	current := m.Current()
	if current == nil {
		m.up.dropped.Add(uint64(len(datagrams)))
		return net.ErrClosed
	}
	n, err := current.Flow.Send(datagrams)
	bytes, questions := 0, 0
	for _, d := range datagrams[:n] {
		bytes += len(d)
		questions += weight(d)
		if m.tap != nil {
			m.tap.Datagram(now, true, current.Local, to, d)
		}
	}
	m.up.add(n, bytes)
	m.up.dropped.Add(uint64(len(datagrams) - n))
	if questions > 0 {
		m.Health.Sent(now, questions)
	}
	return err
}

// weight is how many lost datagrams d counts as. A WireGuard server always answers a handshake, never a keep-alive.
func weight(d []byte) int {
	switch {
	case len(d) == transportMin && binary.LittleEndian.Uint32(d) == transportType:
		return 0
	case isInitiation(d):
		return path.SuspectPackets
	}
	return 1
}

// note counts and taps one datagram on a flow other than the member's own.
func (m *member) note(t *tally, now time.Time, out bool, flow path.Flow, server netip.AddrPort, datagram []byte) {
	t.add(1, len(datagram))
	if a, ok := flow.(path.Addressed); ok && m.tap != nil {
		m.tap.Datagram(now, out, a.LocalAddr(), server, datagram)
	}
}
