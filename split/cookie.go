package split

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"time"
)

// A WireGuard server under load answers a handshake message with a cookie and does nothing else (WireGuard paper, section
// 5.4.7). It takes the message if it comes again with a second MAC, whose key is the cookie. The cookie is bound to the
// address and port that the message came from, so each path needs its own, and the one that wireguard-go would keep is of no
// use. A relay has no keys to sign with. It sends a message that its program signed by the path that the cookie came by.
const (
	labelCookie = "cookie--"
	cookieLife  = 120 * time.Second
	// A message is sent again twice: the first cookie may be for the port that the path had before.
	cookieResends  = 2
	handshakesKept = 4
)

// jar holds the cookie of one member, and the handshake messages that a cookie reply may answer. The session's lock guards it.
type jar struct {
	cookie []byte
	since  time.Time // when the cookie came
	sent   []*shake
}

// shake is a handshake message that was sent.
type shake struct {
	message  []byte
	question bool // it is a probe, not the session's own
	resends  int
}

// sign puts the second MAC on a handshake message, or takes it off if there is no cookie.
func (j *jar) sign(now time.Time, message []byte) {
	second := message[len(message)-macLength:]
	clear(second)
	if j.cookie != nil && now.Sub(j.since) < cookieLife {
		copy(second, mac(j.cookie, message[:len(message)-macLength]))
	}
}

func (j *jar) keep(h *shake) {
	if len(j.sent) == handshakesKept {
		j.sent = j.sent[1:]
	}
	j.sent = append(j.sent, h)
}

// answered returns the message that a cookie reply answers, or nil.
func (j *jar) answered(reply []byte) *shake {
	for _, h := range j.sent {
		if bytes.Equal(h.message[4:8], reply[4:8]) {
			return h
		}
	}
	return nil
}

// signed returns the datagrams with the member's cookie on the handshake messages among them. A relay's program signs them
// itself. s.mu is held.
func (s *Session) signed(l *member, now time.Time, datagrams [][]byte) [][]byte {
	for i, d := range datagrams {
		if !isShake(d) {
			continue
		}
		d = bytes.Clone(d) // it is the sender's, and so is the slice
		if s.prober != nil {
			l.jar.sign(now, d)
			datagrams = slices.Clone(datagrams)
			datagrams[i] = d
		}
		l.jar.keep(&shake{message: d, question: s.prober != nil && l.asked(d)})
	}
	return datagrams
}

// sawCookie notes the member by which a relay's program got its cookie. The message that the reply answers went by that member,
// so no other network can forge this.
func (s *Session) sawCookie(l *member, now time.Time, reply []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.jar.answered(reply) != nil {
		s.cookied = l
		s.noteLoad(now)
	}
}

// withCookie returns the member that the first of a relay's datagrams must take since its program's cookie is for that member,
// or nil, and how many datagrams the answer is for. s.mu is held.
func (s *Session) withCookie(datagrams [][]byte) (*member, int) {
	m := s.cookied
	if s.prober != nil || m == nil || m.Index >= len(s.usable) || !s.usable[m.Index] || m.Current() == nil {
		return nil, len(datagrams)
	}
	switch i := slices.IndexFunc(datagrams, isSigned); i {
	case -1:
		return nil, len(datagrams)
	case 0:
		return m, 1
	default:
		return nil, i
	}
}

// asked reports whether a handshake message, or a reply to one, is of the question under way.
func (m *member) asked(message []byte) bool {
	return !m.probe.sent.IsZero() && binary.LittleEndian.Uint32(message[4:]) == m.probe.id
}

// demanded takes a cookie reply, and sends again the message that it answers. The paper leaves that to the handshake's timer,
// which would send the next message by another path or port. The server has forgotten the message, so this costs it no more.
func (s *Session) demanded(l *member, now time.Time, reply []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := l.jar.answered(reply)
	if h == nil {
		return
	}
	cookie, ok := s.prober.cookie(reply, h.message)
	if !ok {
		return
	}
	l.jar.cookie, l.jar.since = cookie, now
	s.noteLoad(now)
	if h.resends == cookieResends || !s.open {
		return
	}
	switch {
	case !h.question && s.enough:
		s.hold = now.Add(handshakeHold)
	case h.question && l.asked(reply):
		l.probe.sent = now
	default:
		return
	}
	h.resends++
	again := bytes.Clone(h.message)
	l.jar.sign(now, again)
	s.transmit(l, now, [][]byte{again})
}

// noteLoad notes that the server asked for a cookie.
func (s *Session) noteLoad(now time.Time) {
	if s.load(now) == "" {
		s.log.Info("the server is under load: it answers handshakes with cookies", "session", s.o.Session)
	}
	s.loaded.Store(&now)
}

// load says that the server is under load, if it asked for a cookie within a cookie's life; "" otherwise.
func (s *Session) load(now time.Time) string {
	last := s.loaded.Load()
	if last == nil || now.Sub(*last) >= cookieLife {
		return ""
	}
	return fmt.Sprintf("the server is under load: it asked for a cookie %v ago, so a handshake takes one message more", now.Sub(*last).Round(time.Second))
}

func isCookieReply(datagram []byte) bool {
	return len(datagram) == cookieLength && binary.LittleEndian.Uint32(datagram) == cookieType
}

func isShake(datagram []byte) bool { return isInitiation(datagram) || isResponse(datagram) }

// isSigned reports whether a datagram is a handshake message with a cookie's MAC.
func isSigned(datagram []byte) bool {
	return isShake(datagram) && !bytes.Equal(datagram[len(datagram)-macLength:], make([]byte, macLength))
}

func isInitiation(datagram []byte) bool {
	return len(datagram) == initiationLength && binary.LittleEndian.Uint32(datagram) == initiationType
}
