package zone

import (
	"net"
	"time"

	"github.com/miekg/dns"
)

// changes reports whether each answer about a name and type has an address of its own: those about names of the wildcard do.
func (c *content) changes(name string, kind uint16) bool {
	if !c.fresh || kind != dns.TypeAAAA {
		return false
	}
	_, wild := c.owner(name)
	return wild || name == "*."+c.apex
}

// fresh answers with an address that is for this answer alone. It is signed as a record of the name itself: a record of the wildcard would
// lead people to each other's sites, as a resolver may give it to all who ask for names that it knows to be the wildcard's (RFC 8198, section
// 5.3). So the wildcard itself has none.
func (s *Server) fresh(m *dns.Msg, name string, secure bool) {
	if name == "*."+s.apex {
		m.Rcode = dns.RcodeRefused
		return
	}
	a, err := s.o.Fresh(name)
	set := []dns.RR{&dns.AAAA{Hdr: header(m.Question[0].Name, dns.TypeAAAA, addressTTL), AAAA: net.IP(a.AsSlice())}}
	if err == nil && secure && s.o.Key != nil {
		var sig *dns.RRSIG
		if sig, err = signature(s.apex, s.public, s.o.Key, set, time.Now()); err == nil {
			set = append(set, sig)
		}
	}
	if err != nil {
		s.o.Log.Error("a name has no address", "error", err)
		m.Rcode = dns.RcodeServerFailure
		return
	}
	m.Answer = set
}
