package ovsswitch

import (
	"crypto/rand"
	"encoding/binary"
	"net"
	"net/netip"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"heddle/internal/openflow"
)

// handle does what an event asks for. If that fails, the next packet asks for it again.
func (s *Switch) handle(bridge *openflow.Conn, event any) {
	switch e := event.(type) {
	case openflow.Removed:
		s.removed(bridge, e)
	case openflow.Packet:
		if bridge == nil {
			return
		}
		switch number, of := split(e.Cookie); of {
		case roleSYN:
			s.asked(bridge, number, e)
		case roleReset:
			s.reset(bridge, number, e)
		case roleClient, rolePublic:
			s.message(bridge, of, e)
		}
	}
}

// removed follows the end of a flow.
func (s *Switch) removed(bridge *openflow.Conn, r openflow.Removed) {
	number, of := split(r.Cookie)
	s.mu.Lock()
	var changes []openflow.Change
	switch of {
	case roleTo, roleBack:
		if c := s.numbers[number]; c != nil && !c.ending {
			changes = s.drop(c)
		}
	case roleTenant, rolePublic:
		for at, f := range s.shared {
			if f.Cookie == r.Cookie {
				delete(s.shared, at)
			}
		}
	}
	s.mu.Unlock()
	if len(changes) > 0 && bridge != nil {
		_ = bridge.Change(changes...)
	}
}

// question is one to a tenant, whether it still has a connection.
type question struct {
	until  time.Time
	syn    openflow.Packet
	direct bool // the client's packet was for the tenant itself
}

// waits reports whether a packet of the client's waits for the tenant's answer.
func (c *connection) waits() bool { return c.asked != nil && time.Now().Before(c.asked.until) }

// askFor is how long a tenant may take to answer, before the next packet of the client lets it be asked again.
const askFor = time.Second

// asked asks a tenant for the sake of a client's packet, which waits.
func (s *Switch) asked(bridge *openflow.Conn, number uint64, p openflow.Packet) {
	_, to := ends(parse(p.Frame))
	s.mu.Lock()
	c := s.numbers[number]
	if c == nil || c.waits() {
		s.mu.Unlock()
		return
	}
	c.asked = &question{until: time.Now().Add(askFor), syn: p, direct: to == c.tenant.Addr()}
	s.mu.Unlock()
	if c.broken {
		s.over(bridge, c)
	} else {
		s.ask(bridge, c)
	}
}

// ask sends the tenant an acknowledgement out of place, as if it came from the client.
func (s *Switch) ask(bridge *openflow.Conn, c *connection) {
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return
	}
	from := parse(c.asked.syn.Frame).Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	ethernet := &layers.Ethernet{SrcMAC: from.SrcMAC, DstMAC: s.hops.mac(c.toTenant), EthernetType: from.EthernetType}
	var ip interface {
		gopacket.NetworkLayer
		gopacket.SerializableLayer
	} = &layers.IPv4{Version: 4, TTL: s.ttl[false], Flags: layers.IPv4DontFragment, Protocol: layers.IPProtocolTCP, SrcIP: c.client.Addr().AsSlice(), DstIP: c.tenant.Addr().AsSlice()}
	if c.client.Addr().Is6() {
		ip = &layers.IPv6{Version: 6, HopLimit: s.ttl[true], NextHeader: layers.IPProtocolTCP, SrcIP: c.client.Addr().AsSlice(), DstIP: c.tenant.Addr().AsSlice()}
	}
	out := &layers.TCP{SrcPort: layers.TCPPort(c.client.Port()), DstPort: layers.TCPPort(c.tenant.Port()), Seq: binary.BigEndian.Uint32(random[:]), Ack: binary.BigEndian.Uint32(random[4:]), ACK: true}
	if out.SetNetworkLayerForChecksum(ip) != nil {
		return
	}
	if frame, err := serialize(ethernet, ip, out); err == nil {
		_ = bridge.Send(openflow.Packet{From: c.asked.syn.From, Frame: frame}, normal)
	}
}

// reset takes a copy of a reset of either side. The tenant sends one only if it has no such connection any more.
func (s *Switch) reset(bridge *openflow.Conn, number uint64, p openflow.Packet) {
	from, _ := ends(parse(p.Frame))
	s.mu.Lock()
	c := s.numbers[number]
	if c == nil || c.ending {
		s.mu.Unlock()
		return
	}
	client, waits := from == c.client.Addr(), c.waits()
	var changes []openflow.Change
	if !client && !waits && !c.broken {
		c.broken = true
		changes = s.flows(c)
	}
	s.mu.Unlock()
	switch {
	case client && waits: // it may have broken off what it no longer has
		s.ask(bridge, c)
	case !client && waits:
		s.over(bridge, c)
	case len(changes) > 0:
		_ = bridge.Change(changes...)
	}
}

// over ends a connection that its tenant no longer has, and passes the client's packet on. Until the cache has forgotten the connection, the bridge
// hands over what the client sends again for a new one, and nobody takes it.
func (s *Switch) over(bridge *openflow.Conn, c *connection) {
	s.mu.Lock()
	c.ending = true
	c.asked.until = time.Now().Add(time.Hour) // one question is enough
	changes := remove(c.number, roleTo, roleBack, roleReset)
	if !c.asked.direct {
		changes = append(changes, c.ended(s.next()).Add())
	}
	s.mu.Unlock()
	if bridge.Change(changes...) != nil {
		s.mu.Lock()
		c.ending, c.asked = false, nil // the client's next packet begins again
		s.mu.Unlock()
		return
	}
	syn := c.asked.syn
	s.done.Go(func() {
		s.Settle()
		s.mu.Lock()
		changes := s.drop(c)
		s.mu.Unlock()
		if bridge.Change(changes...) == nil {
			_ = bridge.Send(syn, normal)
		}
	})
}

func parse(frame []byte) gopacket.Packet {
	return gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
}

// ends returns source and destination of a frame, which are not valid if it is no packet of IP.
func ends(p gopacket.Packet) (from, to netip.Addr) {
	var a, b net.IP
	switch ip := p.NetworkLayer().(type) {
	case *layers.IPv4:
		a, b = ip.SrcIP, ip.DstIP
	case *layers.IPv6:
		a, b = ip.SrcIP, ip.DstIP
	}
	from, _ = netip.AddrFromSlice(a)
	to, _ = netip.AddrFromSlice(b)
	return from, to
}

// message translates a router's message that a packet was too large, and drops other errors about packets that a client sent to a tenant. All
// else passes.
func (s *Switch) message(bridge *openflow.Conn, of role, p openflow.Packet) {
	m, ok := parseMessage(p.Frame)
	s.mu.Lock()
	var c *connection
	if ok && of == rolePublic {
		c = s.entries[key{m.to, m.from}]
	} else if ok {
		c = s.returns[key{m.to, m.from}]
	}
	s.mu.Unlock()
	switch {
	case c == nil:
		_ = bridge.Send(p, normal)
		return
	case !m.tooLarge:
		if of == rolePublic { // it is for this machine, which ignores it
			_ = bridge.Send(p, normal)
		}
		return
	}
	next, ttl := c.toTenant, uint8(0)
	if of == rolePublic {
		m.readdress(netip.Addr{}, c.tenant.Addr(), c.tenant.Addr(), netip.Addr{})
	} else {
		next, ttl = c.toClient, s.ttl[c.client.Addr().Is6()]
		m.readdress(c.gateway.Addr(), netip.Addr{}, netip.Addr{}, c.gateway.Addr())
	}
	if frame, err := m.frame(s.hops.mac(next), ttl); err == nil {
		_ = bridge.Send(openflow.Packet{From: p.From, Frame: frame}, normal)
	}
}
