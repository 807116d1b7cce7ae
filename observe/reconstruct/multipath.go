package reconstruct

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"heddle/observe"
	"heddle/observe/decrypt"
)

// planeProtocol is the ALPN of Heddle's own streams over MPTCP, which the client sends in clear.
const planeProtocol = "heddle-stripe-mptcp/1"

// Multipath finds the MPTCP connections of which an observer saw subflows, and returns each as a session whose members
// are the subflows. Data sequence numbers place their bytes (RFC 8684, section 3.3). others are conversations seen
// elsewhere: TLS records can only be decrypted in order, so the bytes between the seen ones must be known. The sessions
// contain nothing of others.
func Multipath(seen, others []observe.Conversation, keys decrypt.Keys) (found []Session, notes []string) {
	for _, c := range observe.Connections(slices.Concat(seen, others)) {
		m := multipath{Connection: c}
		for _, part := range c.Subflows {
			m.of = max(m.of, part.Number+1)
			m.allUp, m.allDown = append(m.allUp, part.Up...), append(m.allDown, part.Down...)
			if part.Conversation >= len(seen) {
				continue
			}
			m.up, m.down = append(m.up, part.Up...), append(m.down, part.Down...)
			if !slices.Contains(m.members, part.Number) {
				m.members = append(m.members, part.Number)
			}
		}
		if len(m.members) == 0 {
			continue
		}
		s, err := m.session(keys)
		if s != nil {
			found = append(found, *s)
		}
		if err != nil {
			notes = append(notes, fmt.Sprintf("MPTCP, %v to %v: %v", c.Client, c.Server, err))
		}
	}
	return found, notes
}

// multipath is one connection: the data of all its subflows, and of those that one observer saw.
type multipath struct {
	observe.Connection
	members        []int
	of             int
	up, down       []observe.Piece
	allUp, allDown []observe.Piece
}

var (
	errNoFirst = errors.New("its first subflow is in no capture, and only that says where the stream begins")
	errGap     = errors.New("what no capture has ends what can be opened")
)

func (m *multipath) session(keys decrypt.Keys) (*Session, error) {
	if !m.Placed {
		return nil, errNoFirst
	}
	s := &Session{ID: fmt.Sprintf("%08x", m.Token), Schedule: "mptcp", Shares: "none", Members: m.members, Of: m.of}
	slices.Sort(s.Members)
	up, upWhole := beginning(m.allUp)
	down, downWhole := beginning(m.allDown)
	if !bytes.HasPrefix(up, []byte{22, 3}) { // a TLS handshake record, perhaps truncated (RFC 8446, section 5.1)
		s.Up, s.Down = plain(m.allUp, m.up), plain(m.allDown, m.down)
		return s, nil
	}
	client, server, err := decrypt.Records(up, down, keys)
	if errors.Is(err, decrypt.ErrNoKeys) || errors.Is(err, decrypt.ErrNoTLS) {
		return nil, err
	}
	if err == nil && !(upWhole && downWhole) {
		err = errGap
	}
	if bytes.Contains(up[:min(len(up), 2048)], []byte(planeProtocol)) {
		client, s.Service = skipHello(client)
		server = skip(server, 1) // the answer that accepts the connection
	}
	s.Up, s.Down = inside(client, m.up), inside(server, m.down)
	return s, err
}

// beginning returns the stream up to the first gap, and whether that is all.
func beginning(pieces []observe.Piece) (stream []byte, whole bool) {
	runs := observe.Runs(pieces)
	if len(runs) == 0 || runs[0].Offset != 0 {
		return nil, len(runs) == 0
	}
	return runs[0].Bytes, len(runs) == 1
}

// plain returns a direction without TLS.
func plain(all, seen []observe.Piece) (d Direction) {
	for _, run := range observe.Runs(all) {
		d.Length = run.Offset + uint64(len(run.Bytes))
	}
	for _, run := range observe.Runs(seen) {
		d.add(run.Offset, run.Bytes)
	}
	return d
}

// longest bounds a piece, in bytes.
const longest = 1 << 20

func (d *Direction) add(offset uint64, b []byte) {
	for part := range slices.Chunk(b, longest) {
		d.Pieces = append(d.Pieces, Piece{offset, uint32(len(part)), part})
		offset += uint64(len(part))
	}
}

// inside returns a direction within TLS: of each record, the part whose encrypted bytes were seen.
func inside(records []decrypt.Record, seen []observe.Piece) (d Direction) {
	runs := observe.Runs(seen)
	for _, r := range records {
		at, end := uint64(r.At), uint64(r.At+len(r.Text))
		for len(runs) > 0 && runs[0].Offset+uint64(len(runs[0].Bytes)) <= at {
			runs = runs[1:]
		}
		for _, run := range runs {
			if run.Offset >= end {
				break
			}
			from, to := max(at, run.Offset), min(end, run.Offset+uint64(len(run.Bytes)))
			d.add(d.Length+from-at, r.Text[from-at:to-at])
		}
		d.Length += end - at
	}
	return d
}

// skip drops the first bytes of the records' data.
func skip(records []decrypt.Record, n int) (left []decrypt.Record) {
	for _, r := range records {
		k := min(n, len(r.Text))
		n -= k
		left = append(left, decrypt.Record{At: r.At + k, Text: r.Text[k:]})
	}
	return left
}

// skipHello drops the dialler's hello: number of paths, required paths, flags and length of the service's name, one
// byte each, and the name.
func skipHello(records []decrypt.Record) (left []decrypt.Record, service string) {
	const head = 4
	var begin []byte
	for _, r := range records {
		if begin = append(begin, r.Text...); len(begin) >= head+255 {
			break
		}
	}
	if len(begin) < head || len(begin) < head+int(begin[3]) {
		return nil, ""
	}
	length := head + int(begin[3])
	return skip(records, length), string(begin[head:length])
}
