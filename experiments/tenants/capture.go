package tenants

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"heddle/internal/clienthello"
)

// packet is what an observer reads of one packet of TCP.
type packet struct {
	at     time.Time
	server bool // sent it
	v6     bool

	ttl, service uint8
	fragments    bool   // may be fragmented: no DF
	id           uint32 // of IPv4, or the flow label

	tcp         layers.TCP
	layout      string // of the options
	stamped     bool
	value, echo uint32 // if stamped
	mss, scale  int    // -1 without
}

// ends are those of a connection. A client may use a port for two servers.
type ends struct{ client, server netip.AddrPort }

// flow is a connection, in the order of the capture.
type flow struct {
	ends
	packets []packet
	name    string // in the hello
}

// read returns the connections to a port that begin in a capture, in order.
func read(file string, port layers.TCPPort) ([]*flow, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var all []*flow
	by := map[ends]*flow{}
	for {
		data, info, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		p, of, ok := decode(gopacket.NewPacket(data, r.LinkType(), gopacket.Default), port)
		if !ok {
			continue
		}
		p.at = info.Timestamp
		if p.tcp.SYN && !p.server {
			by[of] = &flow{ends: of}
			all = append(all, by[of])
		}
		if one := by[of]; one != nil {
			one.packets = append(one.packets, p)
		}
	}
	for _, one := range all {
		if h, err := clienthello.Parse(clienthello.Handshake(stream(one.packets, false))); err == nil {
			one.name = h.ServerName
		}
	}
	return all, nil
}

// decode reads a packet of a connection to a port.
func decode(p gopacket.Packet, port layers.TCPPort) (out packet, of ends, ok bool) {
	tcp, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if !ok || tcp.SrcPort != port && tcp.DstPort != port {
		return out, of, false
	}
	out = packet{server: tcp.SrcPort == port, tcp: *tcp, mss: -1, scale: -1}
	var from, to netip.Addr
	switch ip := p.NetworkLayer().(type) {
	case *layers.IPv4:
		from, _ = netip.AddrFromSlice(ip.SrcIP)
		to, _ = netip.AddrFromSlice(ip.DstIP)
		out.ttl, out.service, out.id, out.fragments = ip.TTL, ip.TOS, uint32(ip.Id), ip.Flags&layers.IPv4DontFragment == 0
	case *layers.IPv6:
		from, _ = netip.AddrFromSlice(ip.SrcIP)
		to, _ = netip.AddrFromSlice(ip.DstIP)
		out.v6, out.ttl, out.service, out.id = true, ip.HopLimit, ip.TrafficClass, ip.FlowLabel
	}
	of = ends{netip.AddrPortFrom(from.Unmap(), uint16(tcp.SrcPort)), netip.AddrPortFrom(to.Unmap(), uint16(tcp.DstPort))}
	if out.server {
		of.client, of.server = of.server, of.client
	}
	out.readOptions()
	return out, of, true
}

// optionNames are those of p0f.
var optionNames = map[layers.TCPOptionKind]string{
	layers.TCPOptionKindEndList: "eol", layers.TCPOptionKindNop: "nop", layers.TCPOptionKindMSS: "mss", layers.TCPOptionKindWindowScale: "ws",
	layers.TCPOptionKindSACKPermitted: "sok", layers.TCPOptionKindSACK: "sack", layers.TCPOptionKindTimestamps: "ts",
}

func (p *packet) readOptions() {
	number := func(b []byte) (n uint32) {
		for _, one := range b {
			n = n<<8 | uint32(one)
		}
		return n
	}
	for _, o := range p.tcp.Options {
		name, known := optionNames[o.OptionType]
		if !known {
			name = fmt.Sprint(int(o.OptionType))
		}
		p.layout += name + " "
		switch {
		case o.OptionType == layers.TCPOptionKindMSS:
			p.mss = int(number(o.OptionData))
		case o.OptionType == layers.TCPOptionKindWindowScale:
			p.scale = int(number(o.OptionData))
		case o.OptionType == layers.TCPOptionKindTimestamps && len(o.OptionData) == 8:
			p.stamped, p.value, p.echo = true, number(o.OptionData[:4]), number(o.OptionData[4:])
		}
	}
}

// stream is what one side sent, without what it sent twice. It ends at the first gap.
func stream(packets []packet, server bool) (sent []byte) {
	var first uint32
	pieces := map[uint32][]byte{}
	for _, p := range packets {
		if p.server != server {
			continue
		}
		if p.tcp.SYN {
			first = p.tcp.Seq + 1
		} else if at := p.tcp.Seq - first; len(p.tcp.Payload) > len(pieces[at]) {
			pieces[at] = p.tcp.Payload
		}
	}
	for len(pieces[uint32(len(sent))]) > 0 {
		sent = append(sent, pieces[uint32(len(sent))]...)
	}
	return sent
}
