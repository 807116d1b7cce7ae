// Package zone is the authoritative nameserver of a cloud's zone. All pseudonyms are one wildcard with the gateways' addresses, so
// answers tell nothing about a name, and need no database (requirement R2 of the paper). Or each answer has a pseudo-address of its own, which
// looks random whether the name is anybody's or not.
package zone

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"heddle/internal/errhint"
	"heddle/internal/netutil"
	"heddle/pseudonym"
)

// Options configure a nameserver.
type Options struct {
	Zone     pseudonym.Zone
	Gateways []netip.Addr      // of all pseudonyms
	Own      []string          // the cloud's own labels at the gateways, such as store
	Servers  []string          // names of nameservers; ns.ZONE if empty, which is at the gateways
	Key      *ecdsa.PrivateKey // signs the zone (DNSSEC); may be nil
	// Fresh returns an address of IPv6 for one answer about a name of the wildcard, if such answers are published. It is asked about all
	// names, whether anybody has them or not.
	Fresh   func(name string) (netip.Addr, error)
	Counter *Counter // of answers; may be nil
	Log     *slog.Logger
}

// Server answers for one zone.
type Server struct {
	o       Options
	apex    string      // with a dot at the end
	public  *dns.DNSKEY // nil if the zone is not signed
	content atomic.Pointer[content]
	mu      sync.Mutex // of those who replace the content
}

// New returns a nameserver.
func New(o Options) (*Server, error) {
	if len(o.Gateways) == 0 {
		return nil, &errhint.Error{What: "the zone " + string(o.Zone), Why: "there is no address of a gateway", Hint: "set gateways = [\"192.0.2.1\"]"}
	}
	s := &Server{o: o, apex: dns.Fqdn(string(o.Zone))}
	if o.Key != nil {
		var err error
		if s.public, err = dnskey(s.apex, o.Key); err != nil {
			return nil, err
		}
	}
	return s, s.refresh(published{}, time.Now())
}

// published is what changes while a nameserver runs.
type published struct {
	own, wild []byte // the ECHConfigList of HTTPS records, or none: of the cloud's own names, and of the wildcard
	fresh     bool   // names of the wildcard have an address of IPv6 for each answer
}

// Publish has HTTPS records tell the configuration by which clients encrypt their hellos, an ECHConfigList, or none: own is for the cloud's own names,
// and wild for all names of the wildcard, which are alike.
func (s *Server) Publish(own, wild []byte) error {
	return s.publish(func(p *published) { p.own, p.wild = own, wild })
}

// PublishFresh has each answer about a name of the wildcard tell an address of its own, or ends that.
func (s *Server) PublishFresh(on bool) error {
	return s.publish(func(p *published) { p.fresh = on })
}

func (s *Server) publish(change func(*published)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.content.Load().published
	p := before
	if change(&p); p.fresh == before.fresh && bytes.Equal(p.own, before.own) && bytes.Equal(p.wild, before.wild) {
		return nil
	}
	return s.refresh(p, time.Now())
}

// again makes the records of before, with new signatures.
func (s *Server) again(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refresh(s.content.Load().published, now)
}

// freshen signs again if the signatures are old, or of a clock that was ahead.
func (s *Server) freshen(now time.Time) error {
	if age := now.Sub(s.content.Load().made); age >= 0 && age < signEvery {
		return nil
	}
	return s.again(now)
}

// refresh makes the records, and signs them.
func (s *Server) refresh(p published, now time.Time) error {
	c := newContent(s.o, s.apex, p, now)
	c.made = now.Round(0)
	if s.o.Key != nil {
		if err := c.sign(s.public, s.o.Key, now); err != nil {
			return err
		}
	}
	s.content.Store(c)
	return nil
}

// maxPayload is what answers by UDP take at most, in bytes, so that no network has to split them (RFC 9715).
const maxPayload = 1232

// ServeDNS implements [dns.Handler].
func (s *Server) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	m := s.Answer(q)
	s.o.Counter.note(m)
	if _, packets := w.LocalAddr().(*net.UDPAddr); packets {
		size := dns.MinMsgSize
		if opt := q.IsEdns0(); opt != nil {
			size = min(max(int(opt.UDPSize()), dns.MinMsgSize), maxPayload)
		}
		m.Truncate(size)
	}
	_ = w.WriteMsg(m)
}

// Answer returns the answer to a question.
func (s *Server) Answer(q *dns.Msg) *dns.Msg {
	m := new(dns.Msg)
	m.SetReply(q)
	m.Compress = true
	secure := false
	if opt := q.IsEdns0(); opt != nil {
		secure = opt.Do()
		m.SetEdns0(maxPayload, secure)
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
	c := s.content.Load()
	if c.changes(name, q.Question[0].Qtype) {
		s.fresh(m, name, secure)
		return m
	}
	c.answer(m, name, secure)
	return m
}

// answer adds the records for a name, in lower case, that is in the zone.
func (c *content) answer(m *dns.Msg, name string, secure bool) {
	owner, wild := c.owner(name)
	kind := m.Question[0].Qtype
	if kind == dns.TypeANY { // one set is enough (RFC 8482)
		kind = c.least(owner)
	}
	found := c.sets[owner][kind]
	switch {
	case owner == "":
		m.Rcode = dns.RcodeNameError
	case len(found) > 0:
		m.Answer = renamed(shuffled(found), m.Question[0].Name)
		if secure {
			m.Answer = append(m.Answer, renamed(c.signature(owner, kind), m.Question[0].Name)...)
		}
		if secure && wild { // that there is no such name itself
			m.Ns = append(m.Ns, c.denial(name)...)
		}
		return
	}
	m.Ns = append(m.Ns, c.sets[c.apex][dns.TypeSOA]...)
	if !secure {
		return
	}
	m.Ns = append(m.Ns, c.signature(c.apex, dns.TypeSOA)...)
	m.Ns = append(m.Ns, c.denial(name)...)
	if wild && c.before(name) != owner { // that the wildcard has nothing of this type
		m.Ns = append(m.Ns, c.denial(owner)...)
	}
}

// owner returns the name whose records a name has: its own or those of the wildcard, or none.
func (c *content) owner(name string) (owner string, wild bool) {
	if c.sets[name] != nil {
		return name, false
	}
	for parent := name; ; {
		_, parent, _ = strings.Cut(parent, ".")
		if c.sets[parent] != nil {
			if wildcard := "*." + parent; c.sets[wildcard] != nil {
				return wildcard, true
			}
			return "", false
		}
	}
}

// shuffled spreads clients over the gateways.
func shuffled(set []dns.RR) []dns.RR {
	set = slices.Clone(set)
	rand.Shuffle(len(set), func(i, j int) { set[i], set[j] = set[j], set[i] })
	return set
}

// renamed returns records with the name that was asked for, as it was written.
func renamed(set []dns.RR, name string) []dns.RR {
	all := make([]dns.RR, len(set))
	for i, rr := range set {
		all[i] = dns.Copy(rr)
		all[i].Header().Name = name
	}
	return all
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
	signing, stop := context.WithCancel(ctx)
	defer stop()
	go s.keepSigned(signing)
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

// keepSigned signs again long before signatures end, and once the clock was set.
func (s *Server) keepSigned(ctx context.Context) {
	for s.o.Key != nil && netutil.Sleep(ctx, signLook) == nil {
		if err := s.freshen(time.Now().Round(0)); err != nil { // of the wall clock, by which resolvers judge
			s.o.Log.Error("the zone cannot be signed", "error", err)
		}
	}
}
