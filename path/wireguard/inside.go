package wireguard

import (
	"context"
	"fmt"
	"net/netip"
	"os"

	"golang.zx2c4.com/wireguard/tun"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"heddle/internal/wgqueue"
)

const (
	nic       = 1
	queueSize = 1024 // packets on their way into the tunnel; like a full device, it drops more
	batch     = 32   // packets per call; wireguard-go keeps 64 KiB for each
)

// inside is the network stack inside the tunnel, and the device that wireguard-go reads and writes. Unlike wireguard-go's
// own netstack, it passes packets in batches, and may be closed during a send.
type inside struct {
	stack    *stack.Stack
	link     *channel.Endpoint
	mtu      int
	events   chan tun.Event
	ctx      context.Context
	cancel   context.CancelFunc
	up, down *wgqueue.Gate
}

var _ tun.Device = (*inside)(nil)

func newInside(addresses []netip.Prefix, mtu int) (*inside, error) {
	d := &inside{
		stack: stack.New(stack.Options{
			NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
			TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
		}),
		link: channel.New(queueSize, uint32(mtu), ""), mtu: mtu, events: make(chan tun.Event),
		up: wgqueue.New(wgqueue.Limit), down: wgqueue.New(wgqueue.Limit),
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	sack := tcpip.TCPSACKEnabled(true)
	if err := d.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &sack); err != nil {
		return nil, fmt.Errorf("network stack: %v", err)
	}
	if err := d.stack.CreateNIC(nic, d.link); err != nil {
		return nil, fmt.Errorf("network stack: %v", err)
	}
	for _, p := range addresses {
		address := tcpip.ProtocolAddress{Protocol: protocolOf(p.Addr()), AddressWithPrefix: tcpip.AddrFromSlice(p.Addr().AsSlice()).WithPrefix()}
		if err := d.stack.AddProtocolAddress(nic, address, stack.AddressProperties{}); err != nil {
			return nil, fmt.Errorf("network stack: address %v: %v", p.Addr(), err)
		}
	}
	d.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}, {Destination: header.IPv6EmptySubnet, NIC: nic}})
	return d, nil
}

func protocolOf(a netip.Addr) tcpip.NetworkProtocolNumber {
	if a.Is4() {
		return ipv4.ProtocolNumber
	}
	return ipv6.ProtocolNumber
}

func fullAddress(a netip.Addr, port uint16) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFromSlice(a.AsSlice()), Port: port}
}

// Read gives wireguard-go what the stack sends.
func (d *inside) Read(packets [][]byte, sizes []int, offset int) (int, error) {
	d.up.Wait()
	n := 0
	for p := d.link.ReadContext(d.ctx); p != nil; p = d.link.Read() {
		sizes[n] = 0
		for _, part := range p.AsSlices() {
			sizes[n] += copy(packets[n][offset+sizes[n]:], part)
		}
		p.DecRef()
		if n++; n == len(packets) {
			break
		}
	}
	if n == 0 {
		return 0, os.ErrClosed
	}
	d.up.Enter(n)
	return n, nil
}

// Write passes packets from wireguard-go to the stack. wireguard-go has checked that their sources are in AllowedIPs.
func (d *inside) Write(packets [][]byte, offset int) (int, error) {
	for _, packet := range packets {
		data := packet[offset:]
		if len(data) == 0 {
			continue
		}
		protocol := header.IPv4ProtocolNumber
		if data[0]>>4 == 6 {
			protocol = header.IPv6ProtocolNumber
		}
		p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(data)})
		d.link.InjectInbound(protocol, p)
		p.DecRef()
	}
	d.down.Leave(len(packets))
	return len(packets), nil
}

// Close closes the stack with all its sockets.
func (d *inside) Close() error {
	d.cancel()
	d.stack.Close()
	d.link.Close()
	close(d.events)
	return nil
}

func (d *inside) BatchSize() int           { return batch }
func (d *inside) MTU() (int, error)        { return d.mtu, nil }
func (d *inside) Name() (string, error)    { return "heddle", nil }
func (d *inside) File() *os.File           { return nil }
func (d *inside) Events() <-chan tun.Event { return d.events }
