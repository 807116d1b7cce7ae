package zone

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"heddle/pseudonym"
)

// fresh gives names addresses that count up.
func fresh(asked *[]string) func(*Options) {
	n := uint64(0)
	return func(o *Options) {
		o.Fresh = func(name string) (netip.Addr, error) {
			*asked = append(*asked, name)
			a := netip.MustParseAddr("2001:db8:77:1::").As16()
			n++
			binary.BigEndian.PutUint64(a[8:], n)
			return netip.AddrFrom16(a), nil
		}
	}
}

func TestFreshAddresses(t *testing.T) {
	var asked []string
	for name, gateways := range map[string][]netip.Addr{"both families": {netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
		"IPv4": {netip.MustParseAddr("192.0.2.1")}, "IPv6": {netip.MustParseAddr("2001:db8::1")}} {
		t.Run(name, func(t *testing.T) {
			s := server(t, signed(t), fresh(&asked), func(o *Options) { o.Gateways = gateways })
			label := string(pseudonym.NewLabel()) + ".cloud.example."
			before := askSecure(s, label, dns.TypeAAAA).String()
			if err := s.PublishFresh(true); err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for _, name := range []string{label, label, "UPPER.cloud.example.", "a.b.cloud.example."} {
				asked = nil
				m := askSecure(s, name, dns.TypeAAAA)
				verified(t, s, m.Answer)
				if len(m.Answer) != 2 || len(m.Ns) > 0 || m.Rcode != dns.RcodeSuccess {
					t.Fatal(m)
				}
				a := m.Answer[0].(*dns.AAAA)
				if a.Hdr.Name != name || seen[a.AAAA.String()] || len(asked) != 1 || asked[0] != strings.ToLower(name) {
					t.Errorf("%v, asked for %q", m, asked)
				}
				seen[a.AAAA.String()] = true
				// A record of the wildcard could stand in for other names.
				if sig := m.Answer[1].(*dns.RRSIG); int(sig.Labels) != dns.CountLabel(name) {
					t.Errorf("it is signed for %d labels of %s", sig.Labels, name)
				}
				if plain := ask(s, name, dns.TypeAAAA); len(plain.Answer) != 1 {
					t.Error(plain)
				}
			}
			// A resolver must not conclude that names have no address of IPv6.
			if m := askSecure(s, label, dns.TypeTXT); denied(m.Ns, "*.cloud.example.", dns.TypeAAAA) {
				t.Error(m)
			}
			for _, name := range []string{"*.cloud.example.", label} {
				for _, kind := range []uint16{dns.TypeAAAA, dns.TypeANY} {
					if name == label && kind == dns.TypeAAAA {
						continue
					}
					for _, rr := range askSecure(s, name, kind).Answer {
						if rr.Header().Rrtype == dns.TypeAAAA {
							t.Errorf("a resolver may take %v for that of all names", rr)
						}
					}
				}
			}
			for _, c := range []struct {
				name string
				kind uint16
			}{{"store.cloud.example.", dns.TypeAAAA}, {label, dns.TypeA}, {label, dns.TypeHTTPS}} {
				m := askSecure(s, c.name, c.kind)
				verified(t, s, m.Answer)
				verified(t, s, m.Ns)
			}
			if err := s.PublishFresh(false); err != nil {
				t.Fatal(err)
			}
			if after := askSecure(s, label, dns.TypeAAAA); len(after.Answer) != strings.Count(before, "\tIN\tAAAA\t")+strings.Count(before, "RRSIG\tAAAA") {
				t.Errorf("%v, before %s", after, before)
			}
		})
	}
}

func TestFreshAddressFails(t *testing.T) {
	s := server(t, func(o *Options) {
		o.Fresh = func(string) (netip.Addr, error) { return netip.Addr{}, errors.New("no key") }
	})
	if err := s.PublishFresh(true); err != nil {
		t.Fatal(err)
	}
	if m := ask(s, "x.cloud.example.", dns.TypeAAAA); m.Rcode != dns.RcodeServerFailure || len(m.Answer) > 0 {
		t.Error(m)
	}
}
