package clienthello

import (
	"encoding/binary"

	"golang.org/x/crypto/cryptobyte"
)

// initialPacket is one QUIC Initial packet (RFC 9000 section 17.2.2).
type initialPacket struct {
	version     *quicVersion
	destination []byte // connection ID
	whole       []byte // up to the end of the protected payload
	number      int    // where the packet number starts in whole
}

// IsQUIC reports whether a datagram starts with a long header of a known version.
func IsQUIC(datagram []byte) bool { return versionOf(datagram) != nil }

// versionOf returns the version in the long header of a datagram, or nil if it is unknown.
func versionOf(datagram []byte) *quicVersion {
	if len(datagram) < 7 || datagram[0]&0xc0 != 0xc0 {
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

func initialPackets(datagram []byte) []initialPacket {
	var found []initialPacket
	for version := versionOf(datagram); version != nil; version = versionOf(datagram) {
		s := cryptobyte.String(datagram[5:])
		var destination, source cryptobyte.String
		if !s.ReadUint8LengthPrefixed(&destination) || !s.ReadUint8LengthPrefixed(&source) ||
			len(destination) > 20 || len(source) > 20 {
			break
		}
		kind := datagram[0] >> 4 & 3
		var token, length uint64
		if kind == version.initial && (!readVarint(&s, &token) || token > uint64(len(s)) || !s.Skip(int(token))) {
			break
		}
		if kind == version.retry || !readVarint(&s, &length) || length > uint64(len(s)) {
			break
		}
		number := len(datagram) - len(s)
		end := number + int(length)
		if kind == version.initial {
			found = append(found, initialPacket{version, destination, datagram[:end], number})
		}
		datagram = datagram[end:]
	}
	return found
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
