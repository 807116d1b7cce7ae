// Package clienthello parses the ClientHello of TLS 1.0 to 1.3 over TCP and QUIC. An observer can read it: over TCP it is in
// clear, and anybody can derive the keys that protect it in QUIC.
package clienthello

import (
	"errors"

	"golang.org/x/crypto/cryptobyte"
)

// Limit is the maximum length of a ClientHello in bytes. With post-quantum key shares it has about 2,000.
const Limit = 16 << 10

var (
	// ErrIncomplete means that the hello may be complete with more bytes.
	ErrIncomplete = errors.New("the ClientHello is not here in full")
	// ErrNone means that the message is not a ClientHello.
	ErrNone = errors.New("it is no ClientHello")
	// ErrMalformed means that the message violates its format.
	ErrMalformed = errors.New("the ClientHello is malformed")
)

// Extension types that this package parses, from the IANA registry.
const (
	ServerName          = 0      // RFC 6066, section 3
	SupportedGroups     = 10     // RFC 8446, section 4.2.7
	ALPN                = 16     // RFC 7301
	SupportedVersions   = 43     // RFC 8446, section 4.2.1
	KeyShare            = 51     // RFC 8446, section 4.2.8
	EncryptedHello      = 0xfe0d // RFC 9849, section 5
	typeClientHello     = 1
	recordHandshake     = 22
	recordHeader        = 5
	nameTypeHost        = 0
	encryptedHelloInner = 1
)

// Extension is one extension, unparsed.
type Extension struct {
	Type uint16
	Body []byte
}

// Encrypted is the role of a hello in Encrypted Client Hello.
type Encrypted int

const (
	NotEncrypted Encrypted = iota
	Outer                  // contains an encrypted hello; its server name is that of the public server
	Inner                  // was encrypted in an outer hello
)

// Hello is a ClientHello. Numbers are those of the TLS registries, and include GREASE values (RFC 8701).
type Hello struct {
	Random       []byte
	SessionID    []byte
	CipherSuites []uint16
	ServerName   string
	Protocols    []string    // of ALPN
	Versions     []uint16    // supported_versions, or else the version of the hello
	Groups       []uint16    // supported_groups
	KeyShares    []uint16    // the groups of the key shares
	Encrypted    Encrypted   // Encrypted Client Hello
	Extensions   []Extension // all of them, in order
}

// Parse parses a hello with its handshake header (RFC 8446, section 4.1.2). Like an observer, it also returns what it parsed
// before an error. The slices of the hello share memory with handshake.
func Parse(handshake []byte) (h Hello, err error) {
	s := cryptobyte.String(handshake)
	var kind uint8
	var length uint32
	switch {
	case !s.ReadUint8(&kind):
		return h, ErrIncomplete
	case kind != typeClientHello:
		return h, ErrNone
	case !s.ReadUint24(&length):
		return h, ErrIncomplete
	case length > Limit:
		return h, ErrMalformed
	case uint32(len(s)) < length:
		return h, ErrIncomplete
	}
	hello := s[:length]
	var version uint16
	var session, suites, compression, extensions cryptobyte.String
	if !hello.ReadUint16(&version) || !hello.ReadBytes(&h.Random, 32) || !hello.ReadUint8LengthPrefixed(&session) ||
		!hello.ReadUint16LengthPrefixed(&suites) || !numbers(suites, &h.CipherSuites) || !hello.ReadUint8LengthPrefixed(&compression) {
		return h, ErrMalformed
	}
	h.SessionID, h.Versions = session, []uint16{version}
	if hello.Empty() {
		return h, nil // valid before TLS 1.2
	}
	if !hello.ReadUint16LengthPrefixed(&extensions) {
		return h, ErrMalformed
	}
	if !hello.Empty() {
		err = ErrMalformed
	}
	for seen := map[uint16]bool{}; !extensions.Empty(); {
		var e Extension
		var body cryptobyte.String
		if !extensions.ReadUint16(&e.Type) || !extensions.ReadUint16LengthPrefixed(&body) {
			return h, ErrMalformed
		}
		again := seen[e.Type]
		e.Body, seen[e.Type] = body, true
		h.Extensions = append(h.Extensions, e)
		if again || !h.read(e.Type, body) {
			err = ErrMalformed // an observer would still read the rest
		}
	}
	return h, err
}

// read parses the extensions that this package knows.
func (h *Hello) read(kind uint16, body cryptobyte.String) bool {
	var list cryptobyte.String
	switch kind {
	case ServerName:
		var nameType uint8
		var host cryptobyte.String
		if !body.ReadUint16LengthPrefixed(&list) || !list.ReadUint8(&nameType) || nameType != nameTypeHost ||
			!list.ReadUint16LengthPrefixed(&host) {
			return false
		}
		h.ServerName = string(host)
	case SupportedGroups:
		return body.ReadUint16LengthPrefixed(&list) && body.Empty() && numbers(list, &h.Groups)
	case SupportedVersions:
		h.Versions = nil
		return body.ReadUint8LengthPrefixed(&list) && body.Empty() && numbers(list, &h.Versions)
	case ALPN:
		if !body.ReadUint16LengthPrefixed(&list) || !body.Empty() {
			return false
		}
		for !list.Empty() {
			var name cryptobyte.String
			if !list.ReadUint8LengthPrefixed(&name) || name.Empty() {
				return false
			}
			h.Protocols = append(h.Protocols, string(name))
		}
	case KeyShare:
		if !body.ReadUint16LengthPrefixed(&list) || !body.Empty() {
			return false
		}
		for !list.Empty() {
			var group uint16
			var key cryptobyte.String
			if !list.ReadUint16(&group) || !list.ReadUint16LengthPrefixed(&key) {
				return false
			}
			h.KeyShares = append(h.KeyShares, group)
		}
	case EncryptedHello:
		var form uint8
		if !body.ReadUint8(&form) || form > encryptedHelloInner {
			return false
		}
		h.Encrypted = Outer
		if form == encryptedHelloInner {
			h.Encrypted = Inner
		}
	}
	return true
}

func numbers(list cryptobyte.String, into *[]uint16) bool {
	for !list.Empty() {
		var n uint16
		if !list.ReadUint16(&n) {
			return false
		}
		*into = append(*into, n)
	}
	return true
}

// Handshake joins the handshake messages at the start of a TLS stream, as far as they arrived. A message may span several
// records (RFC 8446, section 5.1).
func Handshake(stream []byte) []byte {
	var joined []byte
	s := cryptobyte.String(stream)
	for {
		var kind uint8
		var body cryptobyte.String
		rest := s
		if !s.ReadUint8(&kind) || kind != recordHandshake || !s.Skip(2) {
			return joined
		}
		if !s.ReadUint16LengthPrefixed(&body) { // the last record is incomplete
			if rest.Skip(recordHeader) {
				joined = append(joined, rest...)
			}
			return joined
		}
		joined = append(joined, body...)
	}
}
