package address

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

var (
	prefix = netip.MustParsePrefix("2001:db8:77:1::/64")
	start  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

func ring(t testing.TB, epochs ...Epoch) *Ring {
	t.Helper()
	r, err := NewRing(epochs...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// known is a key that is the same in each run.
func known(t testing.TB) (k Key) {
	t.Helper()
	if n, err := hex.Decode(k[:], []byte("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f")); err != nil || n != len(k) {
		t.Fatal(n, err)
	}
	return k
}

func seal(t testing.TB, r *Ring, tenant uint16, name string, now time.Time) netip.Addr {
	t.Helper()
	a, err := r.Seal(prefix, tenant, name, now)
	if err != nil {
		t.Fatal(err)
	}
	if !prefix.Contains(a) {
		t.Fatalf("%v is not in %v", a, prefix)
	}
	return a
}

// The vector is that of IACR ePrint 2013/404, appendix C.
func TestSpeckGivesThePublishedVector(t *testing.T) {
	var key [cipherKeySize]byte
	if _, err := hex.Decode(key[:], []byte("1b1a1918131211100b0a090803020100")); err != nil {
		t.Fatal(err)
	}
	c := newSpeck(key)
	const plain, encrypted = 0x3b7265747475432d, 0x8c6fa548454e028b
	if got := c.encrypt(plain); got != encrypted {
		t.Errorf("encrypted: %016x", got)
	}
	if got := c.decrypt(encrypted); got != plain {
		t.Errorf("decrypted: %016x", got)
	}
}

func TestEveryTenantOpens(t *testing.T) {
	r := ring(t, Epoch{NewKey(), start})
	for tenant := range 1 << tenantBits {
		if got, ok := r.Open(seal(t, r, uint16(tenant), "name", start)); !ok || got != uint16(tenant) {
			t.Fatalf("tenant %d opens as %d, %v", tenant, got, ok)
		}
	}
}

// Blocks in sequence are the hardest for the cipher: each bit of their addresses is set in about half of them.
func TestAddressesLookRandom(t *testing.T) {
	c := newSpeck([cipherKeySize]byte(known(t).bytes()))
	const n = 1 << 16
	var set [64]int
	for nonce := range uint64(n) {
		id := c.encrypt(7<<nonceBits | nonce)
		for bit := range set {
			set[bit] += int(id >> bit & 1)
		}
	}
	for bit, count := range set {
		if count < n/2-n/64 || count > n/2+n/64 { // eight standard deviations
			t.Errorf("bit %d is set in %d of %d", bit, count, n)
		}
	}
}

func (k Key) bytes() []byte { return k[:cipherKeySize] }

// A user who asks again and again learns no more than a small part of a tenant's addresses.
func TestANameHasFewAddresses(t *testing.T) {
	r := ring(t, Epoch{known(t), start})
	of := map[string]map[netip.Addr]bool{}
	for _, name := range []string{"one", "other"} {
		of[name] = map[netip.Addr]bool{}
		for range 4 * PerName {
			of[name][seal(t, r, 7, name, start)] = true
		}
		if n := len(of[name]); n < PerName/2 || n > PerName {
			t.Errorf("%s has %d addresses", name, n)
		}
	}
	for a := range of["one"] {
		if of["other"][a] { // with this key none; two names share 1024²/2^24 addresses on average
			t.Logf("both names have %v", a)
			delete(of["other"], a)
		}
	}
	if n := len(of["other"]); n < PerName/4 {
		t.Errorf("a name has only %d addresses of its own", n)
	}
	again := 0
	for range 32 { // of its addresses one in fifty has not come yet
		if of["one"][seal(t, r, 7, "one", start.Add(1))] {
			again++
		}
	}
	if again < 16 || of["one"][seal(t, ring(t, Epoch{NewKey(), start}), 7, "one", start)] {
		t.Errorf("the addresses of a name are not those of its key: %d of 32 came before", again)
	}
}

// One changed bit is an identifier that nobody sealed: with this key and block no such opens.
func TestChangedBitsDoNotOpen(t *testing.T) {
	r := ring(t, Epoch{known(t), start})
	id := r.ciphers[0].encrypt(7<<nonceBits | 1)
	for bit := range 64 {
		if tenant, ok := r.Open(withID(id ^ 1<<bit)); ok {
			t.Errorf("with bit %d changed it opens as %d", bit, tenant)
		}
	}
	for _, text := range []string{"192.0.2.1", "::ffff:192.0.2.1"} {
		if _, ok := r.Open(netip.MustParseAddr(text)); ok {
			t.Errorf("%s opens", text)
		}
	}
}

func withID(id uint64) netip.Addr {
	bytes := prefix.Addr().As16()
	binary.BigEndian.PutUint64(bytes[8:], id)
	return netip.AddrFrom16(bytes)
}

func TestAllCheckBitsCount(t *testing.T) {
	r := ring(t, Epoch{NewKey(), start})
	for bit := range 64 {
		if _, got := r.Open(withID(r.ciphers[0].encrypt(1 << bit))); got != (bit < tenantBits+nonceBits) {
			t.Errorf("a block with only bit %d opens: %v", bit, got)
		}
	}
}

// Addresses of a key open as long as the ring has it, and a new key is used only from its time on.
func TestRotation(t *testing.T) {
	epochs := make([]Epoch, MaxKeys+1) // the newest first
	for i := range epochs {
		epochs[i] = Epoch{NewKey(), start.Add(-time.Duration(i) * time.Hour)}
	}
	before, after := ring(t, epochs[1:]...), ring(t, epochs[:MaxKeys]...)
	oldest := epochs[MaxKeys].From
	for name, c := range map[string]struct {
		a             netip.Addr
		before, after bool // whether the ring opens it
	}{
		"before all keys":    {seal(t, before, 7, "n", oldest.Add(-1)), true, false},
		"oldest":             {seal(t, before, 7, "n", oldest), true, false},
		"second":             {seal(t, before, 7, "n", oldest.Add(time.Hour)), true, true},
		"next not begun":     {seal(t, after, 7, "n", start.Add(-1)), true, true},
		"next just begun":    {seal(t, after, 7, "n", start), false, true},
		"long after the end": {seal(t, after, 7, "n", start.Add(1000*time.Hour)), false, true},
	} {
		for r, want := range map[*Ring]bool{before: c.before, after: c.after} {
			if tenant, ok := r.Open(c.a); ok != want || ok && tenant != 7 {
				t.Errorf("%s: the ring from %v opens it as %d, %v", name, r.epochs[0].From, tenant, ok)
			}
		}
	}
}

func TestReservedIdentifiers(t *testing.T) {
	for id, want := range map[uint64]bool{
		0: true, 1: false,
		0x02005efffe000000: true, 0x02005efffeffffff: true, 0x02005efffdffffff: false, 0x02005effff000000: false,
		0xfdffffffffffff80: true, 0xfdffffffffffffff: true, 0xfdffffffffffff7f: false, 0xfe00000000000000: false,
	} {
		if reserved(id) != want {
			t.Errorf("%016x: %v", id, !want)
		}
	}
}

func TestBadRingsAndPrefixes(t *testing.T) {
	k, many := NewKey(), make([]Epoch, MaxKeys+1)
	for i := range many {
		many[i] = Epoch{NewKey(), start.Add(-time.Duration(i))}
	}
	for name, epochs := range map[string][]Epoch{
		"none":        nil,
		"too many":    many,
		"same key":    {{k, start.Add(1)}, {k, start}},
		"same time":   {{NewKey(), start}, {NewKey(), start}},
		"older first": {{NewKey(), start}, {NewKey(), start.Add(1)}},
	} {
		if _, err := NewRing(epochs...); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	r := ring(t, Epoch{k, start})
	for _, p := range []netip.Prefix{{}, netip.MustParsePrefix("2001:db8::/56"), netip.MustParsePrefix("2001:db8::/96"), netip.MustParsePrefix("2001:db8::1/64"),
		netip.MustParsePrefix("192.0.2.0/24"), netip.PrefixFrom(netip.MustParseAddr("::ffff:192.0.2.0"), 64)} {
		if a, err := r.Seal(p, 1, "n", start); err == nil {
			t.Errorf("%v: sealed %v", p, a)
		}
	}
}

func TestKeysAreNotPrinted(t *testing.T) {
	k := known(t)
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		if got := fmt.Sprintf(format, Epoch{k, start}); strings.Contains(got, "0001") || strings.Contains(got, "0 1 2") || strings.Contains(got, "0x1,") {
			t.Errorf("%s prints %s", format, got)
		}
	}
	if got := fmt.Sprint(newSpeck([cipherKeySize]byte(k.bytes()))); got != "[key]" {
		t.Errorf("a cipher is printed: %s", got)
	}
}
