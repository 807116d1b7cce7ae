package mptcp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"heddle/stripe"
)

// member is a path of the connection. It counts all subflows that carried it, one after another.
type member struct {
	stripe.PathStatus
	to     netip.AddrPort
	local  netip.AddrPort
	from   netip.Addr // as configured, or the zero address
	source netip.Addr // of the next subflow
	id     uint8      // of source
	device int        // outgoing interface, or 0

	current subflow // as last seen
	dialled bool    // the kernel has a subflow that is not up yet
	before  stripe.PathStatus
	tried   time.Time
}

func newMembers(all []Subflow, source netip.Addr) (members []*member) {
	var sources []netip.Addr
	for _, s := range all {
		sees := s.To.Addr()
		if s.Through.IsValid() {
			sees = s.Through
		}
		m := &member{PathStatus: stripe.PathStatus{Name: s.Name, Observer: sees.String(), State: stateDialling, Why: "it was not dialled"}, to: s.To, from: s.From.Unmap(), source: source}
		if m.from.IsValid() {
			m.source = m.from
		}
		i := slices.Index(sources, m.source)
		if i < 0 {
			i, sources = len(sources), append(sources, m.source)
		}
		m.id = uint8(i + 1) // 0 is the first subflow's; the kernel wants one ID per address
		members = append(members, m)
	}
	return members
}

func (m *member) is(s subflow) bool {
	return s.remote == m.to && (!m.from.IsValid() || s.local.Addr() == m.from)
}

// see updates the member from the kernel's subflow, or nil if there is none. It reports whether the state changed.
func (m *member) see(s *subflow) (changed bool) {
	was := m.State
	m.dialled = s != nil && (s.tcp.State == unix.BPF_TCP_SYN_SENT || s.tcp.State == unix.BPF_TCP_SYN_RECV)
	switch {
	case s == nil && m.Joins == 0: // not up yet
	case s == nil:
		m.State, m.Why = stateDown, "the kernel ended it: it was reset, or nothing came back"
	case s.up() && s.tcp.Unacked > 0 && s.tcp.Retransmits > 0:
		m.count(*s)
		m.State, m.Why = stateStalled, fmt.Sprintf("what it sends is not acknowledged; sent again %d times", s.tcp.Retransmits)
	case s.up():
		m.count(*s)
		m.State, m.Why = stateUp, ""
	case m.Joins == 0:
		m.Why = "no answer from " + m.to.String()
	default:
		m.State, m.Why = stateDown, "it is closing"
	}
	return m.State != was
}

// count adds up the counters of all subflows of the member.
func (m *member) count(s subflow) {
	if s.local != m.current.local || s.remote != m.current.remote {
		m.before = m.PathStatus
		m.Joins++
	}
	m.current, m.local = s, s.local
	m.RTT = time.Duration(s.tcp.Rtt) * time.Microsecond
	heard := time.Now().Add(-time.Duration(s.tcp.Last_ack_recv) * time.Millisecond)
	m.LastHeard = &heard
	m.Up.Bytes, m.Down.Bytes = m.before.Up.Bytes+s.tcp.Bytes_sent, m.before.Down.Bytes+s.tcp.Bytes_received
	m.Up.Segments, m.Down.Segments = m.before.Up.Segments+uint64(s.tcp.Data_segs_out), m.before.Down.Segments+uint64(s.tcp.Data_segs_in)
	m.Up.Again = m.before.Up.Again + uint64(s.tcp.Total_retrans)
	m.Queued = int(s.tcp.Notsent_bytes)
}

// retryAfter is the time for a subflow to come up before the next try.
const retryAfter = time.Second

func (m *member) dial(token uint32, now time.Time) error {
	if m.State == stateUp || m.State == stateStalled || m.dialled || now.Sub(m.tried) < retryAfter {
		return nil
	}
	if err := create(token, m.id, m.source, m.device, m.to); err != nil {
		if !errors.Is(err, unix.ENOTCONN) {
			m.tried = now
		}
		m.Why = "the kernel refuses to add it: " + err.Error()
		return err
	}
	m.tried = now
	if m.Joins == 0 {
		m.Why = "no answer from " + m.to.String()
	}
	return nil
}

// observe updates the members from the kernel's subflows. On the listening side, an unknown subflow becomes a new member,
// named by its remote address.
func observe(members []*member, now []subflow, listening bool) (after []*member, changed []*member) {
	left := slices.Clone(now)
	for _, m := range members {
		var found *subflow
		if i := slices.IndexFunc(left, m.is); i >= 0 {
			found = new(left[i])
			left = slices.Delete(left, i, i+1)
		}
		if m.see(found) {
			changed = append(changed, m)
		}
	}
	if !listening {
		return members, changed
	}
	for _, s := range left {
		if !s.up() {
			continue
		}
		m := &member{PathStatus: stripe.PathStatus{Name: s.remote.Addr().String(), Observer: s.remote.Addr().String(), State: stateDialling}, to: s.remote}
		m.see(&s)
		members, changed = forgetOne(append(members, m)), append(changed, m)
	}
	return members, changed
}

// forgetOne bounds the memory that a peer can use: it removes the oldest member that is down if there are more than twice as
// many as a connection can have.
func forgetOne(members []*member) []*member {
	oldest := slices.IndexFunc(members, func(m *member) bool { return m.State == stateDown })
	if len(members) <= 2*MaxPaths || oldest < 0 {
		return members
	}
	return slices.Delete(members, oldest, oldest+1)
}

func healthy(members []*member) (n int) {
	for _, m := range members {
		if m.State == stateUp {
			n++
		}
	}
	return n
}
