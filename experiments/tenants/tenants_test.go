package tenants

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"heddle/lab/labtest"
	"heddle/lab/peer"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// byChance are counts and sizes that are different from one connection to the next one of the same tenant. Signatures have different lengths. They change the bytes of a
// handshake, and its second segment, which has what the first one leaves. The test bounds by how much.
var byChance = []string{"packets: packets without payload", "packets: most unacknowledged bytes", "handshake: bytes", "handshake: segments", "handshake: segment 2"}

// ofContent are the last records of an answer, before which is that of its headers.
var ofContent = []string{"answer: record 1 from the end", "answer: record 2 from the end", "answer: record 3 from the end", "answer: record 4 from the end", "answer: record 5 from the end"}

// An observer cannot tell tenants by their packets if gateways hand connections over, nor by the records of what they serve, whatever their servers and kernels are.
func TestHandedOverTenantsLookAlike(t *testing.T) {
	labtest.Need(t)
	var talk bytes.Buffer
	all, says, err := Run(t.Context(), Options{Heddle: labtest.Heddle, Ways: []string{Handoff}, Tenants: []string{"nginx", "kernel", "haproxy", "node"}, Pseudonyms: 2, Visits: 2, Seed: 1, Talk: &talk})
	if errors.Is(err, peer.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, talk.String())
	}
	if len(all) != 4*2*2 || len(says) != 4 {
		t.Fatalf("%d connections, and p0f says %v", len(all), says)
	}
	flights := map[string][]int{}
	for _, c := range all {
		flights[c.Tenant] = append(flights[c.Tenant], c.Seen["handshake: bytes"].(int))
	}
	for _, told := range Tell(all) {
		if (told.is(packetsKind) || told.is(handshakeKind)) && !slices.Contains(byChance, told.Name) && !strings.Contains(told.Name, "record ") || slices.Contains(ofContent, told.Name) {
			t.Errorf("an observer tells tenants by %s: %v", told.Name, told.Values)
		}
	}
	// Signatures and serial numbers have some bytes more or less.
	const chance = 12
	for tenant, sizes := range flights {
		if most, least := slices.Max(sizes), slices.Min(flights["nginx"]); most-least > chance || least-slices.Min(sizes) > chance {
			t.Errorf("the first messages of %s have %v bytes, those of nginx %v", tenant, sizes, flights["nginx"])
		}
	}
	for _, s := range says {
		if len(s.Says) == 0 || !slices.Equal(slices.Sorted(maps.Keys(s.Says)), slices.Sorted(maps.Keys(says[0].Says))) {
			t.Errorf("p0f says %v of %s, and %v of %s", s.Says, s.Tenant, says[0].Says, says[0].Tenant)
		}
	}
}

// A feature tells two tenants apart only if they share no value of it, and if it is no count of what comes by chance.
func TestTell(t *testing.T) {
	c := func(tenant string, ttl int, options string, ms float64) Connection {
		return Connection{Way: Proxy, Tenant: tenant, Pseudonym: tenant, Seen: Seen{"packets: TTL": ttl, "packets: options": options, "timing: SYN-ACK": ms}}
	}
	got := Tell([]Connection{c("a", 64, "mss", 1.5), c("a", 63, "mss", 1.25), c("b", 63, "mss ts", 9)})
	want := []Telling{{Proxy, "packets: options", map[string][]string{"mss": {"a"}, "mss ts": {"b"}}}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	var many []Connection
	for n := range 2 * mostValues {
		many = append(many, c("a", n, "mss", 0), c("b", n+100, "mss", 0))
	}
	if got := Tell(many); len(got) != 0 {
		t.Errorf("counts tell: %v", got)
	}
}

func TestOptions(t *testing.T) {
	good := Options{Ways: Ways(), Tenants: Names(), Pseudonyms: 1, Visits: 1}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Options){
		"way":     func(o *Options) { o.Ways = []string{"none"} },
		"tenant":  func(o *Options) { o.Tenants = []string{"nginx", "none"} },
		"tenants": func(o *Options) { o.Tenants = []string{"nginx"} },
		"visits":  func(o *Options) { o.Visits = 0 },
	} {
		o := good
		change(&o)
		if err := o.check(); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
