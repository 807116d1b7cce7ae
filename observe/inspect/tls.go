package inspect

import (
	"errors"

	"heddle/internal/clienthello"
)

const tlsRecordHandshake = 22

// serverName finds the host name in a TLS ClientHello, given from its handshake header on. done is false where more bytes may
// still complete it.
func serverName(handshake []byte) (name string, done bool) {
	h, err := clienthello.Parse(handshake)
	return h.ServerName, !errors.Is(err, clienthello.ErrIncomplete)
}

// looksLikeTLS reports whether a TCP stream starts with a TLS record (RFC 8446 section 5.1).
func looksLikeTLS(stream []byte) bool {
	return len(stream) >= 6 && stream[0] >= 20 && stream[0] <= 23 && stream[1] == 3 && stream[2] <= 4
}
