package masque

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/quicvarint"
)

// Protocol is the upgrade token of CONNECT-UDP (RFC 9298, section 3.4).
const Protocol = "connect-udp"

// SessionHeader names the session that a flow is of. A proxy of ours lets flows of one session, user and target leave by
// one socket; others pass over it.
const SessionHeader = "Heddle-Session"

// OrderHeader offers, in a request, a context whose datagrams carry their place in what the exit sends by all flows of
// the session; its value is the context's number, which the client allots (RFC 9298, section 4). A proxy of ours that
// will use it says in the response, under the same name, which exit counts: [ExitName]. Others pass over it.
const OrderHeader = "Heddle-Order"

// CapsuleProtocol is the value of the header of that name (RFC 9297, section 3.4).
const CapsuleProtocol = "?1"

// MaxPayload is the largest UDP payload in bytes (RFC 9298, section 5).
const MaxPayload = 65527

const (
	contextUDP      = 0 // the context that carries UDP payloads
	contextOrder    = 2 // the one that carries a place too; even, as a client's are
	capsuleDatagram = 0 // RFC 9297, section 3.5
)

// OrderOffer is what a client of ours offers in [OrderHeader].
var OrderOffer = strconv.Itoa(contextOrder)

// AppendDatagram appends the payload of an HTTP datagram that carries a UDP payload.
func AppendDatagram(to, payload []byte) []byte {
	return append(append(to, contextUDP), payload...)
}

// AppendOrdered appends the payload of an HTTP datagram that carries a UDP payload and its place, from 1 to 2^62-1.
func AppendOrdered(to []byte, place uint64, payload []byte) []byte {
	return append(quicvarint.Append(append(to, contextOrder), place), payload...)
}

// ParseDatagram gives the UDP payload of an HTTP datagram. It is nil for another context, which must be dropped
// (RFC 9298, section 4); an error means that the peer breaks the protocol.
func ParseDatagram(data []byte) ([]byte, error) {
	payload, _, err := parse(data, false)
	return payload, err
}

// parse is ParseDatagram, and for who offered the context of [OrderHeader] and was told that it is used, the place too:
// 0 where the datagram has none.
func parse(data []byte, ordered bool) (payload []byte, place uint64, err error) {
	id, n, err := quicvarint.Parse(data)
	if err != nil {
		return nil, 0, errors.New("an HTTP datagram without a context")
	}
	payload = data[n:]
	switch {
	case id == contextOrder && ordered:
		if place, n, err = quicvarint.Parse(payload); err != nil {
			return nil, 0, errors.New("an HTTP datagram without its place")
		}
		payload = payload[n:]
	case id != contextUDP:
		return nil, 0, nil
	}
	if len(payload) > MaxPayload {
		return nil, 0, fmt.Errorf("a UDP payload of %d bytes", len(payload))
	}
	return payload, place, nil
}

// ExitName is how a proxy names an exit that counts, in [OrderHeader]: 16 hexadecimal digits.
func ExitName(exit uint64) string { return fmt.Sprintf("%016x", exit) }

// ParseExitName reads the name of an exit; false where it is none.
func ParseExitName(name string) (exit uint64, ok bool) {
	exit, err := strconv.ParseUint(name, 16, 64)
	if err != nil || len(name) != 16 {
		return 0, false
	}
	return exit, exit != 0
}

// ReadCapsules reads the capsules of a request stream until it ends, which is no error, and hands each HTTP datagram
// that is among them to take. Capsules of other types mean nothing here and are skipped (RFC 9297, section 3.2).
func ReadCapsules(r io.Reader, take func(datagram []byte) error) error {
	parser := http3.NewCapsuleParser(r)
	for {
		kind, body, err := parser.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if kind != capsuleDatagram {
			if err := body.Discard(); err != nil {
				return err
			}
			continue
		}
		if body.Remaining() < 0 || body.Remaining() > MaxPayload+8 {
			return errors.New("a datagram capsule longer than any UDP payload")
		}
		data := make([]byte, body.Remaining())
		if _, err := io.ReadFull(body, data); err != nil {
			return err
		}
		if err := take(data); err != nil {
			return err
		}
	}
}
