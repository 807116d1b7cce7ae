package lab

import (
	"encoding/binary"
	"iter"
	"slices"
)

// vnetHeaderLen is the length of struct virtio_net_hdr, which precedes each packet with PACKET_VNET_HDR.
const vnetHeaderLen = 10

// Values of virtio_net_hdr.gso_type (Virtual I/O Device 1.3, section 5.1.6); the top bit is ECN.
const (
	gsoTCP4  = 1
	gsoTCP6  = 4
	gsoUDP   = 5
	gsoECN   = 0x80
	tcpFIN   = 0x01
	tcpPSH   = 0x08
	tcpCWR   = 0x80
	ipv6Next = 6 // offset of the next header field
)

type vnetHeader struct {
	gsoType uint8
	gsoSize int
}

func parseVnetHeader(data []byte) vnetHeader {
	return vnetHeader{gsoType: data[1] &^ gsoECN, gsoSize: int(binary.NativeEndian.Uint16(data[4:]))}
}

// segments returns the packets of a frame: itself, or those that the network card would have cut it into. Each is valid
// until the next. Malformed frames are returned whole.
func segments(h vnetHeader, layer2 int, frame []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		header, ok := superHeader(h, layer2, frame)
		if !ok {
			yield(frame)
			return
		}
		payload := frame[header.end:]
		segment := make([]byte, 0, header.end+h.gsoSize)
		for i, chunk := range slices.Collect(slices.Chunk(payload, h.gsoSize)) {
			segment = append(append(segment[:0], frame[:header.end]...), chunk...)
			header.rewrite(segment, i, h.gsoSize, (i+1)*h.gsoSize >= len(payload))
			if !yield(segment) {
				return
			}
		}
	}
}

// frameHeader holds the header offsets of a super-packet.
type frameHeader struct {
	ip        int // IP header
	transport int // TCP or UDP header
	end       int // payload
	udp       bool
}

// superHeader finds the headers of a super-packet. It returns false for other frames.
func superHeader(h vnetHeader, layer2 int, frame []byte) (frameHeader, bool) {
	f := frameHeader{ip: layer2, udp: h.gsoType == gsoUDP}
	known := h.gsoType == gsoTCP4 || h.gsoType == gsoTCP6 || h.gsoType == gsoUDP
	if !known || h.gsoSize == 0 || len(frame) < layer2+20 {
		return f, false
	}
	wantProtocol := byte(6)
	if f.udp {
		wantProtocol = 17
	}
	var protocol byte
	switch ip := frame[layer2:]; ip[0] >> 4 {
	case 4:
		protocol = ip[9]
		f.transport = layer2 + int(ip[0]&15)*4
	case 6:
		// Extension headers are not parsed: the kernel makes no super-packets with them here.
		protocol = ip[ipv6Next]
		f.transport = layer2 + 40
	}
	if protocol != wantProtocol || f.transport < layer2+20 || len(frame) < f.transport+8 {
		return f, false
	}
	f.end = f.transport + 8
	if !f.udp {
		if len(frame) < f.transport+20 {
			return f, false
		}
		f.end = f.transport + int(frame[f.transport+12]>>4)*4
	}
	return f, f.end >= f.transport+8 && f.end < len(frame)
}

// rewrite turns segment i, which starts with a copy of the super-packet's headers, into a packet of its own.
func (f frameHeader) rewrite(segment []byte, i, size int, last bool) {
	ip, transport := segment[f.ip:], segment[f.transport:]
	if ip[0]>>4 == 4 {
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		binary.BigEndian.PutUint16(ip[4:], binary.BigEndian.Uint16(ip[4:])+uint16(i))
		binary.BigEndian.PutUint16(ip[10:], 0)
		binary.BigEndian.PutUint16(ip[10:], ^onesSum(ip[:f.transport-f.ip]))
	} else {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40))
	}
	if f.udp {
		binary.BigEndian.PutUint16(transport[4:], uint16(len(transport)))
		return
	}
	binary.BigEndian.PutUint32(transport[4:], binary.BigEndian.Uint32(transport[4:])+uint32(i*size))
	if !last {
		transport[13] &^= tcpFIN | tcpPSH
	}
	if i > 0 {
		transport[13] &^= tcpCWR
	}
}

// onesSum is the ones' complement sum of RFC 1071 over an even number of bytes.
func onesSum(data []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(data); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(data[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}
