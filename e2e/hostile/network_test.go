package hostile

import (
	"bytes"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/miekg/dns"

	"heddle/lab"
)

// network is an access network in the attacker's hands. Each packet of the client crosses it.
type network struct {
	t      *testing.T
	device *lab.Diversion
	done   chan struct{}

	mu    sync.Mutex
	lies  netip.Addr // forged into the nameserver's answers; zero: they pass
	noisy bool       // it forges ICMP errors, replays and delays
	kept  [][]byte   // for replays
	count struct{ lies, errors, replays, delays int }
}

// takeOver gives the router of an access network to the attacker.
func (w *world) takeOver(way string) *network {
	w.t.Helper()
	device, err := w.Host(way + "-gw").Divert("attacker")
	if err != nil {
		w.t.Fatal(err)
	}
	n := &network{t: w.t, device: device, done: make(chan struct{})}
	go n.run()
	w.t.Cleanup(func() {
		if err := device.Close(); err != nil {
			w.t.Error(err)
		}
		<-n.done
	})
	return n
}

func (n *network) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

// counts gives how often it lied and forged, replayed and delayed.
func (n *network) counts() (lies, errors, replays, delays int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.count.lies, n.count.errors, n.count.replays, n.count.delays
}

const (
	keptPackets = 64
	latency     = 300 * time.Millisecond
)

func (n *network) run() {
	defer close(n.done)
	buffer := make([]byte, 1<<16)
	for i := 0; ; i++ {
		size, err := n.device.Read(buffer)
		if err != nil {
			return // closed
		}
		n.mu.Lock()
		n.packet(i, bytes.Clone(buffer[:size]))
		n.mu.Unlock()
	}
}

// packet treats one packet. n.mu is held.
func (n *network) packet(i int, raw []byte) {
	p := gopacket.NewPacket(raw, layers.LayerTypeIPv4, gopacket.NoCopy)
	ip, is4 := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	udp, isUDP := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
	switch {
	case !is4 || !isUDP:
	case udp.DstPort == 53 && n.lies.IsValid():
		n.lie(ip, udp)
		return
	case n.noisy && udp.SrcPort != 53:
		n.noise(i, raw, ip)
		return
	}
	n.write(raw)
}

func (n *network) write(raw []byte) { _, _ = n.device.Write(raw) } // fails only at the end

// lie answers a question in the nameserver's place.
func (n *network) lie(ip *layers.IPv4, udp *layers.UDP) {
	var q dns.Msg
	if q.Unpack(udp.Payload) != nil {
		return
	}
	packed, err := reply(&q, n.lies).Pack()
	if err != nil {
		n.t.Error(err)
		return
	}
	back := &layers.IPv4{Version: 4, TTL: 60, Protocol: layers.IPProtocolUDP, SrcIP: ip.DstIP, DstIP: ip.SrcIP}
	answer := &layers.UDP{SrcPort: udp.DstPort, DstPort: udp.SrcPort}
	if err := answer.SetNetworkLayerForChecksum(back); err != nil {
		n.t.Error(err)
	}
	n.forge(back, answer, gopacket.Payload(packed))
	n.count.lies++
}

// noise delays a packet, replays old ones of both directions, and forges errors of the server and of a router.
func (n *network) noise(i int, raw []byte, ip *layers.IPv4) {
	time.AfterFunc(latency, func() { n.write(raw) })
	n.count.delays++
	n.kept = append(n.kept, raw)
	if len(n.kept) > keptPackets {
		n.kept = n.kept[1:]
		n.write(n.kept[i%keptPackets])
		n.count.replays++
	}
	const mtu = 600
	for _, e := range []struct {
		code layers.ICMPv4TypeCode
		from net.IP
	}{
		{layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodePort), ip.DstIP},
		{layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodeHost), nameserver.AsSlice()},
		{layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodeFragmentationNeeded), nameserver.AsSlice()},
	} {
		if i%10 != 0 || !ip.SrcIP.Equal(net.IPv4(10, 101, 1, 2)) {
			return // errors are for what the client sent
		}
		back := &layers.IPv4{Version: 4, TTL: 60, Protocol: layers.IPProtocolICMPv4, SrcIP: e.from, DstIP: ip.SrcIP}
		n.forge(back, &layers.ICMPv4{TypeCode: e.code, Seq: mtu}, gopacket.Payload(raw[:min(len(raw), 548)]))
		n.count.errors++
	}
}

func (n *network) forge(all ...gopacket.SerializableLayer) {
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, all...); err != nil {
		n.t.Error(err)
		return
	}
	n.write(b.Bytes())
}
