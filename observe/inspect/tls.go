package inspect

import "golang.org/x/crypto/cryptobyte"

const (
	tlsRecordHandshake  = 22
	helloClient         = 1
	extensionServerName = 0
)

// serverName finds the host name in a TLS ClientHello, given from its handshake header on (RFC 8446 section 4.1.2,
// RFC 6066 section 3). done is false where more bytes may still complete it.
func serverName(handshake []byte) (name string, done bool) {
	s := cryptobyte.String(handshake)
	var kind uint8
	var length uint32
	if !s.ReadUint8(&kind) {
		return "", false
	}
	if kind != helloClient {
		return "", true
	}
	if !s.ReadUint24(&length) || uint32(len(s)) < length {
		return "", length > prefixLimit
	}
	hello := s[:length]
	var session, ciphers, compression, extensions cryptobyte.String
	if !hello.Skip(2+32) || !hello.ReadUint8LengthPrefixed(&session) || !hello.ReadUint16LengthPrefixed(&ciphers) ||
		!hello.ReadUint8LengthPrefixed(&compression) || !hello.ReadUint16LengthPrefixed(&extensions) {
		return "", true
	}
	for !extensions.Empty() {
		var extension uint16
		var body, list cryptobyte.String
		if !extensions.ReadUint16(&extension) || !extensions.ReadUint16LengthPrefixed(&body) {
			return "", true
		}
		if extension != extensionServerName {
			continue
		}
		var nameType uint8
		var host cryptobyte.String
		if !body.ReadUint16LengthPrefixed(&list) || !list.ReadUint8(&nameType) || nameType != 0 ||
			!list.ReadUint16LengthPrefixed(&host) {
			return "", true
		}
		return string(host), true
	}
	return "", true
}

// looksLikeTLS reports whether a TCP stream starts with a TLS record (RFC 8446 section 5.1).
func looksLikeTLS(stream []byte) bool {
	return len(stream) >= 6 && stream[0] >= 20 && stream[0] <= 23 && stream[1] == 3 && stream[2] <= 4
}

// handshakeOf joins the handshake messages at the start of a TLS stream, which may lie in several records.
func handshakeOf(stream []byte) []byte {
	var joined []byte
	s := cryptobyte.String(stream)
	for {
		var kind uint8
		var body cryptobyte.String
		rest := s
		if !s.ReadUint8(&kind) || kind != tlsRecordHandshake || !s.Skip(2) {
			return joined
		}
		if !s.ReadUint16LengthPrefixed(&body) { // the last record is not here in full
			if rest.Skip(5) {
				joined = append(joined, rest...)
			}
			return joined
		}
		joined = append(joined, body...)
	}
}
