package asn

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"heddle/internal/atomicfile"
)

// A stored table is: magic; the header's length in four bytes, big-endian like all numbers; the header in JSON; the records
// of each part, which are searched in place; the names; and the SHA-256 of all that.
const magic = "heddle-asn/1\n"

type header struct {
	Parts []Source `json:"parts"`
	Names int      `json:"names"` // ASes with a name
	Text  int      `json:"text"`  // length of all names in bytes
}

// nameRecord is the size of an AS and the end of its name in the text. Records are sorted by AS.
const nameRecord = 8

func readNames(records, text []byte) (map[uint32]string, error) {
	names := make(map[uint32]string, len(records)/nameRecord)
	var start uint32
	for record := range slices.Chunk(records, nameRecord) {
		as, end := binary.BigEndian.Uint32(record), binary.BigEndian.Uint32(record[4:])
		if end < start || int64(end) > int64(len(text)) {
			return nil, errors.New("a name ends before it begins, or beyond the file")
		}
		names[as], start = string(text[start:end]), end
	}
	return names, nil
}

func (t *Table) encode() ([]byte, error) {
	var records, text []byte
	for _, as := range slices.Sorted(maps.Keys(t.names)) {
		text = append(text, t.names[as]...)
		records = binary.BigEndian.AppendUint32(records, as)
		records = binary.BigEndian.AppendUint32(records, uint32(len(text)))
	}
	head, err := json.Marshal(header{Parts: t.Sources(), Names: len(t.names), Text: len(text)})
	if err != nil {
		return nil, err
	}
	body := head
	for _, p := range t.parts {
		body = append(body, p.data...)
	}
	return seal(slices.Concat(body, records, text), len(head)), nil
}

// seal puts the magic and the header's length before a body, and the checksum behind it.
func seal(body []byte, header int) []byte {
	text := binary.BigEndian.AppendUint32([]byte(magic), uint32(header))
	text = append(text, body...)
	sum := sha256.Sum256(text)
	return append(text, sum[:]...)
}

func decode(text []byte) (*Table, error) {
	if len(text) < len(magic)+4+sha256.Size || string(text[:len(magic)]) != magic {
		return nil, errors.New("it is no table of this version")
	}
	body := text[:len(text)-sha256.Size]
	if sum := sha256.Sum256(body); string(sum[:]) != string(text[len(body):]) {
		return nil, errors.New("its checksum does not fit")
	}
	rest := body[len(magic):]
	length := int64(binary.BigEndian.Uint32(rest))
	if rest = rest[4:]; length > int64(len(rest)) {
		return nil, errors.New("its header is longer than the file")
	}
	var head header
	if err := json.Unmarshal(rest[:length], &head); err != nil {
		return nil, fmt.Errorf("its header: %w", err)
	}
	return head.table(rest[length:])
}

// table splits what follows the header into parts.
func (h header) table(rest []byte) (*Table, error) {
	cut := func(n, size int) (piece []byte, err error) {
		if n < 0 || n > len(rest)/size {
			return nil, io.ErrUnexpectedEOF
		}
		piece, rest = rest[:n*size:n*size], rest[n*size:]
		return piece, nil
	}
	t := &Table{}
	for _, s := range h.Parts {
		if (s.Family != 4 && s.Family != 6) || (s.Kind != ASN && s.Kind != Country) {
			return nil, fmt.Errorf("a part of kind %q for IPv%d", s.Kind, s.Family)
		}
		p := part{Source: s}
		var err error
		if p.data, err = cut(s.Ranges, p.record()); err != nil {
			return nil, err
		}
		t.parts = append(t.parts, p)
	}
	records, err := cut(h.Names, nameRecord)
	if err != nil {
		return nil, err
	}
	text, err := cut(h.Text, 1)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, errors.New("it goes on after its end")
	}
	t.names, err = readNames(records, text)
	return t, err
}

// save writes the table atomically.
func (t *Table) save(file string) error {
	text, err := t.encode()
	if err != nil {
		return err
	}
	return atomicfile.WritePrivate(file, text)
}
