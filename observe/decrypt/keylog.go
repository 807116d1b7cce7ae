// Package decrypt decrypts TLS 1.3 for an observer who has broken the cipher. It needs a key log from the program that
// made the connection; without one it cannot decrypt anything.
package decrypt

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// Keys are the secrets of TLS connections, by client random and key log label.
type Keys map[[32]byte]map[string][]byte

// Limits of a key log.
const (
	maxKeyLog = 64 << 20
	maxLine   = 1 << 10
)

// The labels of the secrets used here (SSLKEYLOGFILE format, RFC 9850, section 2).
const (
	clientHandshake = "CLIENT_HANDSHAKE_TRAFFIC_SECRET"
	serverHandshake = "SERVER_HANDSHAKE_TRAFFIC_SECRET"
	clientTraffic   = "CLIENT_TRAFFIC_SECRET_0"
	serverTraffic   = "SERVER_TRAFFIC_SECRET_0"
)

// ReadFiles reads key logs. Errors name the file.
func ReadFiles(names ...string) (Keys, error) {
	all := Keys{}
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		keys, err := ReadKeys(file)
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		maps.Copy(all, keys)
	}
	return all, nil
}

// ReadKeys reads a key log: lines of a label, the client random and a secret, both in hexadecimal. It skips comments
// and unused labels. Errors name the line and never contain it.
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
