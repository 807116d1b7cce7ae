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

// SessionHeader names the session of a flow. Heddle's proxy joins flows of one session, user and target at one socket.
const SessionHeader = "Heddle-Session"

// OrderHeader offers, in a request, a context whose datagrams carry their position in all that the exit sends to the
// session. The value is the context ID, which the client allocates (RFC 9298, section 4). If Heddle's proxy accepts, the
// header in the response names the exit that counts: [ExitName]. Other proxies ignore it.
const OrderHeader = "Heddle-Order"

// CapsuleProtocol is the value of the Capsule-Protocol header (RFC 9297, section 3.4).
const CapsuleProtocol = "?1"

// MaxPayload is the largest UDP payload in bytes (RFC 9298, section 5).
const MaxPayload = 65527

const (
	contextUDP      = 0 // context ID of UDP payloads
	contextOrder    = 2 // context ID of payloads with a position; client-allocated IDs are even
	capsuleDatagram = 0 // RFC 9297, section 3.5
)

// OrderOffer is the value of [OrderHeader] in a Heddle client's request.
var OrderOffer = strconv.Itoa(contextOrder)

// AppendDatagram appends the payload of an HTTP datagram that carries a UDP payload.
func AppendDatagram(to, payload []byte) []byte {
	return append(append(to, contextUDP), payload...)
}

// AppendOrdered is [AppendDatagram] with the position of the UDP payload, from 1 to 2^62-1.
func AppendOrdered(to []byte, place uint64, payload []byte) []byte {
	return append(quicvarint.Append(append(to, contextOrder), place), payload...)
}

// ParseDatagram returns the UDP payload of an HTTP datagram, or nil for another context, which must be dropped (RFC 9298,
// section 4). An error means that the peer violates the protocol.
func ParseDatagram(data []byte) ([]byte, error) {
	payload, _, err := parse(data, false)
	return payload, err
}

// parse is ParseDatagram. With ordered it also accepts the context of [OrderHeader], and returns the position or 0.
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

// ExitName returns the name of a counting exit in [OrderHeader]: 16 hexadecimal digits.
func ExitName(exit uint64) string { return fmt.Sprintf("%016x", exit) }

func ParseExitName(name string) (exit uint64, ok bool) {
	exit, err := strconv.ParseUint(name, 16, 64)
	if err != nil || len(name) != 16 {
		return 0, false
	}
	return exit, exit != 0
}

// ReadCapsules reads capsules until the request stream ends, which is no error, and passes each HTTP datagram to take. It
// skips unknown capsules (RFC 9297, section 3.2).
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
