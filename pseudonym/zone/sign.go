package zone

import (
	"crypto/ecdsa"
	"encoding/base64"
	"maps"
	"slices"
	"time"

	"github.com/miekg/dns"
)

// Signatures are made when the server starts and once a day: all names of people are one wildcard, so the zone has few records. Only fresh
// addresses are signed for each answer.
const (
	signEvery = 24 * time.Hour
	signLook  = time.Minute // from one look at the clock to the next
	signFor   = 14 * 24 * time.Hour
	signSkew  = time.Hour // by which a resolver's clock may be slow
)

// keyFlags say that the key signs the zone and that the parent zone points at it (RFC 4034, section 2.1.1).
const keyFlags = 257

// dnskey returns the public record of a key.
func dnskey(apex string, key *ecdsa.PrivateKey) (*dns.DNSKEY, error) {
	point, err := key.PublicKey.Bytes()
	if err != nil {
		return nil, err
	}
	return &dns.DNSKEY{Hdr: header(apex, dns.TypeDNSKEY, zoneTTL), Flags: keyFlags, Protocol: 3, Algorithm: dns.ECDSAP256SHA256,
		PublicKey: base64.StdEncoding.EncodeToString(point[1:])}, nil // without the byte that says that it is not compressed (RFC 6605)
}

// DS returns what the parent zone has to have, so that resolvers know the key. It is empty for a zone that is not signed.
func (s *Server) DS() (string, error) {
	if s.public == nil {
		return "", nil
	}
	return s.public.ToDS(dns.SHA256).String(), nil
}

// sign adds the key, the chain of names (NSEC, RFC 4034, section 4) and the signatures.
func (c *content) sign(public *dns.DNSKEY, key *ecdsa.PrivateKey, now time.Time) error {
	c.add(public)
	for i, name := range c.names {
		kinds := append(slices.Collect(maps.Keys(c.sets[name])), dns.TypeNSEC, dns.TypeRRSIG)
		if c.changes(name, dns.TypeAAAA) { // else a resolver would conclude that names of the wildcard have none (RFC 8198)
			kinds = append(kinds, dns.TypeAAAA)
		}
		slices.Sort(kinds)
		kinds = slices.Compact(kinds)
		c.add(&dns.NSEC{Hdr: header(name, dns.TypeNSEC, negativeTTL), NextDomain: c.names[(i+1)%len(c.names)], TypeBitMap: kinds})
	}
	for _, name := range c.names {
		for _, kind := range slices.Sorted(maps.Keys(c.sets[name])) {
			sig, err := signature(c.apex, public, key, c.sets[name][kind], now)
			if err != nil {
				return err
			}
			c.add(sig)
		}
	}
	return nil
}

// signature signs a set.
func signature(apex string, public *dns.DNSKEY, key *ecdsa.PrivateKey, set []dns.RR, now time.Time) (*dns.RRSIG, error) {
	sig := &dns.RRSIG{Hdr: header(set[0].Header().Name, dns.TypeRRSIG, set[0].Header().Ttl), Algorithm: public.Algorithm, KeyTag: public.KeyTag(), SignerName: apex,
		Inception: uint32(now.Add(-signSkew).Unix()), Expiration: uint32(now.Add(signFor).Unix())}
	return sig, sig.Sign(key, set)
}

// signature returns that of a set, or none in a zone that is not signed.
func (c *content) signature(owner string, kind uint16) (all []dns.RR) {
	for _, rr := range c.sets[owner][dns.TypeRRSIG] {
		if rr.(*dns.RRSIG).TypeCovered == kind {
			all = append(all, rr)
		}
	}
	return all
}

// denial returns the record that says which name comes after the last one that is not after a name, and its signature.
func (c *content) denial(name string) []dns.RR {
	at := c.before(name)
	return append(slices.Clone(c.sets[at][dns.TypeNSEC]), c.signature(at, dns.TypeNSEC)...)
}
