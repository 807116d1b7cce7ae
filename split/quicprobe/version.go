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

	"heddle/path"
)

// QUIC versions: RFC 9000 and RFC 9369, and one of those reserved to make a server negotiate (RFC 9000, section 15).
const (
	version1      = 0x00000001
	version2      = 0x6b3343cf
	versionGrease = 0x1a2a3a4a
)

// minDatagram is the least that a datagram with an Initial packet must hold (RFC 9000, section 14.1).
const minDatagram = 1200

// maxVersions bounds what a server may list: nobody has more.
const maxVersions = 64

const connectionIDLength = 8 // of the connection ids in our question

// versionQuestion makes a datagram of a version that no server has, which RFC 9000 (section 6) asks it to answer with
// those that it has. It has the length and the form of an Initial of version 1, since some servers read on before they
// look at the version.
func versionQuestion() (datagram, destination, source []byte) {
	d := make([]byte, minDatagram)
	crand.Read(d) // never fails: the runtime ends the program first
	d[0] = 0xc0 | d[0]&0x0f
	binary.BigEndian.PutUint32(d[1:], versionGrease)
	const first, second = 6, 6 + connectionIDLength + 1
	d[first-1], d[second-1] = connectionIDLength, connectionIDLength
	const token, length = second + connectionIDLength, second + connectionIDLength + 1
	d[token] = 0
	binary.BigEndian.PutUint16(d[length:], 0x4000|uint16(len(d)-length-2)) // a variable-length integer of 2 bytes
	return d, d[first : first+connectionIDLength], d[second : second+connectionIDLength]
}

var errNotNegotiation = errors.New("no version negotiation")

// parseVersions reads a Version Negotiation packet (RFC 8999, section 6) that answers a question with these connection
// ids, and gives the versions in the server's order, without those reserved for greasing and without repetitions.
func parseVersions(data, destination, source []byte) ([]uint32, error) {
	if len(data) < 7 || data[0]&0x80 == 0 || binary.BigEndian.Uint32(data[1:]) != 0 {
		return nil, errNotNegotiation
	}
	first, rest, ok := cutConnectionID(data[5:])
	if !ok {
		return nil, fmt.Errorf("%w: it is cut short", errNotNegotiation)
	}
	second, rest, ok := cutConnectionID(rest)
	if !ok || len(rest) == 0 || len(rest)%4 != 0 {
		return nil, fmt.Errorf("%w: it is cut short", errNotNegotiation)
	}
	if !bytes.Equal(first, source) || !bytes.Equal(second, destination) {
		return nil, fmt.Errorf("%w: it answers another question", errNotNegotiation)
	}
	if len(rest) > 4*maxVersions {
		return nil, fmt.Errorf("%w: it lists %d versions", errNotNegotiation, len(rest)/4)
	}
	versions := []uint32{}
	for ; len(rest) > 0; rest = rest[4:] {
		v := binary.BigEndian.Uint32(rest)
		if v&0x0f0f0f0f != 0x0a0a0a0a && v != 0 && !slices.Contains(versions, v) {
			versions = append(versions, v)
		}
	}
	return versions, nil
}

func cutConnectionID(data []byte) (id, rest []byte, ok bool) {
	if len(data) == 0 {
		return nil, nil, false
	}
	end := 1 + int(data[0]) // in a byte, 255 would come round
	if len(data) < end {
		return nil, nil, false
	}
	return data[1:end], data[end:], true
}

// versionName is how a version is known among people.
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

// askVersions asks the server for its versions, twice where it does not answer. It gives none where the server stays
// silent, as it may.
func (p *prober) askVersions(ctx context.Context) ([]uint32, error) {
	flow, err := path.Open(ctx, p.ways[0], p.to)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { flow.Close() })
	defer flow.Close()
	defer stop()
	question, destination, source := versionQuestion()
	answers, failed := make(chan []uint32, 1), make(chan error, 1)
	go func() {
		v, err := p.listenVersions(flow, destination, source)
		if err != nil {
			failed <- err
			return
		}
		answers <- v
	}()
	for range 2 {
		p.meter.add(len(question), &p.meter.sent)
		if _, err := flow.Send([][]byte{question}); err != nil && ctx.Err() == nil {
			return nil, p.explain(err)
		}
		select {
		case v := <-answers:
			return v, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case err := <-failed:
			return nil, p.explain(err)
		case <-time.After(p.pace.question):
		}
	}
	return nil, nil
}

func (p *prober) listenVersions(flow path.Flow, destination, source []byte) ([]uint32, error) {
	into := make([]path.Inbound, 1)
	for {
		n, err := flow.Receive(into)
		if err != nil {
			return nil, err
		}
		for _, in := range into[:n] {
			p.meter.add(len(in.Data), &p.meter.received)
			if in.From != p.to {
				continue
			}
			if v, err := parseVersions(in.Data[:min(in.Size, len(in.Data))], destination, source); err == nil {
				return v, nil
			}
		}
	}
}
