package wgqueue

import (
	"encoding/binary"
	"net/netip"

	"golang.zx2c4.com/wireguard/conn"
)

// keepaliveSize is the length of a transport message without payload. It never comes out of wireguard-go.
const keepaliveSize = 32

// Hand copies as many datagrams as fit into the buffers of wireguard-go, counts them as inside, and returns their number.
func (g *Gate) Hand(datagrams, packets [][]byte, sizes []int, endpoints []conn.Endpoint, from conn.Endpoint) int {
	n, content := min(len(datagrams), len(packets)), 0
	for i, d := range datagrams[:n] {
		sizes[i], endpoints[i] = copy(packets[i], d), from
		if sizes[i] > keepaliveSize {
			content++
		}
	}
	g.Enter(content)
	return n
}

// Endpoint is a [conn.Endpoint] at the server's address. wireguard-go keeps it, so it must not change.
type Endpoint struct{ Address netip.AddrPort }

// ClearSrc does nothing: the path chooses the source.
func (e *Endpoint) ClearSrc() {}

func (e *Endpoint) SrcToString() string { return "" }

func (e *Endpoint) DstToString() string { return e.Address.String() }

func (e *Endpoint) DstIP() netip.Addr { return e.Address.Addr() }

func (e *Endpoint) SrcIP() netip.Addr { return netip.Addr{} }

// DstToBytes returns the address that the cookie mechanism binds a handshake to.
func (e *Endpoint) DstToBytes() []byte {
	return binary.BigEndian.AppendUint16(e.Address.Addr().AsSlice(), e.Address.Port())
}
