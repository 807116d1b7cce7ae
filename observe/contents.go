package observe

import (
	"slices"

	"heddle/internal/clienthello"
	"heddle/observe/inspect"
)

// BeginningLimit is how many bytes of the beginning of each direction of a conversation a trace keeps. A ClientHello with a
// post-quantum key share and the first packets of a tunnel fit.
const BeginningLimit = 4096

// Contents are statistics of one packet's payload, as far as it was captured: see [inspect.Contents].
type Contents struct {
	Entropy, Printable float32
}

func contentsOf(payload []byte) Contents {
	entropy, printable := inspect.Contents(payload)
	return Contents{float32(entropy), float32(printable)}
}

// beginning is the beginning of what one side of a conversation sent.
type beginning struct {
	stream clienthello.Prefix // of TCP, in order of sequence numbers
	start  uint32             // sequence number of the first byte
	open   bool
	kept   []byte // the first datagram of others
}

func (b *beginning) add(p decoded) {
	if p.protocol != protocolTCP {
		if b.kept == nil && len(p.payload) > 0 {
			b.kept = slices.Clone(p.payload[:min(len(p.payload), BeginningLimit)])
		}
		return
	}
	if p.syn {
		*b = beginning{start: p.sequence + 1, open: true}
		return
	}
	if len(p.payload) == 0 || len(b.stream.Bytes()) >= BeginningLimit {
		return
	}
	if !b.open { // mid-stream: assume that this is the start
		b.start, b.open = p.sequence, true
	}
	b.stream.Insert(uint64(p.sequence-b.start), p.payload)
}

// bytes returns the beginning, up to the first gap.
func (b *beginning) bytes() []byte {
	if b.kept != nil {
		return b.kept
	}
	all := b.stream.Bytes()
	return slices.Clone(all[:min(len(all), BeginningLimit)])
}

// beginnings returns the beginning of what the client and the server of a flow sent. p is one of its packets.
func (f *Flow) beginnings(p Packet) (up, down []byte) {
	first, other := f.began[0].bytes(), f.began[1].bytes()
	if p.forward != p.Out { // the server sent the flow's first packet
		first, other = other, first
	}
	return first, other
}
