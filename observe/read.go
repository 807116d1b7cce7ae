package observe

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/pcapgo"

	"heddle/observe/inspect"
)

// Packet is one IP packet as an observer saw it.
type Packet struct {
	Time time.Time
	Size int  // length of the IP packet, in bytes
	Out  bool // client to server
	Flow int  // index in the capture's Flows

	Payload int // bytes that TCP, UDP or else IP carries
	// Head is the beginning of the payload, as far as [Options.Head] says and it was captured.
	Head     []byte
	Contents Contents // only with [Options.Contents]
	// Repeated says that all of a TCP segment's payload was seen before.
	Repeated bool
	// Acknowledged is the time until the other side's first packet that acknowledges all of a TCP segment, if it has payload or SYN: the
	// round trip of the transport behind the observer. It is zero if none was seen, and for repetitions.
	Acknowledged time.Duration

	forward   bool // in the direction of its flow's first packet
	direction pcapgo.NgEpbFlag
}

// Flow is one conversation: the packets between two ports, both ways.
type Flow struct {
	Client, Server netip.AddrPort
	Transport      string // "udp", "tcp" or "ip"
	Payload        int64  // bytes in TCP or UDP, both ways
	inspect.Flow

	opened  bool         // a TCP SYN identified the client
	sent    [2]sentSoFar // by the first packet's sender, and by the other side
	unacked [2]unacknowledged
	began   [2]beginning // the same; only with [Options.Contents]
}

// Capture is what one observer saw, in order of time.
type Capture struct {
	Packets []Packet
	Flows   []Flow
	// Clients are the client's addresses, and How says their source: "given", "capture" or "guessed".
	Clients []netip.Addr
	How     string
	// Stopped says why reading ended early, such as in a truncated file; else empty.
	Stopped string
	// Missed is how many packets the capture says it dropped, Filtered how many the filter left out, NotIP how many
	// packets are not IP, and Foreign how many are of other hosts than the client.
	Missed, Filtered, NotIP, Foreign uint64
	// Backwards is the largest step by which a packet's time is before that of the packet that the file has before it, and
	// Disordered the number of the first such packet, from 1. They are zero if times never go backwards.
	Backwards  time.Duration
	Disordered int

	contents bool // whether they were read
}

// Options say how to read captures. The zero value reads all packets, and finds the client in the capture.
type Options struct {
	// Clients are the networks of the client's addresses. If nil, they are those that the capture's interface comments
	// name (see [ClientComment]) or its packets' flags tell, or a guess.
	Clients []netip.Prefix
	// Strict leaves out packets of other hosts than the client even if the client is a guess.
	Strict bool
	Filter *Filter // nil lets all packets through
	Head   int     // bytes of each payload to keep
	// Contents computes statistics of each payload, and keeps the beginning of each conversation.
	Contents bool
	// Begun leaves out TCP connections that had begun before the capture did.
	Begun bool
}

// ErrNotACapture is what [Read] returns for bytes that are neither pcap nor pcapng.
var ErrNotACapture = errors.New("not a capture: neither pcap nor pcapng")

// ErrLinkType is what [Read] returns for a capture of a link whose headers it does not know.
var ErrLinkType = errors.New("unknown link type")

// Read reads a pcap or pcapng capture. For a damaged or truncated capture it returns what it could read, with Stopped
// set.
func Read(r io.Reader, options Options) (*Capture, error) {
	source, err := open(bufio.NewReaderSize(r, 1<<16))
	if err != nil {
		return nil, err
	}
	b := builder{decoder: newDecoder(), flows: map[flowKey]int{}, filter: options.Filter, head: options.Head, contents: options.Contents}
	for c := range source.packets() {
		if err := b.add(c); err != nil {
			return nil, err
		}
	}
	b.capture.Stopped, b.capture.Missed = source.stopped, source.missed
	b.capture.contents = options.Contents
	if options.Begun {
		b.capture.leaveOut(func(f *Flow) bool { return f.Transport == "tcp" && !f.opened })
	}
	b.capture.orient(options, source.clients, source.flagged)
	return &b.capture, nil
}

// leaveOut removes the packets of some conversations.
func (c *Capture) leaveOut(some func(*Flow) bool) {
	c.Packets = slices.DeleteFunc(c.Packets, func(p Packet) bool { return some(&c.Flows[p.Flow]) })
}

// source is an open capture file of either format.
type source struct {
	ng      *pcapgo.NgReader
	plain   *pcapgo.Reader
	clients []netip.Addr // from interface comments
	flagged bool         // an interface comment says that outbound packets are the client's
	known   int          // interfaces whose comment has been read
	missed  uint64
	stopped string // why reading ended early; else empty
}

// captured is a packet of the file. data is valid until the next one is read.
type captured struct {
	data      []byte
	info      gopacket.CaptureInfo
	link      LinkType
	direction pcapgo.NgEpbFlag
}

func open(r *bufio.Reader) (*source, error) {
	magic, err := r.Peek(4)
	if err != nil {
		return nil, fmt.Errorf("%w: it holds %d bytes", ErrNotACapture, len(magic))
	}
	s := &source{}
	switch binary.BigEndian.Uint32(magic) {
	case 0x0A0D0D0A:
		s.ng, err = pcapgo.NewNgReader(r, pcapgo.NgReaderOptions{WantMixedLinkType: true, SkipUnknownVersion: true,
			StatisticsCallback: func(_ int, i pcapgo.NgInterfaceStatistics) {
				if i.PacketsDropped != pcapgo.NgNoValue64 {
					s.missed += i.PacketsDropped
				}
			},
			SectionEndCallback: func([]pcapgo.NgInterface, pcapgo.NgSectionInfo) { s.known = 0 }})
	case 0xA1B2C3D4, 0xD4C3B2A1, 0xA1B23C4D, 0x4D3CB2A1:
		s.plain, err = pcapgo.NewReader(r)
	default:
		return nil, ErrNotACapture
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotACapture, err)
	}
	return s, nil
}

var errImpossible = errors.New("a packet has no time or length, or one that makes no sense")

// packets yields the packets that can be read.
func (s *source) packets() iter.Seq[captured] {
	return func(yield func(captured) bool) {
		for read := 0; ; read++ {
			c, err := s.next()
			if year := c.info.Timestamp.Year(); err == nil && (year < 1970 || year > 2200 || c.info.Length > math.MaxInt32) {
				err = errImpossible
			}
			switch {
			case errors.Is(err, io.EOF):
				return
			case errors.Is(err, io.ErrUnexpectedEOF):
				s.stopped = fmt.Sprintf("the file is cut short after %d packets", read)
				return
			case err != nil:
				s.stopped = fmt.Sprintf("the file is damaged after %d packets: %v", read, err)
				return
			case !yield(c):
				return
			}
		}
	}
}

func (s *source) next() (c captured, err error) {
	if s.plain != nil {
		c.link = s.plain.LinkType()
		c.data, c.info, err = s.plain.ZeroCopyReadPacketData()
		return c, err
	}
	var options pcapgo.NgPacketOptions
	if c.data, c.info, options, err = s.ng.ZeroCopyReadPacketDataWithOptions(); err != nil {
		return c, err
	}
	for ; s.known < s.ng.NInterfaces(); s.known++ {
		iface, _ := s.ng.Interface(s.known)
		s.comment(iface.Comment)
	}
	c.link, _ = c.info.AncillaryData[0].(LinkType)
	if options.Flags != nil {
		c.direction = options.Flags.Direction
	}
	return c, nil
}

func (s *source) comment(text string) {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ' ' || r == ';' || r == ',' }) {
		value, found := strings.CutPrefix(word, clientWord)
		if !found {
			continue
		}
		if value == clientOutbound {
			s.flagged = true
		} else if a, err := netip.ParseAddr(value); err == nil {
			s.clients = append(s.clients, a.Unmap())
		}
	}
}

// builder builds a capture packet by packet.
type builder struct {
	capture Capture
	decoder *decoder
	flows   map[flowKey]int
	filter  *Filter
	head    int

	contents bool
}

// flowKey identifies a conversation in both directions; low sorts before high.
type flowKey struct {
	low, high netip.AddrPort
	protocol  uint8
}

func (b *builder) add(c captured) error {
	if _, known := firstLayers[c.link]; !known {
		return fmt.Errorf("%w %d (%v)", ErrLinkType, int(c.link), c.link)
	}
	if passes, err := b.filter.passes(c); err != nil || !passes {
		b.capture.Filtered++
		return err
	}
	p, ok := b.decoder.decode(c)
	if !ok {
		b.capture.NotIP++
		return nil
	}
	key := flowKey{p.source, p.destination, p.protocol}
	if key.high.Compare(key.low) < 0 {
		key.low, key.high = key.high, key.low
	}
	id, known := b.flows[key]
	if !known {
		id = len(b.capture.Flows)
		b.flows[key] = id
		b.capture.Flows = append(b.capture.Flows, newFlow(p))
	}
	f := &b.capture.Flows[id]
	f.inspect(p)
	packet := Packet{Time: c.info.Timestamp, Size: p.size, Payload: p.payloadSize, Flow: id, forward: p.source == f.Client,
		direction: c.direction, Head: slices.Clone(p.payload[:min(len(p.payload), b.head)])}
	if p.protocol == protocolTCP {
		mine, other := 0, 1
		if packet.forward {
			mine, other = 1, 0
		}
		if packet.Repeated = f.sent[mine].add(p); !packet.Repeated {
			f.unacked[mine].add(p, len(b.capture.Packets))
		}
		if p.ack {
			f.unacked[other].acknowledge(p.acknowledged, packet.Time, b.capture.Packets)
		}
	}
	if b.contents {
		packet.Contents = contentsOf(p.payload)
		side := &f.began[1]
		if packet.forward {
			side = &f.began[0]
		}
		side.add(p)
	}
	b.capture.Packets = append(b.capture.Packets, packet)
	return nil
}

// sentSoFar is how far one side of a TCP connection has got.
type sentSoFar struct {
	next  uint32 // sequence number behind the last byte
	begun bool
}

// add returns whether a segment's payload was all sent before.
func (s *sentSoFar) add(p decoded) (repeated bool) {
	end := p.sequence + uint32(p.payloadSize)
	if p.syn {
		end++
	}
	if s.begun && !p.syn && int32(end-s.next) <= 0 {
		return p.payloadSize > 0
	}
	s.next, s.begun = end, true
	return false
}

// newFlow assumes for now that the sender of the first packet is the client.
func newFlow(p decoded) Flow {
	transport := "ip"
	switch p.protocol {
	case protocolTCP:
		transport = "tcp"
	case protocolUDP:
		transport = "udp"
	}
	return Flow{Client: p.source, Server: p.destination, Transport: transport}
}

func (f *Flow) inspect(p decoded) {
	switch p.protocol {
	case protocolUDP:
		f.Payload += int64(p.payloadSize)
		f.UDP(p.source.Port(), p.destination.Port(), p.payload)
	case protocolTCP:
		f.Payload += int64(p.payloadSize)
		f.opened = f.opened || p.syn && !p.ack && p.source == f.Client
		f.TCP(p.source == f.Client, p.source.Port(), p.destination.Port(), p.sequence, p.syn, p.payload)
	}
}
