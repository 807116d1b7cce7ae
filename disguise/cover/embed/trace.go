package embed

import (
	"errors"
	"fmt"
	"time"

	"heddle/disguise/block"
	"heddle/disguise/cover"
)

// Trace is one recorded conversation.
type Trace struct {
	Name      string // unique in its database
	Protocol  string // what was recorded, for people
	Datagrams bool   // UDP, else TCP
	Port      uint16 // of the server that was recorded
	Loop      bool   // begins again at its end, else the connection ends there
	Whole     bool   // only plays from its beginning; a stream always does
	// Up and Down are the headers of the client and of the server. With datagrams a header begins each of them, else it begins
	// the stream, and is literal.
	Up, Down Header
	Packets  []Packet // in order of time
}

// Packet is one write of one side: a datagram, or a segment.
type Packet struct {
	At   time.Duration // since the first packet
	Size int           // of the payload of UDP or TCP, in bytes
	Down bool          // from server to client
}

// Bounds of a database: hostile files end here.
const (
	MaxTraces    = 256
	MaxPackets   = 200_000 // of one trace
	MaxDuration  = time.Hour
	MaxHeader    = 64    // bytes of the header of datagrams
	MaxOpening   = 255   // bytes that begin a stream
	maxText      = 100   // bytes of a name
	maxDatagram  = 65507 // bytes: of UDP over IPv4
	maxSegment   = 1 << 20
	maxGap       = 5 * time.Minute // between packets of one side
	leastPackets = 2
)

// A datagram of each side must have room for a hello, or its answer: see docs/disguise-wire.md. A hello with a token of 16
// bytes, and the parameters of this cover, has 123 bytes.
const (
	roomForHello  = 128
	roomForAnswer = 96
)

// Duration is the time from the first packet to the last.
func (t *Trace) Duration() time.Duration {
	if len(t.Packets) == 0 {
		return 0
	}
	return t.Packets[len(t.Packets)-1].At
}

// Header returns the header of one side.
func (t *Trace) Header(down bool) Header {
	if down {
		return t.Down
	}
	return t.Up
}

// Count returns the packets and the bytes of one side.
func (t *Trace) Count(down bool) (packets int, bytes int64) {
	for _, p := range t.Packets {
		if p.Down == down {
			packets++
			bytes += int64(p.Size)
		}
	}
	return packets, bytes
}

// Capacity is how many bytes of a stream one side can carry while the trace plays once.
func (t *Trace) Capacity(down bool) (bytes int64) {
	const offset = 8 // of the stream, in each block
	header := t.Header(down).Size()
	if !t.Datagrams {
		_, all := t.Count(down)
		return max(0, all-int64(header)) * (leastBlock - block.Overhead - offset) / leastBlock
	}
	for _, p := range t.Packets {
		if p.Down == down {
			bytes += int64(max(0, p.Size-header-block.Overhead-offset))
		}
	}
	return bytes
}

// starts returns the packets with which a client may begin.
func (t *Trace) starts() (all []int) {
	if !t.Datagrams || t.Whole {
		return []int{0}
	}
	half := t.Duration() / 2
	for i, p := range t.Packets {
		if !p.Down && (p.At <= half || t.Loop) && t.fits(p) {
			all = append(all, i)
		}
	}
	if len(all) == 0 {
		return []int{0}
	}
	return all
}

// silence is the longest time that a side sends no blocks, the end of a loop included.
func (t *Trace) silence(down bool) (longest time.Duration) {
	last, least := -t.rest(), 0
	if t.Datagrams {
		least = t.Header(down).Size() + block.Overhead
	}
	for _, p := range t.Packets {
		if p.Down == down && p.Size >= least {
			longest, last = max(longest, p.At-last), p.At
		}
	}
	return max(longest, t.Duration()+t.rest()-last)
}

// rest is the time between the last packet of a loop and its first one.
func (t *Trace) rest() time.Duration { return t.Duration() / time.Duration(len(t.Packets)-1) }

// hello returns the client's packet, from start on, with which a hello has arrived, or -1. The bridge begins there. A bridge
// that knows no trace yet sends nothing, so the hello of a stream has to arrive before the server's first packet.
func (t *Trace) hello(start int) int {
	streamed := -t.Up.Size()
	for i, p := range t.Packets[start:] {
		if p.Down {
			if !t.Datagrams {
				break
			}
			continue
		}
		streamed += p.Size
		if t.Datagrams && t.fits(p) || !t.Datagrams && streamed >= roomForHello {
			return start + i
		}
	}
	return -1
}

// fits says whether a datagram can carry a hello or its answer.
func (t *Trace) fits(p Packet) bool {
	room := roomForHello
	if p.Down {
		room = roomForAnswer
	}
	return p.Size-t.Header(p.Down).Size() >= room
}

// Check returns why a trace cannot be played.
func (t *Trace) Check() error {
	switch {
	case !plainText(t.Name) || t.Name == "" || !plainText(t.Protocol):
		return fmt.Errorf("its name or protocol is not 1 to %d printable characters", maxText)
	case len(t.Packets) < leastPackets || len(t.Packets) > MaxPackets:
		return fmt.Errorf("%d packets: not %d to %d", len(t.Packets), leastPackets, MaxPackets)
	case t.Duration() > MaxDuration:
		return fmt.Errorf("it takes %v, more than %v", t.Duration(), MaxDuration)
	case t.Loop && t.Duration() < time.Second:
		return errors.New("it loops in less than a second")
	}
	if begin := t.hello(0); !t.Datagrams && begin < 0 {
		return fmt.Errorf("the client sends less than %d bytes behind its opening before the server answers, so that no hello fits", roomForHello)
	}
	for _, down := range []bool{false, true} {
		if err := t.checkSide(down); err != nil {
			return fmt.Errorf("%s: %w", sideName(down), err)
		}
	}
	return nil
}

func sideName(down bool) string {
	if down {
		return "server"
	}
	return "client"
}

func (t *Trace) checkSide(down bool) error {
	most, fitting := maxSegment, !t.Datagrams
	if t.Datagrams {
		most = maxDatagram
	}
	packets, last := 0, time.Duration(0)
	for i, p := range t.Packets {
		if i > 0 && p.At < t.Packets[i-1].At || i == 0 && p.At != 0 {
			return fmt.Errorf("the time of packet %d goes backwards", i)
		}
		if p.Down != down {
			continue
		}
		if p.Size < 1 || p.Size > most {
			return fmt.Errorf("packet %d has %d bytes, not 1 to %d", i, p.Size, most)
		}
		if p.At-last > maxGap {
			return fmt.Errorf("it is silent for %v, longer than %v", p.At-last, maxGap)
		}
		packets, last = packets+1, p.At
		fitting = fitting || t.fits(p)
	}
	if t.Duration()-last > maxGap {
		return fmt.Errorf("it is silent for %v at the end, longer than %v", t.Duration()-last, maxGap)
	}
	if err := t.Header(down).check(t.Datagrams, packets); err != nil {
		return err
	}
	if _, bytes := t.Count(down); !t.Datagrams && bytes < int64(t.Header(down).Size())+cover.MinBytes {
		return fmt.Errorf("it sends %d bytes, too few to carry anything", bytes)
	}
	if !fitting {
		return errors.New("no datagram has room for a handshake")
	}
	return nil
}

func plainText(s string) bool {
	for _, r := range s {
		if r < ' ' || r > '~' {
			return false
		}
	}
	return len(s) <= maxText
}
