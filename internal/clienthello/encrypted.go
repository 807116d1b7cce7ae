package clienthello

import (
	"bytes"
	"crypto/tls"
	"slices"

	"golang.org/x/crypto/cryptobyte"
)

// OuterExtensions stands in an encoded inner hello for extensions that it has in common with the outer one (RFC 9849, section 5.1).
const OuterExtensions = 0xfd00

const (
	helloHeader = 4       // type and length
	recordMost  = 1 << 14 // bytes in a record (RFC 8446, section 5.1)
)

// Sealed is what an outer hello says about the inner one (RFC 9849, section 5).
type Sealed struct {
	KDF, AEAD uint16 // numbers of HPKE (RFC 9180, section 7)
	Config    uint8  // identifies the key
	Key       []byte // the encapsulated key; a second hello has none
	Payload   []byte // the encoded inner hello, encrypted
	AAD       []byte // the outer hello without its header and with zeros in place of the payload (section 5.2)
}

// Sealed returns the inner hello of an outer one, which was parsed from handshake without an error. ok is false if it has none.
func (h Hello) Sealed(handshake []byte) (s Sealed, ok bool) {
	behind := 0 // bytes after the extension
	for _, e := range slices.Backward(h.Extensions) {
		if e.Type != EncryptedHello || h.Encrypted != Outer {
			behind += helloHeader + len(e.Body)
			continue
		}
		body := cryptobyte.String(e.Body)
		var key, payload cryptobyte.String
		if !body.Skip(1) || !body.ReadUint16(&s.KDF) || !body.ReadUint16(&s.AEAD) || !body.ReadUint8(&s.Config) ||
			!body.ReadUint16LengthPrefixed(&key) || !body.ReadUint16LengthPrefixed(&payload) || payload.Empty() || !body.Empty() {
			return s, false
		}
		s.Key, s.Payload = key, payload
		s.AAD = bytes.Clone(handshake[helloHeader:]) // the payload is the end of the extension
		end := len(s.AAD) - behind
		clear(s.AAD[end-len(payload) : end])
		return s, true
	}
	return s, false
}

// DecodeInner rebuilds the inner hello, with its handshake header, from its decrypted encoding and the outer hello (RFC 9849, section 5.1).
func DecodeInner(outer Hello, encoded []byte) (handshake []byte, h Hello, err error) {
	s := cryptobyte.String(encoded)
	var begin []byte
	var session, suites, compression, extensions cryptobyte.String
	if !s.ReadBytes(&begin, 2+32) || !s.ReadUint8LengthPrefixed(&session) || !session.Empty() || !s.ReadUint16LengthPrefixed(&suites) ||
		!s.ReadUint8LengthPrefixed(&compression) || !s.ReadUint16LengthPrefixed(&extensions) || slices.ContainsFunc(s, func(b byte) bool { return b != 0 }) {
		return nil, h, ErrMalformed
	}
	all, ok := expand(outer.Extensions, extensions)
	if !ok {
		return nil, h, ErrMalformed
	}
	var b cryptobyte.Builder
	b.AddUint8(typeClientHello)
	b.AddUint24LengthPrefixed(func(b *cryptobyte.Builder) {
		b.AddBytes(begin)
		b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(outer.SessionID) })
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(suites) })
		b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(compression) })
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
			for _, e := range all {
				b.AddUint16(e.Type)
				b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(e.Body) })
			}
		})
	})
	if handshake, err = b.Bytes(); err != nil {
		return nil, h, ErrMalformed
	}
	if h, err = Parse(handshake); err != nil {
		return nil, h, ErrMalformed // it is whole, so it is not incomplete
	}
	if !h.inner() {
		return nil, h, ErrMalformed
	}
	return handshake, h, nil
}

// expand puts the extensions of the outer hello in their place. Each is used once at most and in its order, so that a small hello cannot
// become a large one.
func expand(outer []Extension, list cryptobyte.String) (all []Extension, ok bool) {
	expanded := false
	for !list.Empty() {
		var e Extension
		var body, types cryptobyte.String
		if !list.ReadUint16(&e.Type) || !list.ReadUint16LengthPrefixed(&body) {
			return nil, false
		}
		if e.Body = body; e.Type != OuterExtensions {
			all = append(all, e)
			continue
		}
		if expanded || !body.ReadUint8LengthPrefixed(&types) || types.Empty() || !body.Empty() {
			return nil, false
		}
		expanded = true
		for !types.Empty() {
			var kind uint16
			if !types.ReadUint16(&kind) || kind == EncryptedHello {
				return nil, false
			}
			i := slices.IndexFunc(outer, func(e Extension) bool { return e.Type == kind })
			if i < 0 {
				return nil, false
			}
			all, outer = append(all, outer[i]), outer[i+1:]
		}
	}
	return all, true
}

// inner reports whether a hello says that it was encrypted, and offers no version before TLS 1.3 (RFC 9849, section 7.1).
func (h Hello) inner() bool {
	if !slices.ContainsFunc(h.Extensions, func(e Extension) bool {
		return e.Type == EncryptedHello && bytes.Equal(e.Body, []byte{encryptedHelloInner})
	}) {
		return false
	}
	return slices.Contains(h.Versions, tls.VersionTLS13) && !slices.ContainsFunc(h.Versions, func(v uint16) bool { return v < tls.VersionTLS13 })
}

// Split cuts a TLS stream behind its first handshake message, which ends with a record if it is a hello (RFC 8446, section 5.1). It fails
// with [ErrIncomplete] until the message is whole.
func Split(stream []byte) (handshake, rest []byte, err error) {
	s := cryptobyte.String(stream)
	for {
		var kind uint8
		var body cryptobyte.String
		switch {
		case s.Empty():
			return nil, nil, ErrIncomplete
		case !s.ReadUint8(&kind) || kind != recordHandshake:
			return nil, nil, ErrMalformed
		case !s.Skip(2) || !s.ReadUint16LengthPrefixed(&body):
			return nil, nil, ErrIncomplete
		}
		handshake = append(handshake, body...)
		if len(handshake) < helloHeader {
			continue
		}
		length := helloHeader + int(handshake[1])<<16 + int(handshake[2])<<8 + int(handshake[3])
		switch {
		case length > helloHeader+Limit, len(handshake) > length:
			return nil, nil, ErrMalformed
		case len(handshake) == length:
			return handshake, s, nil
		}
	}
}

// Records makes the records of a handshake message, with the version that all of TLS 1.3 may have (RFC 8446, section 5.1).
func Records(handshake []byte) (stream []byte) {
	for part := range slices.Chunk(handshake, recordMost) {
		stream = append(stream, recordHandshake, 3, 3, byte(len(part)>>8), byte(len(part)))
		stream = append(stream, part...)
	}
	return stream
}
