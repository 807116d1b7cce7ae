package observe

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"
)

// Conversation holds the data of one TCP connection, reassembled from a capture.
type Conversation struct {
	Client, Server netip.AddrPort
	// Up is the client's data and Down the server's, each up to the first gap in the capture.
	Up, Down []byte
	// UpAt and DownAt tell when the data came, in its order.
	UpAt, DownAt []Arrival
	Subflow      *Subflow // its role in an MPTCP connection, see [Connections]; nil for plain TCP
}

// Arrival is a part of the data that came at once. It ends before the byte End of the data.
type Arrival struct {
	End int
	At  time.Time
}

// ArrivalOf returns when a byte came, or the zero time if it did not.
func ArrivalOf(all []Arrival, at int) time.Time {
	i, _ := slices.BinarySearchFunc(all, at+1, func(a Arrival, end int) int { return a.End - end })
	if i == len(all) {
		return time.Time{}
	}
	return all[i].At
}

// maxConversations and maxConversationBytes bound what [Conversations] keeps.
const (
	maxConversations     = 4096
	maxConversationBytes = 1 << 30
)

// Conversations reassembles the TCP connections of a pcap or pcapng capture that contains their beginning, in the order
// of their first packets. For a damaged or truncated capture it returns what it could read, and the reason in stopped.
func Conversations(r io.Reader) (all []Conversation, stopped string, err error) {
	source, err := open(bufio.NewReaderSize(r, 1<<16))
	if err != nil {
		return nil, "", err
	}
	a := assembler{flows: map[[2]netip.AddrPort]*assembly{}}
	decoder := newDecoder()
	for c := range source.packets() {
		p, ok := decoder.decode(c)
		if !ok || p.protocol != protocolTCP {
			continue
		}
		if stopped = a.add(p, c.info.Timestamp); stopped != "" {
			break
		}
	}
	for _, f := range a.order {
		f.Up, f.UpAt, f.Down, f.DownAt = f.up.bytes, f.up.arrivals, f.down.bytes, f.down.arrivals
		all = append(all, f.Conversation)
	}
	return all, cmp.Or(stopped, source.stopped), nil
}

// assembler reassembles connections.
type assembler struct {
	flows map[[2]netip.AddrPort]*assembly // by client and server
	order []*assembly
	held  int64
}

type assembly struct {
	Conversation
	isn      uint32 // the client's first sequence number
	up, down halfStream
}

// add takes one TCP segment. It returns a reason once there is too much to keep.
func (a *assembler) add(p decoded, at time.Time) (stopped string) {
	key, back := [2]netip.AddrPort{p.source, p.destination}, [2]netip.AddrPort{p.destination, p.source}
	f, up := a.flows[key], true
	if p.syn && !p.ack && (f == nil || f.up.next != p.sequence+1) { // also if a port is reused
		if len(a.order) == maxConversations {
			return fmt.Sprintf("it has more than %d TCP connections", maxConversations)
		}
		f = &assembly{Conversation: Conversation{Client: p.source, Server: p.destination}, isn: p.sequence}
		a.flows[key], a.order = f, append(a.order, f)
	}
	if f == nil {
		if f, up = a.flows[back], false; f == nil {
			return "" // began before the capture
		}
	}
	f.multipath(p, up)
	half := &f.up
	if !up {
		half = &f.down
	}
	if p.syn {
		half.next, half.open = p.sequence+1, true
		return ""
	}
	if !half.open || len(p.payload) == 0 {
		return ""
	}
	had := len(half.bytes)
	a.held += int64(len(p.payload))
	if a.held > maxConversationBytes {
		return fmt.Sprintf("its TCP connections carry more than %d MiB", maxConversationBytes>>20)
	}
	if half.add(p.sequence, p.payload); len(half.bytes) > had {
		half.arrivals = append(half.arrivals, Arrival{len(half.bytes), at})
	}
	return ""
}

// halfStream is one direction of a connection.
type halfStream struct {
	open     bool
	next     uint32 // sequence number of the byte after bytes
	bytes    []byte
	arrivals []Arrival
	early    []earlySegment // behind a gap, in order of arrival
}

type earlySegment struct {
	sequence uint32
	payload  []byte
}

func (h *halfStream) add(sequence uint32, payload []byte) {
	if int32(sequence-h.next) > 0 {
		h.early = append(h.early, earlySegment{sequence, slices.Clone(payload)})
		return
	}
	if !h.take(sequence, payload) || len(h.early) == 0 {
		return
	}
	slices.SortFunc(h.early, func(a, b earlySegment) int { return int(int32(a.sequence - b.sequence)) })
	taken := 0
	for _, s := range h.early {
		if int32(s.sequence-h.next) > 0 {
			break
		}
		h.take(s.sequence, s.payload)
		taken++
	}
	h.early = slices.Delete(h.early, 0, taken)
}

// take appends the new part of a segment. It returns false if there is none.
func (h *halfStream) take(sequence uint32, payload []byte) bool {
	known := int(int32(h.next - sequence))
	if known >= len(payload) {
		return false
	}
	h.bytes = append(h.bytes, payload[known:]...)
	h.next += uint32(len(payload) - known)
	return true
}
