package resolve

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"heddle/path"
	"heddle/path/resolve/resolvetest"
)

func TestNameserversOfAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("search example.org\nnameserver 127.0.0.53\nnameserver 192.0.2.53\nnameserver 2001:db8::53\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.53:53"), netip.MustParseAddrPort("[2001:db8::53]:53")}
	if got := nameserversOf(file); !slices.Equal(got, want) {
		t.Errorf("nameservers %v, want %v", got, want)
	}
	stub := filepath.Join(t.TempDir(), "stub")
	if err := os.WriteFile(stub, []byte("nameserver 127.0.0.53\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := nameserversOf(stub, file); !slices.Equal(got, want) {
		t.Errorf("nameservers behind a stub %v, want %v", got, want)
	}
	if got := nameserversOf(filepath.Join(t.TempDir(), "absent"), stub); got != nil {
		t.Errorf("nameservers of no file: %v", got)
	}
}

func TestLookupTakesThePath(t *testing.T) {
	at, from := resolvetest.Nameserver(t, map[uint16]string{dns.TypeA: "vpn.example. 60 IN A 192.0.2.8", dns.TypeAAAA: "vpn.example. 60 IN AAAA 2001:db8::8"})
	way, err := path.New(path.Spec{Name: "a", Kind: "src", Arg: "127.0.0.44"}, path.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := ByPath(t.Context(), way, []netip.AddrPort{at}, Server{"vpn.example", 51820})
	want := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.8:51820"), netip.MustParseAddrPort("[2001:db8::8]:51820")}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("found %v, %v; want %v", got, err, want)
	}
	if a := (<-from).(*net.UDPAddr).AddrPort().Addr(); a.String() != "127.0.0.44" {
		t.Errorf("the question came from %v", a)
	}
	got, err = ByPath(t.Context(), way, []netip.AddrPort{at}, Server{"other.example", 51820})
	if err == nil || !strings.Contains(err.Error(), "other.example: the nameserver 127.0.0.1 gives no address") {
		t.Errorf("a name without addresses gave %v, %v", got, err)
	}
}

func FuzzAnswers(f *testing.F) {
	q := new(dns.Msg)
	q.SetQuestion("vpn.example.", dns.TypeA)
	packed, err := q.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(packed)
	f.Fuzz(func(t *testing.T, data []byte) { answers(q, data) })
}
