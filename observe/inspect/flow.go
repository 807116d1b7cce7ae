// Package inspect finds what one conversation reveals to a passive observer: the protocol, server names, and content in
// clear. It looks at DNS queries, the server name of TLS ClientHellos over TCP and in QUIC Initials, and the Host of
// HTTP requests.
//
// Its input is untrusted. Every parser is bounded in memory and time and is fuzzed; it skips what it cannot read. It
// does not dissect protocols: it stops at the first name.
package inspect

import (
	"errors"
	"slices"
	"strings"

	"heddle/internal/clienthello"
)

// The sources of a name.
const (
	FromDNS  = "dns"
	FromTLS  = "tls"
	FromQUIC = "quic"
	FromHTTP = "http"
)

// Name is a name that an observer can read, and its source.
type Name struct {
	Name string `json:"name"`
	From string `json:"from"` // "dns", "tls", "quic" or "http"
}

// Flow collects what one conversation reveals: the packets between two ports, both ways. The zero value is ready.
type Flow struct {
	Protocol string   // such as "WireGuard"; empty if unknown
	Names    []Name   // each once, in order; printable
	Requests []string // HTTP requests in clear, as "GET host/path"; printable
	Readable bool     // the payload is in clear

	sides  [2]side
	hellos clienthello.QUIC
}

// side is one direction of a TCP connection.
type side struct {
	stream clienthello.Prefix
	start  uint32 // sequence number of the first byte
	open   bool
	done   bool
}

const (
	portDNS  = 53
	portMDNS = 5353
	mostSeen = 256 // names and requests of one flow
)

// UDP takes the captured part of one datagram's payload.
func (f *Flow) UDP(source, destination uint16, payload []byte) {
	switch {
	case isPort(source, destination, portDNS) || isPort(source, destination, portMDNS):
		if asked := questions(payload); asked != nil {
			f.Protocol, f.Readable = "DNS", true
			f.add(FromDNS, asked...)
		}
	case clienthello.IsQUIC(payload):
		f.Protocol = "QUIC"
		for _, h := range f.hellos.Read(payload) {
			f.add(FromQUIC, h.ServerName)
		}
	case f.Protocol == "" && isWireGuard(payload):
		f.Protocol = "WireGuard"
	}
}

func isPort(source, destination, port uint16) bool { return source == port || destination == port }

// isWireGuard recognises a message by its type and length (the WireGuard paper, section 5.4). A data message may be
// longer than one packet, if offloading joined segments before the capture, so its length is not checked.
func isWireGuard(b []byte) bool {
	const joined = 1500
	if len(b) < 32 || b[1] != 0 || b[2] != 0 || b[3] != 0 {
		return false
	}
	if b[0] == 4 {
		return len(b)%16 == 0 || len(b) > joined
	}
	return wireGuardSizes[b[0]] == len(b)
}

// wireGuardSizes are the lengths of the handshake messages, by type.
var wireGuardSizes = map[byte]int{1: 148, 2: 92, 3: 64}

// TCP takes the captured part of one segment's payload. forward distinguishes the directions.
func (f *Flow) TCP(forward bool, source, destination uint16, sequence uint32, syn bool, payload []byte) {
	s := &f.sides[0]
	if forward {
		s = &f.sides[1]
	}
	if syn {
		*s = side{start: sequence + 1, open: true}
		return
	}
	if s.done || len(payload) == 0 {
		return
	}
	if !s.open { // mid-stream: assume that this is the start
		s.start, s.open = sequence, true
	}
	if !s.stream.Insert(uint64(sequence-s.start), payload) {
		return
	}
	s.done = f.read(s.stream.Bytes(), source, destination) || len(s.stream.Bytes()) >= clienthello.Limit
	if s.done {
		s.stream = clienthello.Prefix{}
	}
}

// read examines the start of one side of a TCP connection. It returns true when nothing more can be learned.
func (f *Flow) read(stream []byte, source, destination uint16) bool {
	switch {
	case looksLikeTLS(stream):
		f.Protocol = "TLS"
		if stream[0] != tlsRecordHandshake {
			return true // mid-stream
		}
		h, err := clienthello.Parse(clienthello.Handshake(stream))
		f.add(FromTLS, h.ServerName)
		return !errors.Is(err, clienthello.ErrIncomplete)
	case looksLikeHTTP(stream):
		f.Protocol, f.Readable = "HTTP", true
		host, line, done := request(stream)
		f.add(FromHTTP, host)
		if line != "" && len(f.Requests) < mostSeen {
			f.Requests = append(f.Requests, escaped(line))
		}
		return done
	case strings.HasPrefix(string(stream[:min(len(stream), 4)]), "SSH-"):
		f.Protocol = "SSH"
		return true
	case isPort(source, destination, portDNS):
		asked, done := dnsOverTCP(stream)
		if asked != nil {
			f.Protocol, f.Readable = "DNS", true
			f.add(FromDNS, asked...)
		}
		return done
	}
	const longestStart = 8 // of the prefixes above
	return len(stream) >= longestStart
}

const tlsRecordHandshake = 22

// looksLikeTLS reports whether a TCP stream starts with a TLS record (RFC 8446 section 5.1).
func looksLikeTLS(stream []byte) bool {
	return len(stream) >= 6 && stream[0] >= 20 && stream[0] <= 23 && stream[1] == 3 && stream[2] <= 4
}

func (f *Flow) add(from string, names ...string) {
	for _, n := range names {
		seen := Name{Name: escaped(n), From: from}
		if n != "" && len(f.Names) < mostSeen && !slices.Contains(f.Names, seen) {
			f.Names = append(f.Names, seen)
		}
	}
}
