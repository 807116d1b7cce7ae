package leadtest

import (
	"fmt"
	"strings"
	"sync"

	"github.com/gopacket/gopacket/layers"
)

// segments are those of TCP that the client's network sees, in their order.
type segments struct {
	mu     sync.Mutex
	all    []string
	end    uint32          // of what came to the client on its connection
	copies map[uint32]bool // what segments acknowledge that came twice
}

// note takes a segment, and reports whether it is a reset that shows a fault. A client answers with one to a copy of data, or of the end of
// data, that comes after the end of its connection: TCP sends a copy if the acknowledgement is late.
func (s *segments) note(tcp *layers.TCP, outgoing bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, fmt.Sprintf("sent by the client %v: number %d, acknowledges %d, %d bytes, SYN %v, FIN %v, RST %v", outgoing, tcp.Seq, tcp.Ack, len(tcp.Payload), tcp.SYN, tcp.FIN, tcp.RST))
	end := tcp.Seq + uint32(len(tcp.Payload))
	if tcp.FIN {
		end++
	}
	switch {
	case tcp.RST:
		return !outgoing || !s.copies[tcp.Seq]
	case outgoing:
	case tcp.SYN:
		s.end, s.copies = end+1, map[uint32]bool{}
	case end != tcp.Seq && int32(end-s.end) <= 0:
		s.copies[tcp.Ack] = true
	case int32(end-s.end) > 0:
		s.end = end
	}
	return false
}

// text returns the last segments.
func (s *segments) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.all[max(0, len(s.all)-40):], "\n")
}
