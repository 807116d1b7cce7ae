package asn

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"heddle/path"
)

// ImportOptions supply what a file does not say.
type ImportOptions struct {
	Origin, Licence string    // kept with the table; empty: from the file or its package
	Dated           time.Time // when the data was made; zero: from the file
	Now             time.Time // time of the import
}

// maxBytes bounds an unpacked file: ten times what the whole Internet takes today.
const maxBytes = 512 << 20

// maxRanges bounds what a database may expand to. The Internet announces some 1.3 million prefixes.
const maxRanges = 8_000_000

// contents is what a file holds.
type contents struct {
	kind        Kind
	spans       map[int][]span // by family
	names       map[uint32]string
	origin      string
	licence     string
	dated       time.Time
	multiOrigin int
}

// Import reads files into the table, which it creates if absent. It replaces parts of the same kind and family and keeps the
// others. On an error the table stays as it was.
//
// A file is CSV of ip-location-db (first address, last address, then AS and name, or country), pfx2as of CAIDA (prefix,
// length, AS), or a MaxMind DB. It may be compressed by gzip.
func Import(table string, files []string, o ImportOptions) (*Table, error) {
	t, err := Open(table)
	if errors.Is(err, fs.ErrNotExist) {
		t, err = &Table{}, nil
	}
	if err != nil {
		return nil, err
	}
	names := map[uint32]string{}
	maps.Copy(names, t.names)
	var added []part
	for _, file := range files {
		parts, err := importFile(file, o, names)
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			if i := slices.IndexFunc(added, p.replaces); i >= 0 {
				return nil, &path.Error{What: "import " + file, Why: fmt.Sprintf("%s is of the same kind, %s for IPv%d", added[i].File, p.Kind, p.Family), Hint: "import one of them"}
			}
			added = append(added, p)
		}
	}
	t.parts = slices.DeleteFunc(t.parts, func(p part) bool { return slices.ContainsFunc(added, p.replaces) })
	t.parts = append(t.parts, added...)
	t.names = names
	if err := t.save(table); err != nil {
		return nil, &path.Error{What: "table of ASes " + table, Why: "cannot be written", Err: err}
	}
	return t, nil
}

func (p part) replaces(q part) bool { return p.Kind == q.Kind && p.Family == q.Family }

func importFile(file string, o ImportOptions, names map[uint32]string) ([]part, error) {
	fail := func(err error, hint string) ([]part, error) {
		return nil, &path.Error{What: "import " + file, Why: "nothing was taken from it", Err: err, Hint: hint}
	}
	packed, err := os.ReadFile(file)
	if err != nil {
		return fail(err, "")
	}
	text, err := unpack(packed)
	if err != nil {
		return fail(err, "")
	}
	c, err := read(text)
	if err != nil {
		return fail(err, "it must be CSV of ip-location-db, pfx2as or MMDB; see `heddle asn import --help`")
	}
	c.fromName(file)
	if c.origin == "" && o.Origin == "" {
		c.fromPackage(file)
	}
	sum := sha256.Sum256(packed)
	if !o.Dated.IsZero() {
		c.dated = o.Dated
	}
	source := Source{Kind: c.kind, File: filepath.Base(file), Origin: cmp.Or(o.Origin, c.origin), Licence: cmp.Or(o.Licence, c.licence),
		Dated: c.dated.UTC(), Imported: o.Now.UTC(), SHA256: hex.EncodeToString(sum[:]), MultiOrigin: c.multiOrigin}
	var parts []part
	for _, family := range []int{4, 6} {
		p := part{Source: source}
		p.Family = family
		if p.data, p.Ranges = records(flatten(c.spans[family])); p.Ranges > 0 {
			parts = append(parts, p)
		}
	}
	if len(parts) == 0 {
		return fail(errors.New("it holds no range of addresses"), "")
	}
	maps.Copy(names, c.names)
	return parts, nil
}

func unpack(text []byte) ([]byte, error) {
	if !bytes.HasPrefix(text, []byte{0x1f, 0x8b}) {
		return text, nil
	}
	packed, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	text, err = io.ReadAll(io.LimitReader(packed, maxBytes+1))
	if err == nil && len(text) > maxBytes {
		err = fmt.Errorf("unpacked it has more than %d MiB", maxBytes>>20)
	}
	return text, err
}
