package masque

import (
	"errors"
	"fmt"
	"io"

	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/quicvarint"
)

// Protocol is the upgrade token of CONNECT-UDP (RFC 9298, section 3.4).
const Protocol = "connect-udp"

// SessionHeader names the session that a flow is of. A proxy of ours lets flows of one session, user and target leave by
// one socket; others pass over it.
const SessionHeader = "Heddle-Session"

// CapsuleProtocol is the value of the header of that name (RFC 9297, section 3.4).
const CapsuleProtocol = "?1"

// MaxPayload is the largest UDP payload in bytes (RFC 9298, section 5).
const MaxPayload = 65527

const (
	contextUDP      = 0 // the context that carries UDP payloads
	capsuleDatagram = 0 // RFC 9297, section 3.5
)

// AppendDatagram appends the payload of an HTTP datagram that carries a UDP payload.
func AppendDatagram(to, payload []byte) []byte {
	return append(append(to, contextUDP), payload...)
}

// ParseDatagram gives the UDP payload of an HTTP datagram. It is nil for another context, which must be dropped
// (RFC 9298, section 4); an error means that the peer breaks the protocol.
func ParseDatagram(data []byte) ([]byte, error) {
	id, n, err := quicvarint.Parse(data)
	if err != nil {
		return nil, errors.New("an HTTP datagram without a context")
	}
	payload := data[n:]
	if id != contextUDP {
		return nil, nil
	}
	if len(payload) > MaxPayload {
		return nil, fmt.Errorf("a UDP payload of %d bytes", len(payload))
	}
	return payload, nil
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
