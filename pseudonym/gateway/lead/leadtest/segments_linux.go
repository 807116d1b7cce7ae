package leadtest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/gopacket/gopacket/layers"
)

// segments are those of TCP that the client's network sees, in their order.
type segments struct {
	mu     sync.Mutex
	last   []string
	faults []string        // with what came before each
	end    uint32          // of what came to the client on its connection
	copies map[uint32]bool // what segments acknowledge that came twice

	asks, connecting bool // whether the switch asks the tenant, and the client waits for an answer to its first packet
}

// note takes a segment, and reports whether it is a reset that shows a fault.
func (s *segments) note(tcp *layers.TCP, outgoing bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = append(s.last, fmt.Sprintf("%s sent by the client %v: number %d, acknowledges %d, %d bytes, SYN %v, FIN %v, RST %v",
		time.Now().Format("05.000000"), outgoing, tcp.Seq, tcp.Ack, len(tcp.Payload), tcp.SYN, tcp.FIN, tcp.RST))
	const shown = 12
	s.last = s.last[max(0, len(s.last)-shown):]
	fault := s.isFault(tcp, outgoing)
	if fault {
		s.faults = append(s.faults, strings.Join(s.last, "\n"))
	}
	return fault
}

// isFault reports whether a segment is a reset that shows a fault. A client answers with one to a copy of data, or of the end of data, that comes
// after the end of its connection: TCP sends a copy if the acknowledgement is late. A switch that asks lets a client that connects see what the tenant
// says of its former connection. The client breaks that off, and ignores a reset that acknowledges nothing (RFC 9293, section 3.10.7.3).
func (s *segments) isFault(tcp *layers.TCP, outgoing bool) bool {
	end := tcp.Seq + uint32(len(tcp.Payload))
	if tcp.FIN {
		end++
	}
	switch {
	case tcp.SYN:
		s.connecting = outgoing
	case outgoing && !tcp.RST:
		s.connecting = false
	}
	switch {
	case tcp.RST && s.asks && s.connecting:
		return !outgoing && tcp.ACK
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

// text returns the faults.
func (s *segments) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.faults, "\n\n")
}
