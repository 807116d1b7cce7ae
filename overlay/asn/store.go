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
	"sort"

	"heddle/internal/atomicfile"
)

// A stored table is: magic; the length of the header in four bytes, big-endian as all numbers; the header, JSON; the
// records of each part; the names; and the SHA-256 of all that. It is looked up as it lies.
const magic = "heddle-asn/1\n"

type header struct {
	Parts []Source `json:"parts"`
	// Names is how many ASes have a name, and Text the length of all names in bytes.
	Names int `json:"names"`
	Text  int `json:"text"`
}

// names are records of an AS and the end of its name in text, sorted by AS.
type names struct {
	records []byte
	text    []byte
}

const nameRecord = 8

func (n names) len() int { return len(n.records) / nameRecord }

func (n names) at(i int) (as uint32, name string) {
	var start uint32
	if i > 0 {
		start = binary.BigEndian.Uint32(n.records[i*nameRecord-4:])
	}
	end := binary.BigEndian.Uint32(n.records[i*nameRecord+4:])
	return binary.BigEndian.Uint32(n.records[i*nameRecord:]), string(n.text[start:end])
}

func (n names) find(as uint32) string {
	i := sort.Search(n.len(), func(i int) bool { return binary.BigEndian.Uint32(n.records[i*nameRecord:]) >= as })
	if i < n.len() {
		if found, name := n.at(i); found == as {
			return name
		}
	}
	return ""
}

// check makes sure that at never reads beyond the text.
func (n names) check() error {
	var last uint32
	for i := range n.len() {
		end := binary.BigEndian.Uint32(n.records[i*nameRecord+4:])
		if end < last || int64(end) > int64(len(n.text)) {
			return errors.New("a name ends before it begins, or beyond the file")
		}
		last = end
	}
	return nil
}

func newNames(byAS map[uint32]string) (n names) {
	for _, as := range slices.Sorted(maps.Keys(byAS)) {
		n.text = append(n.text, byAS[as]...)
		n.records = binary.BigEndian.AppendUint32(n.records, as)
		n.records = binary.BigEndian.AppendUint32(n.records, uint32(len(n.text)))
	}
	return n
}

func (t *Table) encode() ([]byte, error) {
	head, err := json.Marshal(header{Parts: t.Sources(), Names: t.names.len(), Text: len(t.names.text)})
	if err != nil {
		return nil, err
	}
	body := head
	for _, p := range t.parts {
		body = append(body, p.data...)
	}
	body = append(body, t.names.records...)
	return seal(append(body, t.names.text...), len(head)), nil
}

// seal puts the magic and the header's length before a body, and the checksum behind.
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

// table cuts what follows the header into parts.
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
	var err error
	if t.names.records, err = cut(h.Names, nameRecord); err != nil {
		return nil, err
	}
	if t.names.text, err = cut(h.Text, 1); err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, errors.New("it goes on after its end")
	}
	return t, t.names.check()
}

// save writes the table whole, or leaves the old one.
func (t *Table) save(file string) error {
	text, err := t.encode()
	if err != nil {
		return err
	}
	return atomicfile.WritePrivate(file, text)
}
