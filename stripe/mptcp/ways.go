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

// way is a subflow that is wanted, and the TCP connections that were it one after the other.
type way struct {
	stripe.PathStatus
	to     netip.AddrPort
	local  netip.AddrPort
	from   netip.Addr // chosen, or the zero address
	source netip.Addr // where it is to leave from
	id     uint8      // of its source address
	device int        // to leave by, or 0

	current subflow // as last seen
	dialled bool    // the kernel has one that is not up yet
	before  stripe.PathStatus
	tried   time.Time
}

func newWays(all []Subflow, source netip.Addr) (ways []*way) {
	var sources []netip.Addr
	for _, s := range all {
		sees := s.To.Addr()
		if s.Through.IsValid() {
			sees = s.Through
		}
		w := &way{PathStatus: stripe.PathStatus{Name: s.Name, Observer: sees.String(), State: stateDialling, Why: "it was not dialled"}, to: s.To, from: s.From.Unmap(), source: source}
		if w.from.IsValid() {
			w.source = w.from
		}
		i := slices.Index(sources, w.source)
		if i < 0 {
			i, sources = len(sources), append(sources, w.source)
		}
		w.id = uint8(i + 1) // 0 is the first subflow's; the kernel wants one number for one address
		ways = append(ways, w)
	}
	return ways
}

// is reports whether the kernel's subflow is this one.
func (w *way) is(s subflow) bool {
	return s.remote == w.to && (!w.from.IsValid() || s.local.Addr() == w.from)
}

// see takes note of what the kernel says of the subflow now, nil for that there is none such, and reports whether the
// state changed.
func (w *way) see(s *subflow) (changed bool) {
	was := w.State
	w.dialled = s != nil && (s.tcp.State == unix.BPF_TCP_SYN_SENT || s.tcp.State == unix.BPF_TCP_SYN_RECV)
	switch {
	case s == nil && w.Joins == 0: // not up yet
	case s == nil:
		w.State, w.Why = stateDown, "the kernel ended it: it was reset, or nothing came back"
	case s.up() && s.tcp.Unacked > 0 && s.tcp.Retransmits > 0:
		w.count(*s)
		w.State, w.Why = stateStalled, fmt.Sprintf("what it sends is not acknowledged; sent again %d times", s.tcp.Retransmits)
	case s.up():
		w.count(*s)
		w.State, w.Why = stateUp, ""
	case w.Joins == 0:
		w.Why = "no answer from " + w.to.String()
	default:
		w.State, w.Why = stateDown, "it is closing"
	}
	return w.State != was
}

// count adds up over the connections that the subflow had.
func (w *way) count(s subflow) {
	if s.local != w.current.local || s.remote != w.current.remote {
		w.before = w.PathStatus
		w.Joins++
	}
	w.current, w.local = s, s.local
	w.RTT = time.Duration(s.tcp.Rtt) * time.Microsecond
	heard := time.Now().Add(-time.Duration(s.tcp.Last_ack_recv) * time.Millisecond)
	w.LastHeard = &heard
	w.Up.Bytes, w.Down.Bytes = w.before.Up.Bytes+s.tcp.Bytes_sent, w.before.Down.Bytes+s.tcp.Bytes_received
	w.Up.Segments, w.Down.Segments = w.before.Up.Segments+uint64(s.tcp.Data_segs_out), w.before.Down.Segments+uint64(s.tcp.Data_segs_in)
	w.Up.Again = w.before.Up.Again + uint64(s.tcp.Total_retrans)
	w.Queued = int(s.tcp.Notsent_bytes)
}

// retryAfter is how long a subflow has to come up before it is tried again.
const retryAfter = time.Second

// dial has the kernel add the subflow where it is missing.
func (w *way) dial(token uint32, now time.Time) error {
	if w.State == stateUp || w.State == stateStalled || w.dialled || now.Sub(w.tried) < retryAfter {
		return nil
	}
	if err := create(token, w.id, w.source, w.device, w.to); err != nil {
		if !errors.Is(err, unix.ENOTCONN) {
			w.tried = now
		}
		w.Why = "the kernel refuses to add it: " + err.Error()
		return err
	}
	w.tried = now
	if w.Joins == 0 {
		w.Why = "no answer from " + w.to.String()
	}
	return nil
}

// observe brings the ways up to what the kernel says now. On the side that listens, what nobody asked for is a way too,
// named by where it comes from.
func observe(ways []*way, now []subflow, listening bool) (after []*way, changed []*way) {
	left := append([]subflow(nil), now...)
	for _, w := range ways {
		var found *subflow
		for i, s := range left {
			if s.tcp.State != 0 && w.is(s) {
				found = &s
				left[i].tcp.State = 0
				break
			}
		}
		if w.see(found) {
			changed = append(changed, w)
		}
	}
	if !listening {
		return ways, changed
	}
	for _, s := range left {
		if s.tcp.State == 0 || !s.up() {
			continue
		}
		w := &way{PathStatus: stripe.PathStatus{Name: s.remote.Addr().String(), Observer: s.remote.Addr().String(), State: stateDialling}, to: s.remote}
		w.see(&s)
		ways, changed = forgetOne(append(ways, w)), append(changed, w)
	}
	return ways, changed
}

// forgetOne bounds what a peer can make this side remember: of more ways than a connection can have, the oldest that is
// down goes.
func forgetOne(ways []*way) []*way {
	if len(ways) <= 2*MaxPaths {
		return ways
	}
	for i, w := range ways {
		if w.State == stateDown {
			return append(ways[:i:i], ways[i+1:]...)
		}
	}
	return ways
}

func healthy(ways []*way) (n int) {
	for _, w := range ways {
		if w.State == stateUp {
			n++
		}
	}
	return n
}

// dial has the kernel add what is missing. Its error is the last one.
func dial(ways []*way, token uint32, now time.Time) (err error) {
	for _, w := range ways {
		if e := w.dial(token, now); e != nil {
			err = e
		}
	}
	return err
}
