package demo

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"heddle/observe"
)

// tap writes a capture of what a relay carried, in packets as a network would have carried them. It is safe for concurrent use.
type tap struct {
	mu   sync.Mutex
	file *os.File
	out  *observe.Writer
	err  error // the first
}

func newTap(name string) (*tap, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	out, err := observe.NewWriter(f, observe.LinkRaw, "network", observe.ClientComment(loopbackClient)+"; headers are written by the relay")
	return &tap{file: f, out: out}, err
}

func (t *tap) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(t.err, t.out.Finish(0), t.file.Close())
}

// write records one packet of IPv4.
func (t *tap) write(from, to netip.Addr, protocol layers.IPProtocol, transport gopacket.SerializableLayer, payload []byte) {
	ip := &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Protocol: protocol, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
	var err error
	switch l := transport.(type) {
	case *layers.TCP:
		err = l.SetNetworkLayerForChecksum(ip)
	case *layers.UDP:
		err = l.SetNetworkLayerForChecksum(ip)
	}
	b := gopacket.NewSerializeBuffer()
	err = errors.Join(err, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ip, transport, gopacket.Payload(payload)))
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		err = t.out.Write(time.Now(), b.Bytes(), len(b.Bytes()))
	}
	if t.err == nil {
		t.err = err
	}
}

func (t *tap) datagram(from, to netip.AddrPort, payload []byte) {
	t.write(from.Addr(), to.Addr(), layers.IPProtocolUDP, &layers.UDP{SrcPort: layers.UDPPort(from.Port()), DstPort: layers.UDPPort(to.Port())}, payload)
}

// tappedSegment is how many bytes a segment carries over Ethernet.
const tappedSegment = 1448

// tapped is one TCP connection.
type tapped struct {
	*tap
	client, server netip.AddrPort
	mu             sync.Mutex
	up, down       uint32 // next sequence numbers
}

// connection begins a connection with its handshake. It returns nil for no tap.
func (t *tap) connection(client, server netip.AddrPort) *tapped {
	if t == nil {
		return nil
	}
	c := &tapped{tap: t, client: client, server: server, up: 1, down: 1}
	c.segment(true, 0, layers.TCP{SYN: true}, nil)
	c.segment(false, 0, layers.TCP{SYN: true, ACK: true, Ack: 1}, nil)
	c.segment(true, 1, layers.TCP{ACK: true, Ack: 1}, nil)
	return c
}

func (c *tapped) segment(up bool, sequence uint32, header layers.TCP, payload []byte) {
	from, to := c.server, c.client
	if up {
		from, to = c.client, c.server
	}
	header.SrcPort, header.DstPort, header.Seq, header.Window = layers.TCPPort(from.Port()), layers.TCPPort(to.Port()), sequence, 65535
	c.write(from.Addr(), to.Addr(), layers.IPProtocolTCP, &header, payload)
}

// tee returns a reader whose bytes are captured, if c is not nil: from the client or from the server.
func (c *tapped) tee(r io.Reader, up bool) io.Reader {
	if c == nil {
		return r
	}
	return io.TeeReader(r, writerFunc(func(b []byte) (int, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		next, other := &c.down, c.up
		if up {
			next, other = &c.up, c.down
		}
		for part := range slices.Chunk(b, tappedSegment) {
			c.segment(up, *next, layers.TCP{ACK: true, PSH: true, Ack: other}, part)
			*next += uint32(len(part))
		}
		return len(b), nil
	}))
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
