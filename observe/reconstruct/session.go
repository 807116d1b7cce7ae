// Package reconstruct puts together what one observer has of a striped stream: the pieces that passed its paths, in their
// places, and nothing in between. Drawn as a picture it shows what a split is worth if the cipher falls (MACHETE, figures
// 7 and 8).
//
// It needs the key log of the connections it looks into, since it stands for somebody who broke them; see package decrypt.
package reconstruct

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"heddle/internal/segment"
	"heddle/observe"
	"heddle/observe/decrypt"
)

// Piece is a part of a stream, or a share of one.
type Piece struct {
	// Offset is the place of its first byte in the stream, and Size how many bytes of the stream it stands for.
	Offset uint64
	Size   uint32
	// Payload is what passed: the bytes themselves, or one share of them.
	Payload []byte
}

// Session is what was seen of one striped session.
type Session struct {
	ID, Service, Schedule, Shares string
	// Members are those that were seen, from 0, of Of.
	Members []int
	Of      int
	// Up is what the one who dialled sent, Down what came back, both by their offsets, without what came twice.
	Up, Down Direction
}

// Direction is one stream of a session.
type Direction struct {
	Pieces []Piece
	// Length is how many bytes the stream has at least.
	Length uint64
}

// Seen is how many bytes of the stream the pieces are, or stand for shares of.
func (d Direction) Seen() (n uint64) {
	for _, p := range d.Pieces {
		n += uint64(p.Size)
	}
	return n
}

// maxNested bounds how many TLS connections lie in one another: that to a node, and that to the peer in it.
const maxNested = 3

// Sessions finds the striped sessions in the conversations that one observer has. What is no striped session, or cannot
// be opened with the keys, is passed over; notes say why.
func Sessions(all []observe.Conversation, keys decrypt.Keys) (found []Session, notes []string) {
	byID := map[string]*Session{}
	var order []string
	for _, c := range all {
		if c.Subflow != nil {
			continue // see Multipath
		}
		up, down, err := peel(c.Up, c.Down, keys)
		if err != nil {
			notes = append(notes, fmt.Sprintf("%v to %v: %v", c.Client, c.Server, err))
		}
		hello, rest, ok := helloOf(up)
		if !ok {
			continue
		}
		id := hex.EncodeToString(hello.Session[:])
		s := byID[id]
		if s == nil {
			s = &Session{ID: id, Service: hello.Service, Schedule: hello.Schedule, Shares: cmp.Or(hello.Shares, "none"), Of: int(hello.Members)}
			byID[id], order = s, append(order, id)
		}
		if !slices.Contains(s.Members, int(hello.Member)) {
			s.Members = append(s.Members, int(hello.Member))
		}
		for _, half := range []struct {
			bytes []byte
			to    *Direction
		}{{rest, &s.Up}, {down, &s.Down}} {
			if err := half.to.read(half.bytes); err != nil {
				notes = append(notes, fmt.Sprintf("%v to %v: %v", c.Client, c.Server, err))
			}
		}
	}
	for _, id := range order {
		s := byID[id]
		slices.Sort(s.Members)
		s.Up.settle()
		s.Down.settle()
		found = append(found, *s)
	}
	return found, notes
}

// peel takes off what lies around a member: TLS, and the request for a connection inside it that a node is asked.
func peel(up, down []byte, keys decrypt.Keys) ([]byte, []byte, error) {
	for range maxNested {
		if !decrypt.IsTLS(up) {
			return up, down, nil
		}
		var err error
		up, down, err = decrypt.Open(up, down, keys)
		if errors.Is(err, decrypt.ErrNoKeys) || errors.Is(err, decrypt.ErrNoTLS) {
			return nil, nil, err
		}
		if bytes.HasPrefix(up, []byte("CONNECT ")) {
			_, up, _ = bytes.Cut(up, []byte("\r\n\r\n"))
			_, down, _ = bytes.Cut(down, []byte("\r\n\r\n"))
		}
		if err != nil {
			return up, down, err
		}
	}
	return up, down, nil
}

func helloOf(up []byte) (hello segment.Hello, rest []byte, ok bool) {
	kind, body, rest, ok := cut(up)
	if !ok || kind != segment.KindHello {
		return hello, nil, false
	}
	hello, err := segment.ParseHello(body)
	return hello, rest, err == nil
}

// cut takes the first frame off, where it is whole and well formed.
func cut(b []byte) (kind segment.Kind, body, rest []byte, ok bool) {
	if len(b) < segment.HeaderSize {
		return 0, nil, nil, false
	}
	kind, length, err := segment.ParseHeader([segment.HeaderSize]byte(b))
	if err != nil || len(b) < segment.HeaderSize+length {
		return 0, nil, nil, false
	}
	b = b[segment.HeaderSize:]
	return kind, b[:length], b[length:], true
}

// read takes the pieces from the frames of one direction of a member.
func (d *Direction) read(frames []byte) error {
	for {
		kind, body, rest, ok := cut(frames)
		if !ok {
			return nil // what is left is cut short
		}
		frames = rest
		switch kind {
		case segment.KindData:
			data, payload, err := segment.ParseData(body)
			if err != nil {
				return err
			}
			d.Pieces = append(d.Pieces, Piece{data.Offset, data.Size, payload})
			d.Length = max(d.Length, data.Offset+uint64(data.Size))
		case segment.KindFin:
			fin, err := segment.ParseFin(body)
			if err != nil {
				return err
			}
			d.Length = max(d.Length, fin.Offset)
		}
	}
}

// settle puts the pieces in order, each once: what was sent again after a member broke is no news.
func (d *Direction) settle() {
	slices.SortStableFunc(d.Pieces, func(a, b Piece) int { return cmp.Compare(a.Offset, b.Offset) })
	d.Pieces = slices.CompactFunc(d.Pieces, func(a, b Piece) bool { return a.Offset == b.Offset && a.Size == b.Size })
}
