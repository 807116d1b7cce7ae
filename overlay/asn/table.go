// Package asn maps an address to its autonomous system and country by a table on this machine, so that nobody learns what is
// looked up. [Import] makes the table from published files (CSV of ip-location-db, pfx2as of CAIDA, MMDB) and keeps the
// origin, licence and age of each part. [Open] reads the table, [Table.Lookup] queries it.
//
// Do not take an answer for a fact: a prefix may be announced by one network and used by another, and the place of a router
// is often guessed from its owner's.
package asn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"time"

	"heddle/identity"
	"heddle/path"
	"heddle/path/diversity"
)

// Kind is what a part of the table maps addresses to.
type Kind string

// The kinds.
const (
	ASN     Kind = "asn"
	Country Kind = "country"
)

// Source is the origin of one part of a table.
type Source struct {
	Kind        Kind      `json:"kind"`
	Family      int       `json:"family"`           // 4 or 6
	File        string    `json:"file"`             // name of the imported file
	Origin      string    `json:"origin,omitempty"` // as stated by the file or the importer
	Licence     string    `json:"licence,omitempty"`
	Dated       time.Time `json:"dated,omitzero"`         // when the data was made, zero if unknown
	Imported    time.Time `json:"imported"`               // when it was imported
	SHA256      string    `json:"sha256"`                 // of the imported file, in hexadecimal
	Ranges      int       `json:"ranges"`                 // address ranges
	MultiOrigin int       `json:"multi_origin,omitempty"` // prefixes announced by several ASes; the first is kept
}

// Age returns how old the data is or, without a date, how long ago it was imported.
func (s Source) Age(now time.Time) time.Duration {
	if s.Dated.IsZero() {
		return now.Sub(s.Imported)
	}
	return now.Sub(s.Dated)
}

// Entry is what the table holds about an address.
type Entry struct {
	Addr    netip.Addr   `json:"addr"`
	AS      diversity.AS `json:"as"` // 0 if unknown
	Name    string       `json:"name,omitempty"`
	First   netip.Addr   `json:"first,omitzero"` // bounds of the AS's range, zero if unknown
	Last    netip.Addr   `json:"last,omitzero"`
	Country string       `json:"country,omitempty"` // ISO 3166 code, or empty
}

// Table is a table in memory. Its zero value is empty. It is safe for concurrent use.
type Table struct {
	parts []part
	names map[uint32]string
}

// part is one kind for one family: sorted records of first address, last address and value.
type part struct {
	Source
	data []byte
}

func (p part) width() int {
	if p.Family == 4 {
		return 4
	}
	return 16
}

func (p part) record() int { return 2*p.width() + 4 }

// find returns the range that holds addr, and its value.
func (p part) find(addr netip.Addr) (first, last netip.Addr, value uint32, ok bool) {
	width, record := p.width(), p.record()
	want := addr.AsSlice()
	n := sort.Search(p.Ranges, func(i int) bool { return string(p.data[i*record:i*record+width]) > string(want) })
	if n == 0 {
		return first, last, 0, false
	}
	r := p.data[(n-1)*record : n*record]
	if string(r[width:2*width]) < string(want) {
		return first, last, 0, false
	}
	first, _ = netip.AddrFromSlice(r[:width])
	last, _ = netip.AddrFromSlice(r[width : 2*width])
	return first, last, binary.BigEndian.Uint32(r[2*width:]), true
}

// Lookup returns what is known of an address.
func (t *Table) Lookup(addr netip.Addr) Entry {
	addr = addr.Unmap().WithZone("")
	e := Entry{Addr: addr}
	for _, p := range t.parts {
		if addr.Is4() != (p.Family == 4) {
			continue
		}
		first, last, value, ok := p.find(addr)
		switch {
		case !ok:
		case p.Kind == Country:
			e.Country = string([]byte{byte(value >> 8), byte(value)})
		default:
			e.AS, e.First, e.Last = diversity.AS(value), first, last
			e.Name = t.Name(e.AS)
		}
	}
	return e
}

// Name returns the AS's name, or "" if unknown.
func (t *Table) Name(as diversity.AS) string { return t.names[uint32(as)] }

// Sources returns the origins of the table's parts.
func (t *Table) Sources() []Source {
	all := []Source{}
	for _, p := range t.parts {
		all = append(all, p.Source)
	}
	return all
}

// Has reports whether the table has a part of this kind.
func (t *Table) Has(kind Kind) bool {
	return slices.ContainsFunc(t.parts, func(p part) bool { return p.Kind == kind })
}

// FileOr returns the named file, or by default asn.table in Heddle's directory of settings.
func FileOr(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	file, err := identity.DefaultFile()
	return filepath.Join(filepath.Dir(file), "asn.table"), err
}

// OpenOr opens the table of [FileOr].
func OpenOr(named string) (*Table, error) {
	file, err := FileOr(named)
	if err != nil {
		return nil, err
	}
	return Open(file)
}

// Open reads a table. If there is no file, the error wraps [fs.ErrNotExist].
func Open(file string) (*Table, error) {
	what := "table of ASes " + file
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &path.Error{What: what, Why: "there is none yet", Err: fs.ErrNotExist, Hint: "`heddle asn import FILE` makes it; `heddle asn import --help` says from what"}
	}
	if err != nil {
		return nil, &path.Error{What: what, Why: "cannot be read", Err: err}
	}
	t, err := decode(text)
	if err != nil {
		return nil, &path.Error{What: what, Why: fmt.Sprintf("it is damaged: %v", err), Hint: "remove it, and import again"}
	}
	return t, nil
}
