// Package asn says which autonomous system an address belongs to, and in which country it is, from a table on this
// machine: nobody is asked, so nobody learns what was looked up.
//
// [Import] makes the table from files that others publish: CSV of ip-location-db, pfx2as of CAIDA, MMDB. It keeps
// where each part came from, under which licence and how old it is. [Open] reads the table, [Table.Lookup] asks it.
//
// Do not take it for a fact: a prefix may be announced by one network and used by another, and where a router stands is
// often guessed from where its owner is.
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

// Kind is what a part of the table says of an address.
type Kind string

// The kinds.
const (
	ASN     Kind = "asn"
	Country Kind = "country"
)

// Source says where one part of a table came from.
type Source struct {
	Kind   Kind `json:"kind"`
	Family int  `json:"family"` // 4 or 6
	// File is the name that the imported file had.
	File string `json:"file"`
	// Origin and Licence are as the file says, or whoever imported it.
	Origin  string `json:"origin,omitempty"`
	Licence string `json:"licence,omitempty"`
	// Dated is when the data was made, zero where nothing tells; Imported is when it came here.
	Dated    time.Time `json:"dated,omitzero"`
	Imported time.Time `json:"imported"`
	// SHA256 is that of the imported file, in hexadecimal digits.
	SHA256 string `json:"sha256"`
	// Ranges is how many ranges of addresses there are.
	Ranges int `json:"ranges"`
	// MultiOrigin is how many prefixes were announced by several ASes, of which the table keeps the first.
	MultiOrigin int `json:"multi_origin,omitempty"`
}

// Age is how old the data is, or how long it has been here where it has no date.
func (s Source) Age(now time.Time) time.Duration {
	if s.Dated.IsZero() {
		return now.Sub(s.Imported)
	}
	return now.Sub(s.Dated)
}

// Entry is what the table knows of an address.
type Entry struct {
	Addr netip.Addr `json:"addr"`
	// AS is 0, and First and Last are zero, where no AS is known.
	AS    diversity.AS `json:"as"`
	Name  string       `json:"name,omitempty"`
	First netip.Addr   `json:"first,omitzero"`
	Last  netip.Addr   `json:"last,omitzero"`
	// Country is an ISO 3166 code, or empty.
	Country string `json:"country,omitempty"`
}

// Table is a table in memory. Its zero value is empty. It may be used by several goroutines.
type Table struct {
	parts []part
	names map[uint32]string
}

// part is one kind for one family: records of first address, last address and value, sorted.
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

// find gives the range that holds addr, and its value.
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

// Lookup says what is known of an address.
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

// Name is the AS's name, or empty where it is not known.
func (t *Table) Name(as diversity.AS) string { return t.names[uint32(as)] }

// Sources say where the table's parts came from.
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

// FileOr gives the file that was named, or this user's where none was: asn.table in Heddle's directory of settings.
func FileOr(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	file, err := identity.DefaultFile()
	return filepath.Join(filepath.Dir(file), "asn.table"), err
}

// OpenOr is [Open] of [FileOr].
func OpenOr(named string) (*Table, error) {
	file, err := FileOr(named)
	if err != nil {
		return nil, err
	}
	return Open(file)
}

// Open reads a table. Without a file the error wraps [fs.ErrNotExist].
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
