// Package decrypt reads what TLS 1.3 carried, for whoever has the keys: it stands for the observer who broke the cipher.
//
// The keys come from a key log, which the program that made the connection must have written. Without one, nothing
// here opens anything.
package decrypt

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Keys are the secrets of TLS connections, by the client's random and the label of the key log format.
type Keys map[[32]byte]map[string][]byte

// What a key log may hold at most.
const (
	maxKeyLog = 64 << 20
	maxLine   = 1 << 10
)

// The labels of the secrets that are used here (SSLKEYLOGFILE format, RFC 9850, section 2).
const (
	clientHandshake = "CLIENT_HANDSHAKE_TRAFFIC_SECRET"
	serverHandshake = "SERVER_HANDSHAKE_TRAFFIC_SECRET"
	clientTraffic   = "CLIENT_TRAFFIC_SECRET_0"
	serverTraffic   = "SERVER_TRAFFIC_SECRET_0"
)

// ReadKeys reads a key log: lines of a label, the client's random and a secret, both in hexadecimal. Comments and labels
// that are of no use here are passed over. Errors name the line and never repeat it.
func ReadKeys(r io.Reader) (Keys, error) {
	keys := Keys{}
	lines := bufio.NewScanner(io.LimitReader(r, maxKeyLog))
	lines.Buffer(nil, maxLine)
	for number := 1; lines.Scan(); number++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || !slices.Contains([]string{clientHandshake, serverHandshake, clientTraffic, serverTraffic}, words[0]) {
			continue
		}
		if len(words) != 3 {
			return nil, fmt.Errorf("line %d of the key log has %d words and not 3", number, len(words))
		}
		random, randomErr := hex.DecodeString(words[1])
		secret, secretErr := hex.DecodeString(words[2])
		if randomErr != nil || secretErr != nil || len(random) != 32 || len(secret) < 32 || len(secret) > 48 {
			return nil, fmt.Errorf("line %d of the key log holds no client random of 32 bytes and secret of 32 to 48", number)
		}
		of := keys[[32]byte(random)]
		if of == nil {
			of = map[string][]byte{}
			keys[[32]byte(random)] = of
		}
		of[words[0]] = secret
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("the key log cannot be read to its end: %w", err)
	}
	return keys, nil
}
