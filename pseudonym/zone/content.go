package zone

import (
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// TTL is how long resolvers keep addresses and keys.
const TTL = 300 * time.Second

// Times in seconds. Pseudonyms live long, and gateways move seldom.
const (
	addressTTL  = uint32(TTL / time.Second)
	negativeTTL = 300
	zoneTTL     = 3600
)

// wildcard is the label of all names that are not the cloud's own.
const wildcard = "*"

// content is all records of a zone. Nobody changes it once it is made.
type content struct {
	apex  string
	sets  map[string]map[uint16][]dns.RR // by name, in lower case, and type
	names []string                       // in canonical order (RFC 4034, section 6.1), the apex first
	made  time.Time                      // by the wall clock
	published
}

func newContent(o Options, apex string, p published, now time.Time) *content {
	c := &content{apex: apex, published: p, sets: map[string]map[uint16][]dns.RR{}}
	servers, own := o.Servers, slices.Clone(o.Own)
	if len(servers) == 0 {
		servers, own = []string{"ns." + apex}, append(own, "ns")
	}
	c.add(&dns.SOA{Hdr: header(apex, dns.TypeSOA, negativeTTL), Ns: dns.Fqdn(servers[0]), Mbox: "hostmaster." + apex, Serial: uint32(now.Unix()),
		Refresh: 3600, Retry: 600, Expire: 604_800, Minttl: negativeTTL})
	for _, server := range servers {
		c.add(&dns.NS{Hdr: header(apex, dns.TypeNS, zoneTTL), Ns: dns.Fqdn(server)})
	}
	for _, label := range append(own, wildcard) {
		name := label + "." + apex
		for _, a := range o.Gateways {
			if a.Is4() {
				c.add(&dns.A{Hdr: header(name, dns.TypeA, addressTTL), A: net.IP(a.AsSlice())})
			} else {
				c.add(&dns.AAAA{Hdr: header(name, dns.TypeAAAA, addressTTL), AAAA: net.IP(a.AsSlice())})
			}
		}
		// A browser that reads it comes by TLS at once (RFC 9460, section 9.5), and hides the name (RFC 9848).
		values := []dns.SVCBKeyValue{&dns.SVCBAlpn{Alpn: []string{"h2", "http/1.1"}}}
		list := p.own
		if label == wildcard {
			list = p.wild
		}
		if len(list) > 0 {
			values = append(values, &dns.SVCBECHConfig{ECH: list})
		}
		c.add(&dns.HTTPS{SVCB: dns.SVCB{Hdr: header(name, dns.TypeHTTPS, addressTTL), Priority: 1, Target: ".", Value: values}})
	}
	c.names = slices.SortedFunc(maps.Keys(c.sets), canonical)
	return c
}

func header(name string, kind uint16, ttl uint32) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: ttl}
}

func (c *content) add(rr dns.RR) {
	h := rr.Header()
	if c.sets[h.Name] == nil {
		c.sets[h.Name] = map[uint16][]dns.RR{}
	}
	c.sets[h.Name][h.Rrtype] = append(c.sets[h.Name][h.Rrtype], rr)
}

// least returns the lowest type that a name has, but for one that changes with each answer.
func (c *content) least(owner string) uint16 {
	kinds := slices.DeleteFunc(slices.Sorted(maps.Keys(c.sets[owner])), func(kind uint16) bool { return c.changes(owner, kind) })
	if len(kinds) == 0 {
		return dns.TypeANY
	}
	return kinds[0]
}

// canonical compares names: label by label from the right (RFC 4034, section 6.1). They are in lower case.
func canonical(a, b string) int {
	x, y := dns.SplitDomainName(a), dns.SplitDomainName(b)
	slices.Reverse(x)
	slices.Reverse(y)
	return slices.Compare(x, y)
}

// before returns the last name of the zone that is not after a name.
func (c *content) before(name string) string {
	i, found := slices.BinarySearchFunc(c.names, name, canonical)
	if found {
		return name
	}
	return c.names[max(i-1, 0)]
}

// Write writes the zone for another nameserver (RFC 1035, section 5), without signatures: that one makes them with keys of its own.
func (s *Server) Write(w io.Writer) error {
	c := s.content.Load()
	if _, err := fmt.Fprintf(w, "$ORIGIN %s\n", s.apex); err != nil {
		return err
	}
	for _, name := range c.names {
		for _, kind := range slices.Sorted(maps.Keys(c.sets[name])) {
			if kind == dns.TypeNSEC || kind == dns.TypeDNSKEY || kind == dns.TypeRRSIG {
				continue
			}
			for _, rr := range c.sets[name][kind] {
				if _, err := fmt.Fprintln(w, strings.ReplaceAll(rr.String(), "\t", " ")); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
