package observe

import (
	"bufio"
	"io"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// LinkType is the first header of captured packets; see https://www.tcpdump.org/linktypes.html.
type LinkType = layers.LinkType

// The link types that Heddle writes.
const (
	LinkEthernet LinkType = layers.LinkTypeEthernet
	LinkRaw      LinkType = 101 // an IP packet, version 4 or 6
)

const (
	clientWord     = "client="
	clientOutbound = "outbound"
)

// ClientComment is an interface comment that names the client's addresses, so that a report needs no --client.
func ClientComment(addrs ...netip.Addr) string {
	words := make([]string, len(addrs))
	for i, a := range addrs {
		words[i] = clientWord + a.Unmap().String()
	}
	return strings.Join(words, " ")
}

// Writer writes captured packets to a pcapng file with one interface and nanosecond resolution. It is safe for
// concurrent use. Flush it before closing the file.
type Writer struct {
	mu      sync.Mutex
	ng      *pcapgo.NgWriter
	started time.Time
	written uint64
}

// NewWriter starts a capture on w. ifname is the interface's name. comment is free text, and may be a [ClientComment].
func NewWriter(w io.Writer, link LinkType, ifname, comment string) (*Writer, error) {
	return newWriter(w, pcapgo.NgInterface{LinkType: link, Name: ifname, Comment: comment})
}

func newWriter(w io.Writer, iface pcapgo.NgInterface) (*Writer, error) {
	options := pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "heddle"}}
	ng, err := pcapgo.NewNgWriterInterface(bufio.NewWriterSize(w, 1<<16), iface, options)
	if err != nil {
		return nil, err
	}
	return &Writer{ng: ng, started: time.Now()}, nil
}

// Write records one packet of origLen bytes on the wire. data may be truncated; it is not kept.
func (w *Writer) Write(at time.Time, data []byte, origLen int) error {
	return w.write(at, data, origLen, pcapgo.NgPacketOptions{})
}

func (w *Writer) write(at time.Time, data []byte, origLen int, o pcapgo.NgPacketOptions) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	ci := gopacket.CaptureInfo{Timestamp: at, CaptureLength: len(data), Length: max(origLen, len(data))}
	if err := w.ng.WritePacketWithOptions(ci, data, o); err != nil {
		return err
	}
	w.written++
	return nil
}

// Flush writes buffered data to the file.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ng.Flush()
}

// Finish writes the number of packets that the capture missed as interface statistics, and flushes.
func (w *Writer) Finish(dropped uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	err := w.ng.WriteInterfaceStats(0, pcapgo.NgInterfaceStatistics{
		LastUpdate: now, StartTime: w.started, EndTime: now,
		PacketsReceived: w.written + dropped, PacketsDropped: dropped,
	})
	if err != nil {
		return err
	}
	return w.ng.Flush()
}
