package split

import (
	"fmt"
	"math"
	"net/netip"
	"sync/atomic"
	"time"

	"heddle/internal/clienthello"
	"heddle/path"
	"heddle/path/group"
)

// QUIC needs paths that carry datagrams of 1,200 bytes (RFC 9000, section 14.1). Before their datagrams come IP and UDP
// headers.
const (
	quicDatagram = 1200
	headers4     = 20 + 8
	headers6     = 40 + 8
)

// payload returns the largest datagram to a server in an IP packet of that size, in bytes.
func payload(packet int, server netip.Addr) int {
	if server.Is4() {
		return max(packet-headers4, 0)
	}
	return max(packet-headers6, 0)
}

// limit is the largest datagram of a session, in both directions. Without it, a program that searches for the largest size
// (RFC 8899) would find that of a wide path, and lose all large datagrams on a narrow one. It holds for QUIC, which must not
// be fragmented (RFC 9000, section 14), and for all programs if a path cannot send fragments. The session's lock guards it,
// except the atomic fields.
type limit struct {
	datagram atomic.Int64 // bytes; math.MaxInt64 if there is none
	tooLarge atomic.Uint64

	all, whole group.Ceiling
	binding    group.Narrow // the one that datagram is of
	quic       bool         // a client of QUIC uses the session
	up, down   dropRate
}

// dropRate tells a program that keeps sending too large datagrams from one that searches for the largest size.
type dropRate struct {
	dropped uint64 // since the last mark
	passed  uint64 // by all paths at the last mark
}

const (
	droppedRun   = 20 // about twice what a search loses
	passedPerRun = 4 * droppedRun
)

// tooOften counts a drop; passed is how many datagrams all paths carried so far.
func (r *dropRate) tooOften(passed uint64) bool {
	if r.dropped++; r.dropped < droppedRun {
		return false
	}
	often := passed-r.passed < passedPerRun
	*r = dropRate{passed: passed}
	return often
}

// measure asks the paths for their sizes and sets the limit.
func (s *Session) measure() {
	now := s.now()
	all, whole := s.group.Narrowest(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit.all.Follow(now, all)
	s.limit.whole.Follow(now, whole)
	s.setLimit()
}

// setLimit sets the limit in force. s.mu is held.
func (s *Session) setLimit() {
	l := &s.limit
	l.binding = l.whole.InForce()
	if l.quic {
		l.binding = l.all.InForce()
	}
	datagram := int64(math.MaxInt64)
	if l.binding.Size > 0 {
		datagram = int64(payload(l.binding.Size, s.server.Load().Addr()))
	}
	l.datagram.Store(datagram)
}

// Narrowest asks the paths for the largest packets that they carry. It returns the narrowest path, and the narrowest of those
// that refuse larger packets. The server's address must be known.
func (s *Session) Narrowest() (all, whole group.Narrow) {
	s.measure()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit.all.InForce(), s.limit.whole.InForce()
}

// fitting returns the datagrams of the program that do not exceed the limit, and drops the others. s.mu is held.
func (s *Session) fitting(datagrams [][]byte) [][]byte {
	if !s.limit.quic && s.prober == nil && startsQUIC(datagrams[0]) {
		s.limit.quic = true
		s.setLimit()
	}
	most := s.limit.datagram.Load()
	for i, d := range datagrams {
		if int64(len(d)) <= most {
			continue
		}
		kept := append([][]byte{}, datagrams[:i]...)
		for _, d := range datagrams[i:] {
			if int64(len(d)) <= most {
				kept = append(kept, d)
			} else {
				s.exceeds(&s.limit.up, func(m *member) *tally { return &m.up }, isLong(d))
			}
		}
		return kept
	}
	return datagrams
}

// startsQUIC reports whether a datagram is a client's first one of QUIC (RFC 9000, section 14.1; RFC 8999, section 5.1). The
// second bit is set in the first packets of all clients that the server did not permit otherwise (RFC 9287).
func startsQUIC(d []byte) bool {
	if len(d) < quicDatagram || d[0]&0xc0 != 0xc0 {
		return false
	}
	packets, _ := clienthello.Packets(d)
	return len(packets) > 0 && packets[0].Kind == clienthello.KindInitial
}

// cut removes the datagrams of one receive that exceed the limit, and returns their number. All but the last of a receive
// have one length.
func (s *Session) cut(in *path.Inbound) (dropped int) {
	most := int(min(s.limit.datagram.Load(), math.MaxInt))
	if in.Size <= most || len(in.Data) <= most {
		return 0
	}
	n, last := (len(in.Data)+in.Size-1)/in.Size, len(in.Data)%in.Size
	dropped = n
	if last == 0 || last > most {
		in.Data = nil
	} else {
		dropped--
		in.Data, in.Size = in.Data[len(in.Data)-last:], last
		if in.Order != 0 {
			in.Order += uint64(dropped)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for range dropped {
		s.exceeds(&s.limit.down, func(m *member) *tally { return &m.down }, false)
	}
	return dropped
}

// reportWithin is how long after the session's beginning a router's report of a narrow path counts. Later, programs have
// settled on a size, and may not notice that it no longer passes. So a forged report (ICMP proves nothing) makes packets
// smaller at most; the kernel sends fragments on that path alone.
const reportWithin = 10 * time.Second

// reported records a report that a datagram was too large for a path. s.mu is held.
func (s *Session) reported(l *member, u *path.Unreachable) {
	text := u.Error()
	l.tooBig.Store(&text)
	s.group.Note(l.Member, text)
	if now := s.now(); !u.By.IsValid() || now.Sub(s.since) < reportWithin {
		l.TooLarge(now, u.MTU) // the next measure counts it
	}
}

// exceeds counts a datagram that is dropped on every path, and warns once if that is no search for the largest size. s.mu is
// held.
func (s *Session) exceeds(rate *dropRate, of func(*member) *tally, handshake bool) {
	l := &s.limit
	l.tooLarge.Add(1)
	var passed uint64
	for _, m := range s.members {
		passed += of(m).packets.Load()
	}
	if often := rate.tooOften(passed); l.quic && !handshake && !often {
		return
	}
	name, most := l.binding.Path, l.datagram.Load()
	const dropped = "datagrams of more than %d bytes are dropped on every path, since path %s carries no larger ones; "
	switch {
	case l.quic && most < quicDatagram:
		s.group.Warn("QUIC needs datagrams of %d bytes, and path %s carries %d: nothing of the session passes; raise its MTU, or leave it out", quicDatagram, name, most)
	case l.quic && handshake:
		s.group.Warn(dropped+"the program begins with larger ones: lower its first packet size, or leave the path out", most, name)
	case s.prober != nil:
		s.group.Warn(dropped+"the server sends larger ones: set the MTU of its tunnel to %d", most, name, most-wireguardOverhead)
	default:
		s.group.Warn(dropped+"lower the MTU of the program and of the server, or leave the path out", most, name)
	}
}

// wireguardOverhead is what WireGuard adds to a packet, without UDP and IP.
const wireguardOverhead = 32

// Limit says what clients must know of the size of their datagrams, or nothing if that is unknown.
func (r *Relay) Limit() string {
	narrowest, _ := group.NarrowestOf(r.o.members(), r.o.paths)
	return TellLimit(narrowest, r.places.first().Addr())
}

// TellLimit says what a program must know of the size of its datagrams, or nothing if that is unknown.
func TellLimit(n group.Narrow, server netip.Addr) string {
	most := payload(n.Size, server)
	switch {
	case n.Size == 0:
		return ""
	case most < quicDatagram:
		return fmt.Sprintf("datagrams of at most %d bytes pass whole by every path, since path %s carries no larger ones; QUIC needs %d and does not work", most, n.Path, quicDatagram)
	}
	return fmt.Sprintf("datagrams of at most %d bytes pass whole by every path, since path %s carries no larger ones; QUIC adapts by itself, the MTU of a WireGuard tunnel has to be at most %d",
		most, n.Path, most-wireguardOverhead)
}

// checkMTU fails if a rule shows that the session is QUIC and a path is too narrow for it. Otherwise it warns.
func (s *Session) checkMTU() error {
	for _, l := range s.members {
		mtu := l.Path.Describe().MTU
		if mtu == 0 || mtu >= quicDatagram+headers4 {
			continue
		}
		if s.rules.handshakeMember() >= 0 {
			return &path.Error{What: "path " + l.Spec.Name, Why: fmt.Sprintf("it carries packets of %d bytes, and QUIC needs %d", mtu, quicDatagram+headers4),
				Hint: "raise its MTU, or leave the path out"}
		}
		s.group.Warn("path %s carries packets of %d bytes only; QUIC would need %d", l.Spec.Name, mtu, quicDatagram+headers4)
	}
	return nil
}
