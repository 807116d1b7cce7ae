// Package zone is the authoritative nameserver of a cloud's zone. Each name that may be a pseudonym has the gateways' addresses,
// whether anybody has it or not: so answers tell nothing, and need no database (requirement R2 of the paper).
package zone

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"heddle/internal/errhint"
	"heddle/pseudonym"
)

// Options configure a nameserver.
type Options struct {
	Zone     pseudonym.Zone
	Gateways []netip.Addr // of all pseudonyms
	Own      []string     // the cloud's own labels at the gateways, such as store
	Servers  []string     // names of nameservers; ns.ZONE if empty, which is at the gateways
	Serial   uint32
}

// Times in seconds. Pseudonyms live long, and gateways move seldom.
const (
	addressTTL  = 300
	negativeTTL = 300
	zoneTTL     = 3600
)

// Server answers for one zone.
type Server struct {
	o    Options
	apex string // with a dot at the end
	own  map[string]bool
}

// New returns a nameserver.
func New(o Options) (*Server, error) {
	if len(o.Gateways) == 0 {
		return nil, &errhint.Error{What: "the zone " + string(o.Zone), Why: "there is no address of a gateway", Hint: "set gateways = [\"192.0.2.1\"]"}
	}
	s := &Server{o: o, apex: dns.Fqdn(string(o.Zone)), own: map[string]bool{}}
	own := o.Own
	if len(o.Servers) == 0 {
		s.o.Servers = []string{"ns." + s.apex}
		own = append(own[:len(own):len(own)], "ns")
	}
	for _, label := range own {
		s.own[label] = true
	}
	return s, nil
}

// ServeDNS implements [dns.Handler].
func (s *Server) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	_ = w.WriteMsg(s.Answer(q))
}

// Answer returns the answer to a question.
func (s *Server) Answer(q *dns.Msg) *dns.Msg {
	m := new(dns.Msg)
	m.SetReply(q)
	m.Compress = true
	if opt := q.IsEdns0(); opt != nil {
		m.SetEdns0(1232, false)
		if opt.Version() != 0 {
			m.Rcode = dns.RcodeBadVers
			return m
		}
	}
	if q.Opcode != dns.OpcodeQuery || len(q.Question) != 1 || q.Question[0].Qclass != dns.ClassINET {
		m.Rcode = dns.RcodeNotImplemented
		return m
	}
	name := strings.ToLower(q.Question[0].Name)
	if name != s.apex && !strings.HasSuffix(name, "."+s.apex) {
		m.Rcode = dns.RcodeRefused
		return m
	}
	m.Authoritative = true
	switch kind := q.Question[0].Qtype; {
	case name == s.apex:
		s.answerApex(m, kind)
	case s.own[strings.TrimSuffix(name, "."+s.apex)], s.isPseudonym(name):
		m.Answer = s.addresses(q.Question[0].Name, kind)
	default:
		m.Rcode = dns.RcodeNameError
	}
	if len(m.Answer) == 0 {
		m.Ns = append(m.Ns, s.soa())
	}
	return m
}

func (s *Server) isPseudonym(name string) bool {
	_, ok := s.o.Zone.Label(name)
	return ok
}

func (s *Server) answerApex(m *dns.Msg, kind uint16) {
	if kind == dns.TypeSOA {
		m.Answer = append(m.Answer, s.soa())
	}
	if kind == dns.TypeNS {
		for _, server := range s.o.Servers {
			m.Answer = append(m.Answer, &dns.NS{Hdr: header(s.apex, dns.TypeNS, zoneTTL), Ns: dns.Fqdn(server)})
		}
	}
}

// addresses returns those of the gateways, in random order.
func (s *Server) addresses(name string, kind uint16) (all []dns.RR) {
	for _, i := range rand.Perm(len(s.o.Gateways)) {
		a := s.o.Gateways[i]
		switch {
		case a.Is4() && kind == dns.TypeA:
			all = append(all, &dns.A{Hdr: header(name, dns.TypeA, addressTTL), A: net.IP(a.AsSlice())})
		case a.Is6() && kind == dns.TypeAAAA:
			all = append(all, &dns.AAAA{Hdr: header(name, dns.TypeAAAA, addressTTL), AAAA: net.IP(a.AsSlice())})
		}
	}
	return all
}

func header(name string, kind uint16, ttl uint32) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: ttl}
}

func (s *Server) soa() dns.RR {
	return &dns.SOA{Hdr: header(s.apex, dns.TypeSOA, negativeTTL), Ns: dns.Fqdn(s.o.Servers[0]), Mbox: "hostmaster." + s.apex, Serial: s.o.Serial,
		Refresh: 3600, Retry: 600, Expire: 604_800, Minttl: negativeTTL}
}

// queryFor bounds how long a connection may be silent.
const queryFor = 5 * time.Second

// Serve answers on a socket and a listener until ctx ends.
func (s *Server) Serve(ctx context.Context, packets net.PacketConn, streams net.Listener) error {
	udp := &dns.Server{PacketConn: packets, Handler: s}
	tcp := &dns.Server{Listener: streams, Handler: s, ReadTimeout: queryFor, WriteTimeout: queryFor, IdleTimeout: func() time.Duration { return queryFor }, MaxTCPQueries: 128}
	ended := make(chan error, 2)
	for _, one := range []*dns.Server{udp, tcp} {
		go func() { ended <- one.ActivateAndServe() }()
	}
	var err error
	left := 2
	select {
	case <-ctx.Done():
	case err = <-ended:
		left--
	}
	packets.Close()
	streams.Close()
	for range left {
		<-ended
	}
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(errors.New("the nameserver ended"), err)
}
