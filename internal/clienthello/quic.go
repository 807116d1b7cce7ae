package clienthello

import (
	"encoding/binary"

	"golang.org/x/crypto/cryptobyte"
)

// Kind is the type of a QUIC packet with a long header (RFC 9000 section 17.2).
type Kind uint8

// Version 1 has these numbers in its headers, version 2 the next ones (RFC 9369 section 3.2).
const (
	KindInitial Kind = iota
	KindEarlyData
	KindHandshake
	KindRetry
)

// Packet is a QUIC packet with a long header. Other versions than 1 and 2 are read as version 1.
type Packet struct {
	Kind                Kind
	Destination, Source []byte // connection IDs

	version *quicVersion // nil if it is another
	whole   []byte       // up to the end of the protected payload
	number  int          // where the packet number starts in whole
}

// IsQUIC reports whether a datagram starts with a long header of a known version.
func IsQUIC(datagram []byte) bool { return versionOf(datagram) != nil && datagram[0]&0x40 != 0 }

// versionOf returns the version in the long header of a datagram, or nil if it is unknown. The second bit is set in the first
// packet of a connection, but not in all others (RFC 9287).
func versionOf(datagram []byte) *quicVersion {
	if len(datagram) < 7 || datagram[0]&0x80 == 0 {
		return nil
	}
	number := binary.BigEndian.Uint32(datagram[1:])
	for _, v := range quicVersions {
		if v.number == number {
			return v
		}
	}
	return nil
}

// Initials returns the number of QUIC Initial packets (versions 1 and 2) in a UDP payload, in either direction.
func Initials(datagram []byte) int { return len(initialPackets(datagram)) }

func initialPackets(datagram []byte) (found []Packet) {
	packets, _ := Packets(datagram)
	for _, p := range packets {
		if p.Kind == KindInitial && p.version != nil {
			found = append(found, p)
		}
	}
	return found
}

// Packets returns the packets with long headers at the start of a UDP payload, as far as they are whole, and what follows
// them: a packet with a short header, padding, a version negotiation or nothing.
func Packets(datagram []byte) (found []Packet, rest []byte) {
	for len(datagram) >= 7 && datagram[0]&0x80 != 0 && binary.BigEndian.Uint32(datagram[1:]) != 0 {
		p := Packet{Kind: Kind(datagram[0] >> 4 & 3), version: versionOf(datagram)}
		if p.version != nil {
			p.Kind = (p.Kind - p.version.initial) & 3
		}
		s := cryptobyte.String(datagram[5:])
		var destination, source cryptobyte.String
		if !s.ReadUint8LengthPrefixed(&destination) || !s.ReadUint8LengthPrefixed(&source) ||
			len(destination) > 20 || len(source) > 20 {
			break
		}
		p.Destination, p.Source = destination, source
		if p.Kind == KindRetry { // its token fills the datagram
			return append(found, p), nil
		}
		var token, length uint64
		if p.Kind == KindInitial && (!readVarint(&s, &token) || token > uint64(len(s)) || !s.Skip(int(token))) {
			break
		}
		if !readVarint(&s, &length) || length > uint64(len(s)) {
			break
		}
		p.number = len(datagram) - len(s)
		p.whole = datagram[:p.number+int(length)]
		found = append(found, p)
		datagram = datagram[len(p.whole):]
	}
	return found, datagram
}

// readVarint reads a variable-length integer (RFC 9000 section 16).
func readVarint(s *cryptobyte.String, out *uint64) bool {
	var first uint8
	if !s.ReadUint8(&first) {
		return false
	}
	value := uint64(first & 0x3f)
	for range 1<<(first>>6) - 1 {
		var next uint8
		if !s.ReadUint8(&next) {
			return false
		}
		value = value<<8 | uint64(next)
	}
	*out = value
	return true
}

// cryptoFrames passes each CRYPTO frame of an Initial's payload to take (RFC 9000 section 19.6). Clients split the
// ClientHello and shuffle the pieces.
func cryptoFrames(payload []byte, take func(offset uint64, data []byte)) {
	s := cryptobyte.String(payload)
	for !s.Empty() {
		var kind uint8
		s.ReadUint8(&kind)
		switch kind {
		case 0x00, 0x01: // PADDING, PING
		case 0x02, 0x03:
			if !skipACK(&s, kind == 0x03) {
				return
			}
		case 0x06:
			var offset, length uint64
			var data []byte
			if !readVarint(&s, &offset) || !readVarint(&s, &length) || length > uint64(len(s)) || !s.ReadBytes(&data, int(length)) {
				return
			}
			take(offset, data)
		default: // CONNECTION_CLOSE, or a frame that an Initial may not carry
			return
		}
	}
}

func skipACK(s *cryptobyte.String, ecn bool) bool {
	var largest, delay, ranges, first, skipped uint64
	if !readVarint(s, &largest) || !readVarint(s, &delay) || !readVarint(s, &ranges) || !readVarint(s, &first) ||
		ranges > uint64(len(*s)) {
		return false
	}
	fields := 2 * ranges
	if ecn {
		fields += 3
	}
	for range fields {
		if !readVarint(s, &skipped) {
			return false
		}
	}
	return true
}
