package cloud

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"heddle/pseudonym"
	"heddle/pseudonym/address"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/database"
	"heddle/pseudonym/gateway"
)

var testPrefix = netip.MustParsePrefix("2001:db8:77:1::/64")

// addressed is a switch, without its program, and a nameserver, with a site that has an address of IPv6 and one that has none.
type addressed struct {
	*testing.T
	db         *database.DB
	at, answer *addresses
}

func newAddressed(t *testing.T) *addressed {
	t.Helper()
	o := Options{Zone: testZone, Dir: t.TempDir(), Prefix: testPrefix, Log: slog.New(slog.DiscardHandler)}
	if err := Create(o.Dir, o.Zone, time.Now()); err != nil {
		t.Fatal(err)
	}
	a := &addressed{T: t}
	var err error
	if a.db, err = database.Open(t.Context(), filepath.Join(t.TempDir(), "db"), sealOf(t, 1), o.Log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.db.Close() })
	for i, one := range []**addresses{&a.at, &a.answer} {
		if *one, err = newAddresses(o); err != nil {
			t.Fatal(err)
		}
		(*one).makes = i == 0
	}
	for site, addresses := range map[string][]string{"news.example": {"192.0.2.7:4443", "v6:2001:db8:9::7"}, "shop.example": {"192.0.2.8:4443"}} {
		if err := a.db.AddTenant(t.Context(), database.Tenant{Site: site, Addresses: addresses, Client: ca.KeyID([]byte(fmt.Sprintf("%-32s", site))), Created: time.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// look has switch and nameserver look into the database at a time, however late the disk is, and returns the keys.
func (a *addressed) look(now time.Time) []database.AddressKey {
	a.Helper()
	if err := errors.Join(a.at.take(a.Context(), a.db, now), a.answer.take(a.Context(), a.db, now)); err != nil {
		a.Fatal(err)
	}
	rows, err := a.db.AddressKeys(a.Context(), a.at.seal)
	if err != nil {
		a.Fatal(err)
	}
	return rows
}

func (a *addressed) add(site string) string {
	a.Helper()
	p := database.Pseudonym{Label: pseudonym.NewLabel(), Site: site, Certificate: []byte{1}, Key: []byte{1}, Created: time.Now(), Expires: time.Now().Add(time.Hour)}
	if err := a.db.Add(a.Context(), p); err != nil {
		a.Fatal(err)
	}
	return testZone.Name(p.Label) + "."
}

// leads returns the number that the switch finds in an answer about a name.
func (a *addressed) leads(name string) uint16 {
	a.Helper()
	to, err := a.answer.fresh(name)
	if err != nil {
		a.Fatal(err)
	}
	n, ok := a.at.ring.Load().Open(to)
	if !ok || !testPrefix.Contains(to) {
		a.Fatalf("%v leads nowhere", to)
	}
	return n
}

func TestAddressesOfNames(t *testing.T) {
	a := newAddressed(t)
	if _, err := a.answer.fresh("x"); err == nil || a.answer.published(time.Now()) {
		t.Error("there are addresses without a key")
	}
	a.look(time.Now())
	if !a.answer.published(time.Now()) || a.answer.published(time.Now().Add((addressStale+2)*addressPeriod)) {
		t.Error("addresses are published without a switch, or are not with one")
	}
	news := a.add("news.example")
	number, err := a.db.Numbers(t.Context())
	if err != nil || len(number) != 1 || number["news.example"] == 0 {
		t.Fatal(number, err)
	}
	for name, want := range map[string]uint16{news: number["news.example"], a.add("shop.example"): gatewayNumber,
		testZone.Name(pseudonym.NewLabel()) + ".": gatewayNumber, "www." + string(testZone) + ".": gatewayNumber} {
		if got := a.leads(name); got != want {
			t.Errorf("%s leads to %d, not %d", name, got, want)
		}
	}
	seen := map[netip.Addr]bool{}
	for range 10 {
		to, err := a.answer.fresh(news)
		if err != nil {
			t.Fatal(err)
		}
		seen[to] = true
	}
	if len(seen) < 8 { // of 1024
		t.Errorf("ten answers have %d addresses", len(seen))
	}
	// A nameserver that too many ask says what it says about names that nobody has.
	for range questionsAtOnce {
		a.answer.places <- struct{}{}
	}
	if got := a.leads(a.add("news.example")); got != gatewayNumber {
		t.Errorf("a question too many was answered with %d", got)
	}
	if got := a.leads(news); got != number["news.example"] {
		t.Errorf("what it knows leads to %d", got)
	}
}

// What the nameserver answers does not tell whether somebody has a name, had one that was revoked or ended, or never had it: answers differ in the
// name and the encrypted part of the address alone.
func TestAnswersTellNothing(t *testing.T) {
	a := newAddressed(t)
	a.look(time.Now())
	o := a.answer.o
	o.Gateways = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	s, err := newZone(o, nil, a.answer.fresh)
	if err == nil {
		err = errors.Join(s.Publish(nil, nil), s.PublishFresh(true))
	}
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{"of the news": a.add("news.example"), "of a site without such an address": a.add("shop.example"), "nobody's": testZone.Name(pseudonym.NewLabel()) + ".",
		"revoked": a.add("news.example"), "ended": a.add("news.example"), "known and revoked": a.add("news.example")}
	if got := a.leads(names["known and revoked"]); got == gatewayNumber {
		t.Fatal("the name leads to the gateway")
	}
	label := func(name string) pseudonym.Label {
		l, _ := testZone.Label(strings.TrimSuffix(names[name], "."))
		return l
	}
	for _, name := range []string{"revoked", "known and revoked"} {
		if err := a.db.Revoke(t.Context(), label(name), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.db.Renew(t.Context(), label("ended"), []byte{1}, time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeTXT, dns.TypeMX} {
		seen := map[string]string{}
		for which, name := range names {
			for range 3 {
				m := s.Answer(new(dns.Msg).SetQuestion(name, kind))
				text := fmt.Sprint(dns.TypeToString[kind], m.Len(), m.Rcode)
				for _, rr := range append(slices.Clone(m.Answer), m.Ns...) {
					if to, ok := rr.(*dns.AAAA); ok {
						at, _ := netip.AddrFromSlice(to.AAAA)
						if !testPrefix.Contains(at) {
							t.Errorf("%s: %v", which, rr)
						}
						to.AAAA = nil
					}
					text += strings.ReplaceAll(rr.String(), name, "NAME")
				}
				seen[text] = which
			}
		}
		if len(seen) != 1 {
			t.Errorf("%d answers: %q", len(seen), seen)
		}
	}
	a.answer.router.fresh = 0
	for which, name := range names {
		if got := a.leads(name); (got != gatewayNumber) != (which == "of the news") {
			t.Errorf("%s leads to %d", which, got)
		}
	}
}

// A name has a key for encrypted hellos, which the gateway opens, or pseudo-addresses, and it has these only once nobody has the key any more.
func TestNoKeyForHellosBesideAddresses(t *testing.T) {
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	before, now := start.Add(-helloAfter-1), start.Add(time.Minute)
	for name, c := range map[string]struct {
		mode         gateway.Mode
		hellos, now  time.Time
		opens, fresh bool
	}{
		"a new cloud":                      {gateway.Auto, start.Add(-helloAfter), now, false, true},
		"a cloud without keys for hellos":  {gateway.Auto, time.Time{}, now, false, true},
		"the key was in DNS":               {gateway.Auto, before, now, false, false},
		"it was there long ago":            {gateway.Auto, before, start.Add(helloKeep), false, true},
		"sites have addresses for days":    {"", start.Add(8 * addressPeriod), start.Add(9 * addressPeriod), false, true},
		"no switch runs any more":          {gateway.Auto, before, start.Add(13 * addressPeriod), true, false},
		"mode v6, the key was in DNS":      {gateway.V6, before, now, false, true},
		"mode v6, no switch runs any more": {gateway.V6, before, start.Add(13 * addressPeriod), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAddressed(t)
			a.answer.o.Mode = c.mode
			if opens, fresh := a.answer.publishing(now, c.hellos); opens != (c.mode != gateway.V6) || fresh {
				t.Errorf("before there is a switch hellos are opened %v, and addresses are given %v", opens, fresh)
			}
			a.look(start.Add(-5 * addressPeriod)) // of a switch that ran before
			for at := start; !at.After(c.now) && at.Before(start.Add(10*addressPeriod)); at = at.Add(addressPeriod) {
				a.look(at)
			}
			if opens, fresh := a.answer.publishing(c.now, c.hellos); opens != c.opens || fresh != c.fresh {
				t.Errorf("hellos are opened: %v, want %v; addresses are given: %v, want %v", opens, c.opens, fresh, c.fresh)
			}
		})
	}
}

func TestAddressKeysChange(t *testing.T) {
	a := newAddressed(t)
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	rows := a.look(start)
	if len(rows) != 1 || rows[0].Number != start.Unix()/86_400 {
		t.Fatalf("%+v", rows)
	}
	seal := func(now time.Time) netip.Addr {
		t.Helper()
		to, err := a.answer.ring.Load().Seal(testPrefix, 7, "name", now)
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
	given := map[time.Time]netip.Addr{}
	for now := start; now.Before(start.Add(10 * addressPeriod)); now = now.Add(30 * time.Minute) {
		rows = a.look(now)
		given[now] = seal(now)
		for at, to := range given {
			if _, ok := a.at.ring.Load().Open(to); !ok && now.Sub(at) < AddressLife {
				t.Fatalf("at %v an address of %v ended", now, at)
			} else if ok && now.Sub(at) > address.MaxKeys*addressPeriod {
				t.Fatalf("at %v an address of %v is good", now, at)
			}
		}
	}
	if len(rows) != address.MaxKeys {
		t.Errorf("the database has %d keys", len(rows))
	}
	// A key of a clock that was ahead does not stop the change of keys.
	ahead := rows[0].Number + 1000
	if err := a.db.AddAddressKey(t.Context(), a.at.seal, database.AddressKey{Number: ahead, Key: address.NewKey(), Created: start.Add(1000 * addressPeriod)}); err != nil {
		t.Fatal(err)
	}
	if again := a.look(start.Add(10 * addressPeriod)); again[0].Number == ahead || again[0].Number < rows[0].Number {
		t.Errorf("the newest key is %d after %d", again[0].Number, ahead)
	}
	// After a long pause the keys of before are good for connections that are open.
	to := seal(start.Add(10 * addressPeriod))
	a.look(start.Add(100 * addressPeriod))
	if _, ok := a.at.ring.Load().Open(to); !ok {
		t.Error("an address ended in a pause")
	}
}
