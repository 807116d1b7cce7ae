package asn

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"heddle/internal/text"
	"heddle/path/diversity"
)

// read recognizes the format by the content.
func read(text []byte) (*contents, error) {
	if bytes.Contains(text[max(0, len(text)-128<<10):], []byte("\xab\xcd\xefMaxMind.com")) {
		return readMMDB(text)
	}
	for line := range bytes.Lines(text) {
		fields := strings.Fields(string(line))
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) == 3 && !strings.Contains(fields[0], ",") {
			c := newContents()
			c.kind, c.origin = ASN, "CAIDA pfx2as, from RouteViews"
			between := '\t'
			if !bytes.ContainsRune(line, between) {
				between = ' '
			}
			return c, readLines(text, between, c.prefix)
		}
		break
	}
	c := newContents()
	return c, readLines(text, ',', c.row)
}

func newContents() *contents {
	return &contents{spans: map[int][]span{}, names: map[uint32]string{}}
}

func (c *contents) add(first, last netip.Addr, value uint32) {
	family := 6
	if first.Is4() {
		family = 4
	}
	c.spans[family] = append(c.spans[family], span{first, last, value})
}

// ofKind records the kind of a line. It refuses a file of two kinds.
func (c *contents) ofKind(k Kind) error {
	if c.kind != "" && c.kind != k {
		return fmt.Errorf("it holds both %s and %s", c.kind, k)
	}
	c.kind = k
	return nil
}

// readLines reads lines of fields, and skips one heading line.
func readLines(text []byte, between rune, row func(fields []string) error) error {
	lines := csv.NewReader(bytes.NewReader(text))
	lines.Comma, lines.Comment, lines.FieldsPerRecord = between, '#', -1
	lines.LazyQuotes, lines.ReuseRecord, lines.TrimLeadingSpace = true, true, true
	for first := true; ; first = false {
		fields, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = row(fields)
		}
		if err != nil && !(first && headings(fields)) {
			at, _ := lines.FieldPos(0)
			return fmt.Errorf("line %d: %w", at, err)
		}
	}
}

// headings reports whether a line has words in place of addresses.
func headings(fields []string) bool {
	return len(fields) >= 3 && strings.Trim(strings.ToLower(fields[0]), "abcdefghijklmnopqrstuvwxyz_ ") == ""
}

// row reads first address, last address, AS and name; or first address, last address and country.
func (c *contents) row(fields []string) error {
	if len(fields) < 3 {
		return fmt.Errorf("%d columns, and there must be three or more", len(fields))
	}
	first, err := address(fields[0])
	if err != nil {
		return err
	}
	last, err := address(fields[1])
	if err != nil {
		return err
	}
	if first.Is4() != last.Is4() || last.Less(first) {
		return fmt.Errorf("%s to %s is no range", first, last)
	}
	if country, ok := countryCode(fields[2]); ok {
		c.add(first, last, country)
		return c.ofKind(Country)
	}
	if fields[2] == "0" { // not announced
		c.add(first, last, 0)
		return c.ofKind(ASN)
	}
	as, err := diversity.ParseAS(fields[2])
	if err != nil {
		return fmt.Errorf("%q is neither an AS nor a country of two letters", fields[2])
	}
	c.add(first, last, uint32(as))
	if len(fields) > 3 {
		c.name(uint32(as), fields[3])
	}
	return c.ofKind(ASN)
}

// name keeps the first name of an AS, without characters that could confuse a terminal.
func (c *contents) name(as uint32, name string) {
	if _, known := c.names[as]; known || name == "" {
		return
	}
	name = strings.ToValidUTF8(name[:min(len(name), 200)], "")
	c.names[as] = strings.Clone(text.Printable(name)) // a substring would keep the whole line in memory
}

// countryCode packs two capital letters.
func countryCode(text string) (uint32, bool) {
	if len(text) != 2 || text[0] < 'A' || text[0] > 'Z' || text[1] < 'A' || text[1] > 'Z' {
		return 0, false
	}
	return uint32(text[0])<<8 | uint32(text[1]), true
}

// address reads an address or a whole number, which below 2^32 is IPv4.
func address(text string) (netip.Addr, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return a.Unmap(), nil
	}
	n, ok := new(big.Int).SetString(text[:min(len(text), 50)], 10)
	if !ok || n.Sign() < 0 || n.BitLen() > 128 || text[0] == '+' {
		return netip.Addr{}, fmt.Errorf("%.80q is no address", text)
	}
	raw := n.FillBytes(make([]byte, 16))
	if n.BitLen() <= 32 {
		raw = raw[12:]
	}
	a, _ := netip.AddrFromSlice(raw)
	return a.Unmap(), nil
}

// prefix reads prefix, length and AS. Of several origins (1_2) and sets (1,2) it keeps the first, which CAIDA saw most.
func (c *contents) prefix(fields []string) error {
	if len(fields) != 3 {
		return fmt.Errorf("%d columns instead of prefix, length and AS", len(fields))
	}
	p, err := netip.ParsePrefix(fields[0] + "/" + fields[1])
	if err != nil {
		return err
	}
	origin, _, several := strings.Cut(strings.ReplaceAll(fields[2], ",", "_"), "_")
	as, err := diversity.ParseAS(origin)
	if err != nil {
		return err
	}
	if several {
		c.multiOrigin++
	}
	p = p.Masked()
	c.add(p.Addr(), lastOf(p), uint32(as))
	return nil
}

// lastOf returns the last address of a masked prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

var (
	pfx2asDate  = regexp.MustCompile(`^routeviews-rv[26]-(\d{8})-\d{4}\.pfx2as`)
	versionDate = regexp.MustCompile(`\.(20\d{6})`)
)

// fromName takes the date from CAIDA's file name.
func (c *contents) fromName(file string) {
	if m := pfx2asDate.FindStringSubmatch(filepath.Base(file)); m != nil {
		c.dated, _ = time.Parse("20060102", m[1])
	}
}

// fromPackage takes origin, licence and date from the ip-location-db npm package around the file.
func (c *contents) fromPackage(file string) {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(file), "package.json"))
	if err != nil {
		return
	}
	var about struct{ Name, Version, License string }
	if json.Unmarshal(text, &about) != nil || !strings.Contains(about.Name, "ip-location-db") {
		return
	}
	c.origin, c.licence = about.Name+" "+about.Version, about.License
	if m := versionDate.FindStringSubmatch(about.Version); m != nil {
		c.dated, _ = time.Parse("20060102", m[1])
	}
}
