package inspect

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"

	"golang.org/x/crypto/cryptobyte"
)

const quicVersion1 = 1

// quicV1Salt is the Initial salt of RFC 9001 section 5.2.
var quicV1Salt = []byte{0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17,
	0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad, 0xcc, 0xbb, 0x7f, 0x0a}

// initialKeys open what a client sends in Initial packets. Anybody on the way can derive them.
type initialKeys struct {
	aead   cipher.AEAD
	header cipher.Block
	iv     []byte
}

// deriveInitial gives the client's Initial keys of RFC 9001 section 5.2 for a destination connection ID.
func deriveInitial(destination []byte) (*initialKeys, error) {
	secret, err := hkdf.Extract(sha256.New, destination, quicV1Salt)
	if err != nil {
		return nil, err
	}
	label := func(secret []byte, name string, length int) []byte {
		if err != nil {
			return nil
		}
		var b cryptobyte.Builder
		b.AddUint16(uint16(length))
		b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte("tls13 " + name)) })
		b.AddUint8(0)
		var out []byte
		out, err = hkdf.Expand(sha256.New, secret, string(b.BytesOrPanic()), length)
		return out
	}
	client := label(secret, "client in", 32)
	key, iv, header := label(client, "quic key", 16), label(client, "quic iv", 12), label(client, "quic hp", 16)
	if err != nil {
		return nil, err
	}
	return newInitialKeys(key, iv, header)
}

func newInitialKeys(key, iv, header []byte) (*initialKeys, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	k := &initialKeys{iv: iv}
	if k.aead, err = cipher.NewGCM(block); err != nil {
		return nil, err
	}
	k.header, err = aes.NewCipher(header)
	return k, err
}

// open removes the protection of one Initial packet (RFC 9001 sections 5.3 and 5.4); number is where the packet number
// starts. It leaves packet as it is and returns nil where the keys do not fit.
func (k *initialKeys) open(packet []byte, number int) []byte {
	if number+4+aes.BlockSize > len(packet) {
		return nil
	}
	var mask [aes.BlockSize]byte
	k.header.Encrypt(mask[:], packet[number+4:])
	clear := append([]byte(nil), packet...)
	clear[0] ^= mask[0] & 0x0f
	length := int(clear[0]&3) + 1
	nonce := append([]byte(nil), k.iv...)
	for i := range length {
		clear[number+i] ^= mask[1+i]
		// A first flight has small packet numbers: what is sent of them is all of them.
		nonce[len(nonce)-length+i] ^= clear[number+i]
	}
	body, err := k.aead.Open(nil, nonce, clear[number+length:], clear[:number+length])
	if err != nil {
		return nil
	}
	return body
}

// initialPacket is one QUIC Initial packet of version 1 (RFC 9000 section 17.2.2).
type initialPacket struct {
	destination []byte // connection ID
	whole       []byte // from the first byte to the last of its protected payload
	number      int    // where the packet number starts in whole
}

// isQUIC reports whether a datagram starts with a long header of QUIC version 1.
func isQUIC(datagram []byte) bool {
	return len(datagram) >= 7 && datagram[0]&0xc0 == 0xc0 &&
		datagram[1] == 0 && datagram[2] == 0 && datagram[3] == 0 && datagram[4] == quicVersion1
}

// initialPackets lists the Initial packets that a datagram carries.
func initialPackets(datagram []byte) []initialPacket {
	var found []initialPacket
	for isQUIC(datagram) {
		s := cryptobyte.String(datagram[5:])
		var destination, source cryptobyte.String
		if !s.ReadUint8LengthPrefixed(&destination) || !s.ReadUint8LengthPrefixed(&source) ||
			len(destination) > 20 || len(source) > 20 {
			break
		}
		const initial, retry = 0, 3
		kind := datagram[0] >> 4 & 3
		var token, length uint64
		if kind == initial && (!readVarint(&s, &token) || token > uint64(len(s)) || !s.Skip(int(token))) {
			break
		}
		if kind == retry || !readVarint(&s, &length) || length > uint64(len(s)) {
			break
		}
		number := len(datagram) - len(s)
		end := number + int(length)
		if kind == initial {
			found = append(found, initialPacket{destination: destination, whole: datagram[:end], number: number})
		}
		datagram = datagram[end:]
	}
	return found
}

// readVarint reads an integer of RFC 9000 section 16.
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

// cryptoFrames hands each CRYPTO frame of an Initial's payload to take (RFC 9000 section 19.6). Clients cut the
// ClientHello in pieces and shuffle them.
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
		default: // CONNECTION_CLOSE, or what an Initial may not carry
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
