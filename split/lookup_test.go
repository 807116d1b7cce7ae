package split

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/miekg/dns"

	"heddle/path"
)

func TestNameserversOfAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("search example.org\nnameserver 127.0.0.53\nnameserver 192.0.2.53\nnameserver 2001:db8::53\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.53:53"), netip.MustParseAddrPort("[2001:db8::53]:53")}
	if got := nameservers(file); !slices.Equal(got, want) {
		t.Errorf("nameservers %v, want %v", got, want)
	}
	if got := nameservers(filepath.Join(t.TempDir(), "absent")); got != nil {
		t.Errorf("nameservers of no file: %v", got)
	}
}

func TestLookupTakesThePath(t *testing.T) {
	server, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	from := make(chan net.Addr, 4)
	records := map[uint16]string{dns.TypeA: "vpn.example. 60 IN A 192.0.2.8", dns.TypeAAAA: "vpn.example. 60 IN AAAA 2001:db8::8"}
	s := &dns.Server{PacketConn: server, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		from <- w.RemoteAddr()
		m := new(dns.Msg)
		m.SetReply(q)
		if r, err := dns.NewRR(records[q.Question[0].Qtype]); err == nil && q.Question[0].Name == "vpn.example." {
			m.Answer = append(m.Answer, r)
		}
		w.WriteMsg(m)
	})}
	go s.ActivateAndServe()
	t.Cleanup(func() { s.Shutdown() })
	way, err := path.New(path.Spec{Name: "a", Kind: "src", Arg: "127.0.0.44"}, path.Options{})
	if err != nil {
		t.Fatal(err)
	}
	at := server.LocalAddr().(*net.UDPAddr).AddrPort()
	got, err := lookupByPath(t.Context(), way, []netip.AddrPort{at}, "vpn.example")
	want := []netip.Addr{netip.MustParseAddr("192.0.2.8"), netip.MustParseAddr("2001:db8::8")}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("found %v, %v; want %v", got, err, want)
	}
	if a := (<-from).(*net.UDPAddr).AddrPort().Addr(); a.String() != "127.0.0.44" {
		t.Errorf("the question came from %v", a)
	}
	if got, err := lookupByPath(t.Context(), way, []netip.AddrPort{at}, "other.example"); err == nil {
		t.Errorf("a name without addresses gave %v", got)
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
