package split

import (
	"errors"
	"net"
	"net/netip"
	"time"

	"heddle/internal/netutil"
	"heddle/path"
)

// Receive blocks until datagrams from the server arrive by path i, fills into and returns the number of elements filled; see
// [path.Flow]. It returns [net.ErrClosed] once the session is closed. Call it from one goroutine per path.
func (s *Session) Receive(i int, into []path.Inbound) (int, error) {
	l := s.members[i]
	for {
		flow := l.Wait()
		if flow == nil {
			return 0, net.ErrClosed
		}
		n, err := flow.Receive(into)
		if errors.Is(err, net.ErrClosed) {
			l.Forget(flow)
			continue
		}
		if err != nil {
			s.mu.Lock()
			s.trouble(l, err)
			s.mu.Unlock()
			continue
		}
		if n = s.accept(l, into[:n]); n > 0 {
			return n, nil
		}
	}
}

// accept counts arrivals and keeps the session's: datagrams from the server that answer no probe.
func (s *Session) accept(l *member, inbound []path.Inbound) int {
	now := s.now()
	server := *s.server.Load()
	var local netip.AddrPort
	if c := l.Current(); c != nil {
		local = c.Local
	}
	kept, heard := 0, false
	for _, in := range inbound {
		if in.From != server {
			l.down.dropped.Add(uint64((len(in.Data) + in.Size - 1) / in.Size))
			s.stranger(l, in.From, server)
			continue
		}
		heard = true
		if n := s.cut(&in); n > 0 {
			l.down.dropped.Add(uint64(n))
			if len(in.Data) == 0 {
				continue
			}
		}
		s.shakes.heard(now, in)
		for d := range in.Datagrams() {
			l.down.add(1, len(d))
			if s.prober == nil && isCookieReply(d) {
				s.sawCookie(l, now, d)
			}
			s.loss.arrived(now, l.Index, d)
			if l.tap != nil {
				l.tap.Datagram(now, false, local, server, d)
			}
		}
		if s.prober != nil && len(in.Data) <= in.Size && s.consume(l, now, in.Data) {
			continue
		}
		inbound[kept] = in
		kept++
	}
	if heard {
		s.heard(l, now)
	}
	return kept
}

// heard records that the server was heard on a member. It wakes the pacer if the unit is over and nothing was sent since.
func (s *Session) heard(l *member, now time.Time) {
	if s.drain.awaited.Load() == int32(l.Index) {
		s.mu.Lock()
		s.followed(l)
		s.mu.Unlock()
	}
	before, _ := l.Health.State()
	l.Health.Heard(now)
	if after, _ := l.Health.State(); after != before {
		s.mu.Lock()
		s.judge(now)
		s.mu.Unlock()
	}
	if now.UnixNano() >= s.due.Load() || s.asleep.Load() {
		netutil.Offer(s.wake, struct{}{})
	}
}

// stranger warns of a datagram from an address other than the server's, such as another of the server's machine. Off-path
// senders may forge any address, so it warns once a path.
func (s *Session) stranger(l *member, from, server netip.AddrPort) {
	if s.group.Once("stranger " + l.Spec.Name) {
		s.group.Warn("on path %s something arrived from %v, which is not the server %v, and was dropped; if the server answers from that address, name it as the endpoint", l.Spec.Name, from, server)
	}
}
