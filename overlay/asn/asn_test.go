package asn

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/path/diversity"
)

var now = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// write makes a file with this text.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// imported is a table of one file, read again from the disk.
func imported(t *testing.T, name, text string) *Table {
	t.Helper()
	table := filepath.Join(t.TempDir(), "asn.table")
	if _, err := Import(table, []string{write(t, t.TempDir(), name, text)}, ImportOptions{Now: now}); err != nil {
		t.Fatal(err)
	}
	back, err := Open(table)
	if err != nil {
		t.Fatal(err)
	}
	return back
}

func TestFormats(t *testing.T) {
	mmdb := func(name string) string {
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, c := range []struct {
		name, text string
		want       []string // address, AS, name, country
	}{
		{"asn-ipv4.csv", "1.0.0.0,1.0.0.255,13335,\"Cloudflare, Inc.\"\n1.0.4.0,1.0.7.255,38803,Gtelecom Pty Ltd\n", []string{
			"1.0.0.0 13335 Cloudflare, Inc. ", "1.0.0.255 13335 Cloudflare, Inc. ", "1.0.1.0 0  ", "0.255.255.255 0  ",
			"1.0.7.255 38803 Gtelecom Pty Ltd ", "::ffff:1.0.4.9 38803 Gtelecom Pty Ltd ", "255.255.255.255 0  ", "2001:db8:: 0  "}},
		{"asn-ipv4-num.csv", "16777216,16777471,13335,x\n", []string{"1.0.0.7 13335 x ", "1.0.1.0 0  "}},
		{"asn-ipv6.csv", "start,end,asn,name\n2001::,2001::ffff:ffff:ffff:ffff:ffff:ffff,6939,Hurricane\n", []string{"2001::1 6939 Hurricane ", "2002:: 0  ", "1.2.3.4 0  "}},
		{"asn-ipv6-num.csv", "42540488161975842760550356425300246528,42540488241204005274814694018844196863,6939,H\n", []string{"2001::1 6939 H "}},
		{"ends.csv", "0.0.0.0,255.255.255.255,1,a\n255.0.0.0,255.255.255.255,2,b\n", []string{"254.255.255.255 1 a ", "255.255.255.255 2 b ", "0.0.0.0 1 a "}},
		{"holes.csv", "10.0.0.0,10.255.255.255,1,a\n10.5.0.0,10.5.255.255,0,\n", []string{"10.4.255.255 1 a ", "10.5.1.1 0  ", "10.6.0.0 1 a "}},
		{"country.csv", "1.0.0.0,1.0.0.255,AU\n", []string{"1.0.0.1 0  AU"}},
		{"routeviews-rv2-20260617-1200.pfx2as", "10.0.0.0\t8\t1\n10.5.0.0\t16\t2_3\n10.5.6.0\t24\t1\n2001:db8::\t32\t4,5\n", []string{
			"10.1.1.1 1  ", "10.5.1.1 2  ", "10.5.6.7 1  ", "10.5.7.0 2  ", "10.255.255.255 1  ", "11.0.0.0 0  ", "2001:db8::1 4  "}},
		{"spaces.pfx2as", "# by hand\n10.0.0.0  8 1\n10.5.0.0 16   2\n", []string{"10.1.1.1 1  ", "10.5.1.1 2  "}},
		{"asn.mmdb", mmdb("asn.mmdb"), []string{"192.0.2.7 64496 Example One ", "198.51.100.127 64497 Example Two ", "198.51.100.128 0  ",
			"2001:db8::1 64498 Example Three ", "2001:db8:8000:: 0  "}},
		{"country.mmdb", mmdb("country.mmdb"), []string{"192.0.2.7 0  PT", "2001:db8:: 0  JP", "198.51.100.1 0  "}},
		{"hostile.csv", "1.0.0.0,1.0.0.255,5,\"a\x1b[31m\xff\nb\"\n", []string{"1.0.0.0 5 a?[31m?b "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := imported(t, c.name, c.text)
			for _, want := range c.want {
				addr, _, _ := strings.Cut(want, " ")
				e := table.Lookup(netip.MustParseAddr(addr))
				if got := fmt.Sprintf("%s %d %s %s", addr, e.AS, e.Name, e.Country); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
				if e.AS != 0 && (e.Addr.Less(e.First) || e.Last.Less(e.Addr)) {
					t.Errorf("%s is not in %s to %s", addr, e.First, e.Last)
				}
			}
		})
	}
}

func TestOriginLicenceAndAgeAreKept(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "package.json", `{"name":"@ip-location-db/asn","version":"2.3.2026061719","license":"SEE LICENSE IN A (CC-BY-4.0)"}`)
	csv := write(t, dir, "asn-ipv4.csv", "1.0.0.0,1.0.0.255,1,one\n")
	pfx := write(t, dir, "routeviews-rv6-20260101-1200.pfx2as", "2001:db8::\t32\t2_3\n")
	countries := write(t, dir, "other.csv", "1.0.0.0,1.0.0.255,AU\n")
	table := filepath.Join(dir, "new", "asn.table")
	if _, err := Import(table, []string{csv, pfx}, ImportOptions{Now: now}); err != nil {
		t.Fatal(err)
	}
	later := now.Add(time.Hour)
	if _, err := Import(table, []string{countries}, ImportOptions{Now: later, Origin: "a friend", Licence: "CC0-1.0"}); err != nil {
		t.Fatal(err)
	}
	both, err := Open(table)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range both.Sources() {
		got = append(got, fmt.Sprintf("%s %d %s; %s; %s; %s; %d %d", s.Kind, s.Family, s.File, s.Origin, s.Licence, s.Age(later), s.Ranges, s.MultiOrigin))
	}
	want := []string{
		"asn 4 asn-ipv4.csv; @ip-location-db/asn 2.3.2026061719; SEE LICENSE IN A (CC-BY-4.0); 349h0m0s; 1 0",
		"asn 6 routeviews-rv6-20260101-1200.pfx2as; CAIDA pfx2as, from RouteViews; ; 4357h0m0s; 1 1",
		"country 4 other.csv; a friend; CC0-1.0; 0s; 1 0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if e := both.Lookup(netip.MustParseAddr("1.0.0.1")); e.AS != 1 || e.Name != "one" || e.Country != "AU" {
		t.Errorf("%+v", e)
	}
	// The same kind again replaces what was there.
	if _, err := Import(table, []string{write(t, dir, "newer.csv", "9.0.0.0,9.0.0.255,7,seven\n")}, ImportOptions{Now: later}); err != nil {
		t.Fatal(err)
	}
	if both, err = Open(table); err != nil || both.Lookup(netip.MustParseAddr("1.0.0.1")).AS != 0 || both.Lookup(netip.MustParseAddr("9.0.0.1")).AS != 7 || len(both.Sources()) != 3 {
		t.Errorf("%+v, %v", both.Sources(), err)
	}
}

func TestBadFilesLeaveTheTable(t *testing.T) {
	dir := t.TempDir()
	table := filepath.Join(dir, "asn.table")
	good := write(t, dir, "good.csv", "1.0.0.0,1.0.0.255,1,one\n")
	if _, err := Import(table, []string{good}, ImportOptions{Now: now}); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty":            "",
		"words":            "hello",
		"a web page":       "<html>\n<body>,,,\n",
		"line 2":           "1.0.0.0,1.0.0.255,1\n1.0.0.0,x,1\n",
		"backwards":        "1.0.0.255,1.0.0.0,1\n",
		"two families":     "1.0.0.0,2001::,1\n",
		"no AS":            "1.0.0.0,1.0.0.255,Australia\n",
		"both":             "1.0.0.0,1.0.0.255,1\n2.0.0.0,2.0.0.255,AU\n",
		"too large":        "1.0.0.0,1.0.0.255,4294967296\n",
		"a long number":    strings.Repeat("9", 1000) + ",1,1\n",
		"prefix":           "10.0.0.0\t33\t1\n",
		"two columns":      "10.0.0.0\t8\t1\n10.0.0.0\t8\n",
		"broken gzip":      "\x1f\x8bxyz",
		"broken MMDB":      "\xab\xcd\xefMaxMind.com",
		"all unannounced":  "1.0.0.0,1.0.0.255,0\n",
		"headings, twice,": "a,b,c\na,b,c\n",
	} {
		if _, err := Import(table, []string{good, write(t, dir, "bad.csv", text)}, ImportOptions{Now: now}); err == nil {
			t.Errorf("%s: no error", name)
		}
		if after, err := os.ReadFile(table); err != nil || string(after) != string(before) {
			t.Fatalf("%s: the table has changed, %v", name, err)
		}
	}
	if _, err := Import(table, []string{good, good}, ImportOptions{Now: now}); err == nil || !strings.Contains(err.Error(), "same kind") {
		t.Errorf("the same twice: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no table: %v", err)
	}
	before[len(magic)+20] ^= 1
	if err := os.WriteFile(table, before, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(table); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("a bit turned: %v", err)
	}
}

func TestPackedFile(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "x.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	packed := gzip.NewWriter(f)
	if _, err := packed.Write([]byte("1.0.0.0,1.0.0.255,1,one\n")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(packed.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	table, err := Import(filepath.Join(dir, "t"), []string{f.Name()}, ImportOptions{Now: now})
	if err != nil || table.Lookup(netip.MustParseAddr("1.0.0.1")).Name != "one" {
		t.Errorf("%+v, %v", table, err)
	}
}

// Nested random prefixes against the longest match, address by address.
func TestLongestPrefixCounts(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for range 300 {
		var spans []span
		var prefixes []netip.Prefix
		for i := range 1 + r.IntN(12) {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{255, 255, 255, byte(r.IntN(256))}), 24+r.IntN(9)).Masked()
			if slices.Contains(prefixes, p) {
				continue
			}
			prefixes = append(prefixes, p)
			spans = append(spans, span{p.Addr(), lastOf(p), uint32(i % 4)})
		}
		want := map[netip.Addr]uint32{}
		for bits := 24; bits <= 32; bits++ {
			for _, s := range spans {
				for a := s.first; lastOf(netip.PrefixFrom(s.first, bits).Masked()) == s.last && a.IsValid() && !s.last.Less(a); a = a.Next() {
					want[a] = s.value
				}
			}
		}
		p := part{Source: Source{Family: 4}}
		p.data, p.Ranges = records(flatten(slices.Clone(spans)))
		for a := netip.MustParseAddr("255.255.255.0"); a.IsValid(); a = a.Next() {
			if _, _, got, _ := p.find(a); got != want[a] {
				t.Fatalf("seed %d: %v in %v: %d, want %d", seed, a, spans, got, want[a])
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, name := range []string{"asn.mmdb", "country.mmdb"} {
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("1.0.0.0,1.0.0.255,13335,\"Cloudflare, Inc.\"\n"))
	f.Add([]byte("10.0.0.0\t8\t1_2\n2001:db8::\t32\t4,5\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := read(text)
		if err != nil {
			return
		}
		for family, spans := range c.spans {
			var last netip.Addr
			for i, s := range flatten(spans) {
				if s.last.Less(s.first) || i > 0 && !last.Less(s.first) || s.first.Is4() != (family == 4) {
					t.Fatalf("%v after %v", s, last)
				}
				last = s.last
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	p := part{Source: Source{Kind: ASN, Family: 4}}
	p.data, p.Ranges = records([]span{{netip.MustParseAddr("1.0.0.0"), netip.MustParseAddr("1.0.0.9"), 5}})
	whole := Table{parts: []part{p}, names: map[uint32]string{5: "five"}}
	text, err := whole.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text[len(magic)+4:len(text)-32], 200)
	f.Fuzz(func(t *testing.T, text []byte, length int) {
		// The checksum keeps out accidents, not people: what is behind it must hold by itself.
		sealed := seal(text, length)
		table, err := decode(sealed)
		if err != nil {
			return
		}
		for _, a := range []string{"1.0.0.5", "255.255.255.255", "2001:db8::1"} {
			table.Lookup(netip.MustParseAddr(a))
		}
		table.Name(diversity.AS(5))
	})
}
