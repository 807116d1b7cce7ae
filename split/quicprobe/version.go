package quicprobe

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/crypto/cryptobyte"

	"heddle/path"
)

// QUIC versions: RFC 9000, RFC 9369, and one reserved to force a negotiation (RFC 9000, section 15).
const (
	version1      = 0x00000001
	version2      = 0x6b3343cf
	versionGrease = 0x1a2a3a4a
)

// minDatagram is the smallest datagram that may hold an Initial packet (RFC 9000, section 14.1).
const minDatagram = 1200

// maxVersions bounds what a server may list.
const maxVersions = 64

const connectionIDLength = 8 // of the connection ids in our question

// versionQuestion makes a datagram of a version that no server has, to be answered with the server's versions (RFC 9000,
// section 6). It looks like an Initial of version 1, since some servers parse on before they check the version.
func versionQuestion() (datagram, destination, source []byte) {
	d := make([]byte, minDatagram)
	crand.Read(d) // never fails: the runtime ends the program first
	d[0] = 0xc0 | d[0]&0x0f
	binary.BigEndian.PutUint32(d[1:], versionGrease)
	const first, second = 6, 6 + connectionIDLength + 1
	d[first-1], d[second-1] = connectionIDLength, connectionIDLength
	const token, length = second + connectionIDLength, second + connectionIDLength + 1
	d[token] = 0
	binary.BigEndian.PutUint16(d[length:], 0x4000|uint16(len(d)-length-2)) // a 2-byte variable-length integer
	return d, d[first : first+connectionIDLength], d[second : second+connectionIDLength]
}

var errNotNegotiation = errors.New("no version negotiation")

// parseVersions reads a Version Negotiation packet (RFC 8999, section 6) that echoes these connection ids. It returns the
// versions in the server's order, without reserved (grease) ones and repetitions.
func parseVersions(data, destination, source []byte) ([]uint32, error) {
	d := cryptobyte.String(data)
	var form uint8
	var version uint32
	if !d.ReadUint8(&form) || !d.ReadUint32(&version) || form&0x80 == 0 || version != 0 {
		return nil, errNotNegotiation
	}
	var first, second cryptobyte.String
	if !d.ReadUint8LengthPrefixed(&first) || !d.ReadUint8LengthPrefixed(&second) || len(d) == 0 || len(d)%4 != 0 {
		return nil, fmt.Errorf("%w: it is cut short", errNotNegotiation)
	}
	if !bytes.Equal(first, source) || !bytes.Equal(second, destination) {
		return nil, fmt.Errorf("%w: it answers another question", errNotNegotiation)
	}
	if len(d) > 4*maxVersions {
		return nil, fmt.Errorf("%w: it lists %d versions", errNotNegotiation, len(d)/4)
	}
	versions := []uint32{}
	for d.ReadUint32(&version) {
		if version&0x0f0f0f0f != 0x0a0a0a0a && version != 0 && !slices.Contains(versions, version) {
			versions = append(versions, version)
		}
	}
	return versions, nil
}

// versionName returns the common name of a version.
func versionName(v uint32) string {
	switch v {
	case version1:
		return "v1"
	case version2:
		return "v2"
	}
	if v>>8 == 0xff0000 {
		return fmt.Sprintf("draft-%d", v&0xff)
	}
	return fmt.Sprintf("0x%08x", v)
}

// askVersions asks the server for its versions, twice if it does not answer. It returns none from a silent server.
func (p *prober) askVersions(ctx context.Context) ([]uint32, error) {
	flow, err := path.Open(ctx, p.ways[0], p.to)
	if err != nil {
		return nil, err
	}
	question, destination, source := versionQuestion()
	versions, err := ask(ctx, p, flow, p.to, question, []time.Duration{p.pace.question, p.pace.question}, func(answer []byte) ([]uint32, error) {
		return parseVersions(answer, destination, source)
	})
	switch {
	case errors.Is(err, errSilent):
		return nil, nil
	case err != nil && ctx.Err() == nil:
		err = p.explain(err)
	}
	return versions, err
}
