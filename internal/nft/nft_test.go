package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"heddle/internal/nstest"
)

// listing spells a rule as `nft --debug=netlink add rule` does, so that what is wanted can be taken from there.
func listing(t *testing.T, rule []expr.Any) string {
	var lines []string
	say := func(format string, values ...any) { lines = append(lines, fmt.Sprintf(format, values...)) }
	loads := func(what, key string, set bool) {
		if set {
			say("%s set %s with reg 1", what, key)
		} else {
			say("%s load %s => reg 1", what, key)
		}
	}
	for _, e := range rule {
		switch e := e.(type) {
		case *expr.Meta:
			loads("meta", map[expr.MetaKey]string{expr.MetaKeyIIF: "iif", expr.MetaKeyOIF: "oif", expr.MetaKeyIIFNAME: "iifname", expr.MetaKeyOIFNAME: "oifname",
				expr.MetaKeyMARK: "mark", expr.MetaKeyNFPROTO: "nfproto", expr.MetaKeyL4PROTO: "l4proto"}[e.Key], e.SourceRegister)
		case *expr.Ct:
			loads("ct", map[expr.CtKey]string{expr.CtKeyMARK: "mark", expr.CtKeySTATE: "state", expr.CtKeySTATUS: "status", expr.CtKeyDIRECTION: "direction"}[e.Key], e.SourceRegister)
		case *expr.Cmp:
			say("cmp %s reg 1%s", map[expr.CmpOp]string{expr.CmpOpEq: "eq", expr.CmpOpNeq: "neq"}[e.Op], words(e.Data))
		case *expr.Payload:
			say("payload load %db @ %s header + %d => reg %d", e.Len, map[expr.PayloadBase]string{expr.PayloadBaseNetworkHeader: "network",
				expr.PayloadBaseTransportHeader: "transport"}[e.Base], e.Offset, e.DestRegister)
		case *expr.Range:
			say("range %s reg 1%s%s", map[expr.CmpOp]string{expr.CmpOpEq: "eq"}[e.Op], words(e.FromData), words(e.ToData))
		case *expr.Bitwise:
			say("bitwise reg 1 = ( reg 1 &%s ) ^%s", words(e.Mask), words(e.Xor))
		case *expr.Fib:
			say("fib %s type => reg 1", map[bool]string{true: "saddr", false: "daddr"}[e.FlagSADDR && !e.FlagDADDR])
		case *expr.Immediate:
			say("immediate reg 1%s", words(e.Data))
		case *expr.Lookup:
			say("lookup reg 1 set %s%s", e.SetName, map[bool]string{true: " dreg 1"}[e.IsDestRegSet])
		case *expr.Counter:
			say("counter pkts %d bytes %d", e.Packets, e.Bytes)
		case *expr.Reject:
			say("reject type %d code %d", e.Type, e.Code)
		case *expr.Verdict:
			say("immediate reg 0 %s", map[expr.VerdictKind]string{expr.VerdictAccept: "accept", expr.VerdictDrop: "drop", expr.VerdictContinue: "continue"}[e.Kind])
		default:
			t.Errorf("%T has no spelling", e)
		}
	}
	return strings.Join(lines, "\n")
}

// words are data as nft(8) shows them: numbers of the machine's order, each of 4 bytes.
func words(data []byte) (all string) {
	for some := range slices.Chunk(data, 4) {
		all += fmt.Sprintf(" 0x%08x", binary.LittleEndian.Uint32(append(slices.Clone(some), make([]byte, 4-len(some))...)))
	}
	return all
}

var (
	addr4 = netip.MustParseAddr("192.0.2.1")
	addr6 = netip.MustParseAddr("2001:db8::1")
	some  = &nftables.Set{Name: "s", KeyType: nftables.TypeInetService}
)

// Each rule with how nft(8) writes it, and what it makes of that.
var rules = []struct {
	text string
	rule []expr.Any
	want string
}{
	{"iif 1", InIndex(1), "meta load iif => reg 1\ncmp eq reg 1 0x00000001"},
	{"oif 1", OutIndex(1), "meta load oif => reg 1\ncmp eq reg 1 0x00000001"},
	{`iifname "eth0"`, In("eth0"), "meta load iifname => reg 1\ncmp eq reg 1 0x30687465 0x00000000 0x00000000 0x00000000"},
	{`iifname != "eth0"`, NotIn("eth0"), "meta load iifname => reg 1\ncmp neq reg 1 0x30687465 0x00000000 0x00000000 0x00000000"},
	{`oifname "eth0"`, Out("eth0"), "meta load oifname => reg 1\ncmp eq reg 1 0x30687465 0x00000000 0x00000000 0x00000000"},
	{"meta mark 51820", Mark(51820), "meta load mark => reg 1\ncmp eq reg 1 0x0000ca6c"},
	{"ct mark 51820", ConnectionMark(51820), "ct load mark => reg 1\ncmp eq reg 1 0x0000ca6c"},
	{"meta mark set 5", SetMark(5), "immediate reg 1 0x00000005\nmeta set mark with reg 1"},
	{"ct mark set 5", SetConnectionMark(5), "immediate reg 1 0x00000005\nct set mark with reg 1"},
	{"meta nfproto ipv4", IPv6(false), "meta load nfproto => reg 1\ncmp eq reg 1 0x00000002"},
	{"meta l4proto tcp", Protocol(unix.IPPROTO_TCP), "meta load l4proto => reg 1\ncmp eq reg 1 0x00000006"},
	{"fib daddr type local", Local(Destination, true), "fib daddr type => reg 1\ncmp eq reg 1 0x00000002"},
	{"fib saddr type != local", Local(Source, false), "fib saddr type => reg 1\ncmp neq reg 1 0x00000002"},
	{"ip saddr 192.0.2.1", Address(addr4, Source), "meta load nfproto => reg 1\ncmp eq reg 1 0x00000002\n" +
		"payload load 4b @ network header + 12 => reg 1\ncmp eq reg 1 0x010200c0"},
	{"ip daddr 192.0.2.1", Address(addr4, Destination), "meta load nfproto => reg 1\ncmp eq reg 1 0x00000002\n" +
		"payload load 4b @ network header + 16 => reg 1\ncmp eq reg 1 0x010200c0"},
	{"ip6 saddr 2001:db8::1", Address(addr6, Source), "meta load nfproto => reg 1\ncmp eq reg 1 0x0000000a\n" +
		"payload load 16b @ network header + 8 => reg 1\ncmp eq reg 1 0xb80d0120 0x00000000 0x00000000 0x01000000"},
	{"ip6 daddr 2001:db8::1", Address(addr6, Destination), "meta load nfproto => reg 1\ncmp eq reg 1 0x0000000a\n" +
		"payload load 16b @ network header + 24 => reg 1\ncmp eq reg 1 0xb80d0120 0x00000000 0x00000000 0x01000000"},
	{"ip daddr 10.16.0.0/12", Within(netip.MustParsePrefix("10.16.0.0/12"), Destination), "meta load nfproto => reg 1\ncmp eq reg 1 0x00000002\n" +
		"payload load 4b @ network header + 16 => reg 1\nbitwise reg 1 = ( reg 1 & 0x0000f0ff ) ^ 0x00000000\ncmp eq reg 1 0x0000100a"},
	{"ip6 saddr 2000::/3", Within(netip.MustParsePrefix("2000::/3"), Source), "meta load nfproto => reg 1\ncmp eq reg 1 0x0000000a\n" +
		"payload load 16b @ network header + 8 => reg 1\nbitwise reg 1 = ( reg 1 & 0x000000e0 0x00000000 0x00000000 0x00000000 )" +
		" ^ 0x00000000 0x00000000 0x00000000 0x00000000\ncmp eq reg 1 0x00000020 0x00000000 0x00000000 0x00000000"},
	{"ip saddr 192.0.2.1 udp sport 53", UDP(netip.AddrPortFrom(addr4, 53), Source), "meta load nfproto => reg 1\ncmp eq reg 1 0x00000002\n" +
		"payload load 4b @ network header + 12 => reg 1\ncmp eq reg 1 0x010200c0\n" +
		"meta load l4proto => reg 1\ncmp eq reg 1 0x00000011\npayload load 2b @ transport header + 0 => reg 1\ncmp eq reg 1 0x00003500"},
	{"ip daddr 192.0.2.1 udp dport 4433", UDP(netip.AddrPortFrom(addr4, 4433), Destination), "meta load nfproto => reg 1\ncmp eq reg 1 0x00000002\n" +
		"payload load 4b @ network header + 16 => reg 1\ncmp eq reg 1 0x010200c0\n" +
		"meta load l4proto => reg 1\ncmp eq reg 1 0x00000011\npayload load 2b @ transport header + 2 => reg 1\ncmp eq reg 1 0x00005111"},
	{"meta l4proto udp udp sport 68 udp dport 67", Join(Protocol(unix.IPPROTO_UDP), Ports(68, 67)),
		"meta load l4proto => reg 1\ncmp eq reg 1 0x00000011\npayload load 4b @ transport header + 0 => reg 1\ncmp eq reg 1 0x43004400"},
	{"meta nfproto ipv6 ip6 hoplimit 255 icmpv6 type 133", Join(IPv6(true), NetworkByte(7, 255), Protocol(unix.IPPROTO_ICMPV6), TransportByte(0, 133)),
		"meta load nfproto => reg 1\ncmp eq reg 1 0x0000000a\npayload load 1b @ network header + 7 => reg 1\ncmp eq reg 1 0x000000ff\n" +
			"meta load l4proto => reg 1\ncmp eq reg 1 0x0000003a\npayload load 1b @ transport header + 0 => reg 1\ncmp eq reg 1 0x00000085"},
	{"@th,64,8 & 0x40 != 0", TransportBit(8, 0x40), "payload load 1b @ transport header + 8 => reg 1\nbitwise reg 1 = ( reg 1 & 0x00000040 ) ^ 0x00000000\ncmp neq reg 1 0x00000000"},
	{"udp length 1261-1480", UDPLength(1261, 1480), "payload load 2b @ transport header + 4 => reg 1\nrange eq reg 1 0x0000ed04 0x0000c805"},
	{"ct direction reply", InDirection(Reply), "ct load direction => reg 1\ncmp eq reg 1 0x00000001"},
	{"ct status dnat", Translated, "ct load status => reg 1\nbitwise reg 1 = ( reg 1 & 0x00000020 ) ^ 0x00000000\ncmp neq reg 1 0x00000000"},
	{"ct state related", Related, "ct load state => reg 1\nbitwise reg 1 = ( reg 1 & 0x00000004 ) ^ 0x00000000\ncmp neq reg 1 0x00000000"},
	{"udp dport @s", Join(Protocol(unix.IPPROTO_UDP), []expr.Any{LoadPort(Destination, 1)}, Lookup(some)),
		"meta load l4proto => reg 1\ncmp eq reg 1 0x00000011\npayload load 2b @ transport header + 2 => reg 1\nlookup reg 1 set s"},
	{"accept", Accept, "immediate reg 0 accept"},
	{"counter continue", Join(Count, Pass), "counter pkts 0 bytes 0\nimmediate reg 0 continue"},
	{"counter drop", Drop, "counter pkts 0 bytes 0\nimmediate reg 0 drop"},
	{"counter reject with icmpx type admin-prohibited", Reject, "counter pkts 0 bytes 0\nreject type 2 code 3"},
}

func TestRules(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("typed skip: the listings are of a little-endian machine")
	}
	for _, r := range rules {
		if got := listing(t, r.rule); got != r.want {
			t.Errorf("%s:\n%s\nwant\n%s", r.text, got, r.want)
		}
	}
}

// The kernel takes all of them.
func TestKernelTakesRules(t *testing.T) {
	nstest.New(t).Enter(t)
	if err := Change(func(conn *nftables.Conn) error {
		table := Inet(Name("test"))
		Replace(conn, table)
		chain := conn.AddChain(&nftables.Chain{Name: "c", Table: table, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw})
		if err := conn.AddSet(&nftables.Set{Table: table, ID: 1, Name: some.Name, KeyType: some.KeyType}, nil); err != nil {
			return err
		}
		for _, r := range rules {
			if r.rule[len(r.rule)-1] == Reject[1] {
				continue // not before routing
			}
			conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: r.rule})
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  string
	}{{[]string{"office"}, "heddle_office"}, {[]string{"kernel", "office"}, "heddle_kernel_office"}, {[]string{"kernel", "split-4433"}, "heddle_kernel_split_2d4433"}} {
		if got := Name(c.words...); got != c.want {
			t.Errorf("%q: %s, want %s", c.words, got, c.want)
		}
	}
}

func TestTables(t *testing.T) {
	nstest.New(t).Enter(t)
	// The first number is above the kernel's greatest of a process.
	dead, alive, other := Inet(Name("test", "4194305")), Inet(OfProcess("test")), Inet(Name("tests"))
	names := func() (all []string) {
		t.Helper()
		conn, err := Connect()
		if err != nil {
			t.Fatal(err)
		}
		tables, err := conn.ListTables()
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range tables {
			all = append(all, table.Name)
		}
		slices.Sort(all)
		return all
	}
	if err := Change(func(conn *nftables.Conn) error {
		for _, table := range []*nftables.Table{dead, alive, other, other} {
			Replace(conn, table)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if got, want := names(), []string{alive.Name, dead.Name, other.Name}; len(got) != len(want) || !slices.Contains(got, fmt.Sprintf("heddle_test_%d", os.Getpid())) {
		t.Errorf("tables %q, want %q", got, want)
	}
	conn, err := Connect()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Orphans(conn, nftables.TableFamilyINet, "test"); err != nil || !slices.Equal(got, []string{dead.Name}) {
		t.Errorf("orphans %q, %v", got, err)
	}
	for range 2 { // the second time there is nothing to remove
		if err := Remove(dead, alive); err != nil {
			t.Error(err)
		}
	}
	if got := names(); !slices.Equal(got, []string{other.Name}) {
		t.Errorf("left: %q", got)
	}
	// What cannot be done is not done in part.
	err = Change(func(conn *nftables.Conn) error {
		conn.AddTable(dead)
		conn.DelTable(alive)
		return nil
	})
	if got := names(); err == nil || !slices.Equal(got, []string{other.Name}) {
		t.Errorf("%v; tables %q", err, got)
	}
}
