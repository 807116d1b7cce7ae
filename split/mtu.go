package split

import (
	"fmt"

	"heddle/path"
)

// QUIC needs paths that carry datagrams of 1,200 bytes (RFC 9000, section 14.1), plus IP and UDP headers.
const (
	quicDatagram = 1200
	headers4     = 20 + 8
)

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
