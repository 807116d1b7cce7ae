package asn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/oschwald/maxminddb-golang/v2"
)

// mmdbRecord has the fields of the common databases: GeoLite2-ASN, GeoLite2-Country and those of ip-location-db.
type mmdbRecord struct {
	AS           uint32 `maxminddb:"autonomous_system_number"`
	Organization string `maxminddb:"autonomous_system_organization"`
	CountryCode  string `maxminddb:"country_code"`
	Country      struct {
		Code string `maxminddb:"iso_code"`
	} `maxminddb:"country"`
}

// readMMDB reads a MaxMind DB of ASes or of countries.
func readMMDB(text []byte) (*contents, error) {
	c := newContents()
	db, err := maxminddb.OpenBytes(text)
	if err != nil {
		return c, err
	}
	defer db.Close()
	if err := checkTree(text, db.Metadata); err != nil {
		return c, err
	}
	c.origin, c.dated = db.Metadata.DatabaseType, time.Unix(int64(db.Metadata.BuildEpoch), 0)
	if about := db.Metadata.Description["en"]; about != "" {
		c.origin += ": " + about
	}
	for network := range db.Networks() {
		var r mmdbRecord
		if err := network.Decode(&r); err != nil {
			return c, err
		}
		c.network(network.Prefix(), r)
	}
	if c.kind == "" {
		return c, fmt.Errorf("a database of type %q has neither ASes nor countries", db.Metadata.DatabaseType)
	}
	return c, nil
}

func (c *contents) network(p netip.Prefix, r mmdbRecord) {
	if r.Country.Code == "" {
		r.Country.Code = r.CountryCode
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	country, ok := countryCode(r.Country.Code)
	switch { // the first network decides for a database with both
	case r.AS != 0 && c.kind != Country:
		c.kind = ASN
		c.add(p.Addr(), lastOf(p), r.AS)
		c.name(r.AS, r.Organization)
	case ok && c.kind != ASN:
		c.kind = Country
		c.add(p.Addr(), lastOf(p), country)
	}
}

// checkTree checks that the search tree leads to at most maxRanges networks. Nodes may be shared, as IPv4's are, so a small
// hostile tree may expand without end (MaxMind DB file format 2.0, "Binary Search Tree Section").
func checkTree(text []byte, about maxminddb.Metadata) error {
	count, size := int(about.NodeCount), int(about.RecordSize)
	if size != 24 && size != 28 && size != 32 || count < 0 || count > len(text)/(size/4) {
		return fmt.Errorf("%d nodes of %d bits do not fit into it", count, size)
	}
	const open = -1
	leaves := make([]int, count) // 0 before a node is visited
	var visit func(node, depth int) (int, error)
	visit = func(node, depth int) (int, error) {
		switch {
		case node >= count:
			return 1, nil
		case leaves[node] == open || depth > 128:
			return 0, errors.New("its tree leads back into itself")
		case leaves[node] > 0:
			return leaves[node], nil
		}
		leaves[node] = open
		sum := 0
		for side := range 2 {
			n, err := visit(child(text, size, node, side), depth+1)
			if err != nil {
				return 0, err
			}
			sum += n
		}
		leaves[node] = min(sum, maxRanges+1)
		return leaves[node], nil
	}
	n, err := visit(0, 0)
	if err == nil && n > maxRanges {
		err = fmt.Errorf("it has more than %d networks", maxRanges)
	}
	return err
}

// child reads one of a node's two records.
func child(text []byte, size, node, side int) int {
	b := text[node*size/4:]
	switch size {
	case 24:
		b = b[side*3:]
		return int(b[0])<<16 | int(b[1])<<8 | int(b[2])
	case 28: // the middle byte has the upper four bits of both
		low := int(b[side*4])<<16 | int(b[side*4+1])<<8 | int(b[side*4+2])
		if side == 0 {
			return int(b[3]>>4)<<24 | low
		}
		return int(b[3]&15)<<24 | low
	}
	return int(binary.BigEndian.Uint32(b[side*4:]))
}
