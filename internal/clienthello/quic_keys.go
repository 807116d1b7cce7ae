package clienthello

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"hash"

	"golang.org/x/crypto/cryptobyte"
)

// quicVersion holds what differs between versions of QUIC in Initial packets.
type quicVersion struct {
	number  uint32
	salt    []byte
	label   string // prefix of the key labels
	initial Kind   // type of an Initial's long header; those of the other kinds follow
}

var quicVersions = []*quicVersion{
	{ // RFC 9000 section 17.2 and RFC 9001 section 5.2
		number: 1, label: "quic ", initial: 0,
		salt: []byte{0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17,
			0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad, 0xcc, 0xbb, 0x7f, 0x0a},
	},
	{ // RFC 9369 section 3
		number: 0x6b3343cf, label: "quicv2 ", initial: 1,
		salt: []byte{0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93,
			0x81, 0xbe, 0x6e, 0x26, 0x9d, 0xcb, 0xf9, 0xbd, 0x2e, 0xd9},
	},
}

// initialKeys decrypt a client's Initial packets. Any observer can derive them.
type initialKeys struct {
	aead   cipher.AEAD
	header cipher.Block
	iv     []byte
}

// deriveInitial derives the client's Initial keys from a destination connection ID (RFC 9001 section 5.2).
func (v *quicVersion) deriveInitial(destination []byte) (*initialKeys, error) {
	secret, err := hkdf.Extract(sha256.New, destination, v.salt)
	if err != nil {
		return nil, err
	}
	label := func(secret []byte, name string, length int) (out []byte) {
		if err == nil {
			out, err = ExpandLabel(sha256.New, secret, name, length)
		}
		return out
	}
	client := label(secret, "client in", 32)
	key, iv, header := label(client, v.label+"key", 16), label(client, v.label+"iv", 12), label(client, v.label+"hp", 16)
	if err != nil {
		return nil, err
	}
	return newInitialKeys(key, iv, header)
}

// ExpandLabel is HKDF-Expand-Label without context, as in TLS 1.3 and QUIC (RFC 8446, section 7.1).
func ExpandLabel(h func() hash.Hash, secret []byte, label string, length int) ([]byte, error) {
	var b cryptobyte.Builder
	b.AddUint16(uint16(length))
	b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte("tls13 " + label)) })
	b.AddUint8(0)
	return hkdf.Expand(h, secret, string(b.BytesOrPanic()), length)
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

// open decrypts one Initial packet (RFC 9001 sections 5.3 and 5.4) whose packet number starts at number. If the keys do not
// fit, it returns nil and does not change packet.
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
		// In a first flight packet numbers are small, so the truncated number is the whole number.
		nonce[len(nonce)-length+i] ^= clear[number+i]
	}
	body, err := k.aead.Open(nil, nonce, clear[number+length:], clear[:number+length])
	if err != nil {
		return nil
	}
	return body
}
