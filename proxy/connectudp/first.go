package connectudp

import (
	"net"
	"net/netip"
	"sync"

	"golang.org/x/net/ipv4"

	"heddle/internal/netutil"
	"heddle/path/masque"
)

// firstSizes is a socket that notes the size of each client's first packets. A client that knows that its device is narrow begins
// with smaller packets, and larger ones of the proxy would be lost on the way back. Where the system reads packets one by one,
// nothing is noted.
type firstSizes struct {
	*net.UDPConn
	batch *ipv4.PacketConn

	mu    sync.Mutex
	sizes map[netip.AddrPort]uint16 // in bytes, of clients that may begin a connection
}

func noteFirst(socket *net.UDPConn) *firstSizes {
	return &firstSizes{UDPConn: socket, batch: ipv4.NewPacketConn(socket), sizes: map[netip.AddrPort]uint16{}}
}

// ReadBatch is what quic-go reads by.
func (f *firstSizes) ReadBatch(packets []ipv4.Message, flags int) (int, error) {
	n, err := f.batch.ReadBatch(packets, flags)
	for i := range max(n, 0) {
		if m := &packets[i]; isFirst(m.Buffers[0][:m.N]) {
			f.note(netutil.AddrPort(m.Addr), m.N)
		}
	}
	return n, err
}

// isFirst reports whether a packet may be a client's first. Its header is long, and QUIC demands its size (RFC 9000, section 14.1).
func isFirst(packet []byte) bool { return len(packet) >= 1200 && packet[0]&0x80 != 0 }

// note notes a size that a proxy would exceed. Clients that begin with less than any path carries say nothing about theirs.
func (f *firstSizes) note(from netip.AddrPort, size int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sizes, from)
	if size < masque.PacketNarrow || size >= masque.PacketRoomy {
		return
	}
	if len(f.sizes) >= maxPending {
		for old := range f.sizes {
			delete(f.sizes, old)
			break
		}
	}
	f.sizes[from] = uint16(size)
}

// of returns the size of the first packet to a client.
func (f *firstSizes) of(client netip.AddrPort) uint16 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if size, ok := f.sizes[client]; ok {
		return size
	}
	return masque.PacketRoomy
}
