package censor

import (
	"container/list"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"heddle/internal/clienthello"
	"heddle/observe/inspect"
)

// mostFlows bounds the remembered flows. The least recently active one is forgotten first.
const mostFlows = 4096

// judge decides for each packet whether it passes.
type judge struct {
	names    []string // of status, in lower case
	residual time.Duration
	reset    bool
	now      func() time.Time

	clients []netip.Addr
	attacks []*Attack
	delays  bool // one of them is delay
	suspect func(server netip.AddrPort, flight []byte)
	probed  map[netip.AddrPort]bool // servers of the attack probe: whether they answered
	late    bool                    // the last packet is to pass later

	flows  map[flowKey]*list.Element
	quiet  *list.List // of *flow, most recently active first
	status Status

	ip4     layers.IPv4
	ip6     layers.IPv6
	options layers.IPv6ExtensionSkipper
	tcp     layers.TCP
	udp     layers.UDP
	four    *gopacket.DecodingLayerParser
	six     *gopacket.DecodingLayerParser
	seen    []gopacket.LayerType
}

// server is the end that did not open the connection.
func (f *flow) server() netip.AddrPort {
	if f.stream.forward {
		return f.key.b
	}
	return f.key.a
}

// flowKey identifies a flow in both directions: a is the smaller end.
type flowKey struct {
	protocol layers.IPProtocol
	a, b     netip.AddrPort
}

type flow struct {
	key flowKey
	inspect.Flow
	read      int       // names that were checked
	convicted time.Time // zero if not blocked
	dropped   *uint64   // counts the packets of a blocked flow
	stream    stream
}

func newJudge(options Options, now func() time.Time) *judge {
	j := &judge{residual: options.Residual, reset: options.Reset, now: now, flows: map[flowKey]*list.Element{}, quiet: list.New()}
	if j.residual == 0 {
		j.residual = defaultResidual
	}
	for _, name := range options.Names {
		j.names = append(j.names, plain(name))
		j.status.Names = append(j.status.Names, Name{Name: name})
	}
	for _, name := range options.Attacks {
		j.attacks = append(j.attacks, attackByName(name))
		j.status.Attacks = append(j.status.Attacks, Struck{Attack: name})
		j.delays = j.delays || name == delay
	}
	j.clients, j.probed = options.Clients, map[netip.AddrPort]bool{}
	decode := []gopacket.DecodingLayer{&j.ip4, &j.ip6, &j.options, &j.tcp, &j.udp}
	j.four = gopacket.NewDecodingLayerParser(layers.LayerTypeIPv4, decode...)
	j.six = gopacket.NewDecodingLayerParser(layers.LayerTypeIPv6, decode...)
	j.four.IgnoreUnsupported, j.six.IgnoreUnsupported = true, true
	return j
}

func plain(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// listed returns the list entry that covers a server's name.
func (j *judge) listed(server string) *Name {
	server = plain(server)
	for i, name := range j.names {
		if server == name || strings.HasSuffix(server, "."+name) {
			return &j.status.Names[i]
		}
	}
	return nil
}

// packet handles one IP packet. It returns whether it passes, and packets that the censor sends before it or in its place.
func (j *judge) packet(data []byte) (pass bool, forged [][]byte) {
	j.status.Packets++
	j.late = false
	source, destination, protocol, ok := j.decode(data)
	if !ok || !j.watches(source.Addr(), destination.Addr()) {
		return true, nil
	}
	j.late = j.delays
	key := flowKey{protocol, source, destination}
	forward := source.Compare(destination) < 0
	if !forward {
		key.a, key.b = key.b, key.a
	}
	f := j.flow(key)
	if f.convicted.IsZero() {
		if protocol == layers.IPProtocolUDP {
			j.status.Initials += uint64(clienthello.Initials(j.udp.Payload))
			f.UDP(source.Port(), destination.Port(), j.udp.Payload)
		} else {
			f.TCP(forward, source.Port(), destination.Port(), j.tcp.Seq, j.tcp.SYN, j.tcp.Payload)
		}
		if !j.convict(f) {
			if protocol == layers.IPProtocolUDP || len(j.attacks) == 0 {
				return true, nil
			}
			return j.attack(f, data, forward)
		}
		if protocol == layers.IPProtocolTCP && j.reset {
			forged = j.resets()
		}
	}
	*f.dropped++
	j.status.Dropped++
	return false, forged
}

// watches returns whether the censor looks at packets between two hosts.
func (j *judge) watches(a, b netip.Addr) bool {
	return len(j.clients) == 0 || slices.Contains(j.clients, a) || slices.Contains(j.clients, b)
}

// convict checks the names that a flow has sent since the last call.
func (j *judge) convict(f *flow) bool {
	for ; f.read < len(f.Names); f.read++ {
		said := f.Names[f.read]
		if said.From != inspect.FromTLS && said.From != inspect.FromQUIC {
			continue
		}
		name := j.listed(said.Name)
		if name == nil {
			continue
		}
		f.convicted, f.dropped = j.now(), &name.Dropped
		if said.From == inspect.FromQUIC {
			name.QUIC++
		} else {
			name.TLS++
		}
		return true
	}
	return false
}

// flow returns a flow, or a new one if it is unknown or its block has expired.
func (j *judge) flow(key flowKey) *flow {
	if e := j.flows[key]; e != nil {
		f := e.Value.(*flow)
		if !f.convicted.IsZero() && j.now().Sub(f.convicted) >= j.residual {
			*f = flow{key: key}
		}
		j.quiet.MoveToFront(e)
		return f
	}
	if j.quiet.Len() >= mostFlows {
		last := j.quiet.Back()
		delete(j.flows, j.quiet.Remove(last).(*flow).key)
	}
	f := &flow{key: key}
	j.flows[key] = j.quiet.PushFront(f)
	return f
}

// decode finds both ends of a packet, and leaves its transport header in j. It returns false for incomplete packets and
// for protocols other than TCP and UDP.
func (j *judge) decode(data []byte) (source, destination netip.AddrPort, protocol layers.IPProtocol, ok bool) {
	if len(data) == 0 {
		return
	}
	parser := j.four
	if data[0]>>4 == 6 {
		parser = j.six
	}
	j.seen = j.seen[:0]
	if err := parser.DecodeLayers(data, &j.seen); err != nil {
		return
	}
	var from, to netip.Addr
	for _, layer := range j.seen {
		switch layer {
		case layers.LayerTypeIPv4:
			from, _ = netip.AddrFromSlice(j.ip4.SrcIP.To4())
			to, _ = netip.AddrFromSlice(j.ip4.DstIP.To4())
		case layers.LayerTypeIPv6:
			from, _ = netip.AddrFromSlice(j.ip6.SrcIP)
			to, _ = netip.AddrFromSlice(j.ip6.DstIP)
		case layers.LayerTypeTCP:
			return netip.AddrPortFrom(from, uint16(j.tcp.SrcPort)), netip.AddrPortFrom(to, uint16(j.tcp.DstPort)), layers.IPProtocolTCP, true
		case layers.LayerTypeUDP:
			return netip.AddrPortFrom(from, uint16(j.udp.SrcPort)), netip.AddrPortFrom(to, uint16(j.udp.DstPort)), layers.IPProtocolUDP, true
		}
	}
	return
}
