// Package reconstruct rebuilds what one observer has of a striped stream: the pieces on its paths, in place, with gaps
// between them. Drawn as a picture, it shows what a split protects if the cipher is broken (MACHETE, figures 7 and 8).
// It needs the key log of the connections, see package decrypt.
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
	// Offset is the position of its first byte in the stream, and Size the number of stream bytes that it stands for.
	Offset  uint64
	Size    uint32
	Payload []byte // the bytes themselves, or one share of them
}

// Session is what was seen of one striped session.
type Session struct {
	ID, Service, Schedule, Shares string
	Members                       []int // those that were seen, from 0, of Of
	Of                            int
	// Up is what the dialler sent and Down what came back, both by offset and without duplicates.
	Up, Down Direction
}

// Direction is one stream of a session.
type Direction struct {
	Pieces []Piece
	Length uint64 // minimum length of the stream in bytes
}

// Seen is the number of stream bytes that the pieces contain, or contain shares of.
func (d Direction) Seen() (n uint64) {
	for _, p := range d.Pieces {
		n += uint64(p.Size)
	}
	return n
}

// maxNested bounds nested TLS connections: one to a node, and in it one to the peer.
const maxNested = 3

// Sessions finds the striped sessions in one observer's conversations. It skips what is not one or cannot be decrypted
// with the keys; notes say why.
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

// peel removes the layers around a member: TLS, and in it the connection request to a node.
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

// cut removes the first frame, if it is complete and well formed.
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

// read adds the pieces from the frames of one direction of a member.
func (d *Direction) read(frames []byte) error {
	for {
		kind, body, rest, ok := cut(frames)
		if !ok {
			return nil // the rest is truncated
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

// settle sorts the pieces and drops duplicates, which are resent after a member breaks.
func (d *Direction) settle() {
	slices.SortStableFunc(d.Pieces, func(a, b Piece) int { return cmp.Compare(a.Offset, b.Offset) })
	d.Pieces = slices.CompactFunc(d.Pieces, func(a, b Piece) bool { return a.Offset == b.Offset && a.Size == b.Size })
}
