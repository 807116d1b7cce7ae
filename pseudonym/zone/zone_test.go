package zone

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"heddle/pseudonym"
	"heddle/pseudonym/ech"
)

const apex = pseudonym.Zone("cloud.example")

func server(t testing.TB, edit ...func(*Options)) *Server {
	t.Helper()
	o := Options{Zone: apex, Gateways: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::1")},
		Own: []string{"store"}, Log: slog.New(slog.DiscardHandler)}
	for _, f := range edit {
		f(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ask(s *Server, name string, kind uint16) *dns.Msg {
	return s.Answer(new(dns.Msg).SetQuestion(name, kind))
}

func TestAnswers(t *testing.T) {
	s := server(t)
	label := string(pseudonym.NewLabel()) + ".cloud.example."
	for _, c := range []struct {
		name  string
		kind  uint16
		rcode int
		n     int
	}{
		{label, dns.TypeA, dns.RcodeSuccess, 2},
		{strings.ToUpper(label), dns.TypeA, dns.RcodeSuccess, 2},
		{label, dns.TypeAAAA, dns.RcodeSuccess, 1},
		{label, dns.TypeMX, dns.RcodeSuccess, 0},
		{label, dns.TypeANY, dns.RcodeSuccess, 2},
		{label, dns.TypeHTTPS, dns.RcodeSuccess, 1},
		{"store.cloud.example.", dns.TypeA, dns.RcodeSuccess, 2},
		{"ns.cloud.example.", dns.TypeAAAA, dns.RcodeSuccess, 1},
		{"cloud.example.", dns.TypeSOA, dns.RcodeSuccess, 1},
		{"cloud.example.", dns.TypeNS, dns.RcodeSuccess, 1},
		{"cloud.example.", dns.TypeA, dns.RcodeSuccess, 0},
		{"www.cloud.example.", dns.TypeA, dns.RcodeSuccess, 2},
		{"a." + label, dns.TypeA, dns.RcodeSuccess, 2},
		{"*.cloud.example.", dns.TypeA, dns.RcodeSuccess, 2},
		{"a.store.cloud.example.", dns.TypeA, dns.RcodeNameError, 0},
		{"a.b.store.cloud.example.", dns.TypeA, dns.RcodeNameError, 0},
		{"example.", dns.TypeA, dns.RcodeRefused, 0},
		{"evilcloud.example.", dns.TypeA, dns.RcodeRefused, 0},
	} {
		m := ask(s, c.name, c.kind)
		if m.Rcode != c.rcode || len(m.Answer) != c.n {
			t.Errorf("%s %s: %s", c.name, dns.TypeToString[c.kind], m)
		}
		if wants := c.n == 0 && c.rcode != dns.RcodeRefused; wants != (len(m.Ns) == 1) {
			t.Errorf("%s %s: a resolver cannot keep that there is nothing: %s", c.name, dns.TypeToString[c.kind], m)
		}
		for _, rr := range m.Answer {
			if rr.Header().Name != c.name {
				t.Errorf("%s: an answer for %s", c.name, rr.Header().Name)
			}
		}
	}
}

// Whether anybody has a label does not show, as the nameserver does not know: all labels get one answer. With signatures it depends on
// the place of the label in the alphabet, which everybody sees, since it has to deny the names beside.
func TestAnswersTellNothing(t *testing.T) {
	s := server(t, signed(t))
	if err := s.Publish([]byte("the key for hellos"), []byte("the key for hellos")); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeTXT, dns.TypeMX} {
		plain, secure := map[string]bool{}, map[string]map[string]bool{}
		for range 200 {
			name := string(pseudonym.NewLabel()) + ".cloud.example."
			plain[without(name, ask(s, name, kind))] = true
			between := s.content.Load().before(name)
			if secure[between] == nil {
				secure[between] = map[string]bool{}
			}
			secure[between][without(name, askSecure(s, name, kind))] = true
		}
		if len(plain) != 1 {
			t.Errorf("%s: %d answers", dns.TypeToString[kind], len(plain))
		}
		for between, answers := range secure {
			if len(answers) != 1 {
				t.Errorf("%s after %s: %d signed answers", dns.TypeToString[kind], between, len(answers))
			}
		}
	}
}

// without returns an answer and its size without the name that was asked for. The order of addresses is random.
func without(name string, m *dns.Msg) string {
	text := []string{fmt.Sprint(m.Len(), m.Rcode)}
	for _, rr := range append(slices.Clone(m.Answer), m.Ns...) {
		text = append(text, strings.ReplaceAll(rr.String(), name, "NAME"))
	}
	slices.Sort(text)
	return strings.Join(text, "\n")
}

func TestOddQuestions(t *testing.T) {
	s := server(t)
	for name, edit := range map[string]func(*dns.Msg){
		"no question":     func(m *dns.Msg) { m.Question = nil },
		"two questions":   func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) },
		"an update":       func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate },
		"another class":   func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS },
		"a new EDNS":      func(m *dns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) },
		"a zone transfer": func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAXFR },
	} {
		m := new(dns.Msg).SetQuestion("cloud.example.", dns.TypeA)
		edit(m)
		if got := s.Answer(m); len(got.Answer) > 0 {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// serve runs a server for a test.
func serve(t *testing.T, s *Server) (at string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p, err := net.ListenPacket("udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, p, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestServe(t *testing.T) {
	at := serve(t, server(t))
	for _, network := range []string{"udp", "tcp"} {
		m, _, err := (&dns.Client{Net: network}).Exchange(new(dns.Msg).SetQuestion("store.cloud.example.", dns.TypeA), at)
		if err != nil || len(m.Answer) != 2 || !m.Authoritative {
			t.Errorf("%s: %v, %v", network, m, err)
		}
	}
}

func TestNoGateway(t *testing.T) {
	if _, err := New(Options{Zone: apex}); err == nil {
		t.Error("a zone without an address")
	}
}

func FuzzAnswer(f *testing.F) {
	s := server(f, signed(f))
	for _, name := range []string{"cloud.example.", string(pseudonym.NewLabel()) + ".cloud.example."} {
		b, err := new(dns.Msg).SetQuestion(name, dns.TypeA).Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		q := new(dns.Msg)
		if q.Unpack(b) != nil {
			return
		}
		m := s.Answer(q)
		if _, err := m.Pack(); err != nil {
			t.Fatalf("%v: %v", m, err)
		}
	})
}

// The key for hellos is the same for all names of the wildcard, also those that nobody has, and its record is signed like the others.
func TestPublish(t *testing.T) {
	s := server(t, signed(t))
	key, err := ech.NewKey(1, apex.Store(), 40)
	if err != nil {
		t.Fatal(err)
	}
	list := ech.List(key.Config())
	for _, want := range []struct{ own, wild []byte }{{nil, nil}, {list, list}, {list, list}, {list, nil}, {nil, nil}} {
		if err := s.Publish(want.own, want.wild); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string][]byte{"store.cloud.example.": want.own, string(pseudonym.NewLabel()) + ".cloud.example.": want.wild, "x.cloud.example.": want.wild} {
			m := askSecure(s, name, dns.TypeHTTPS)
			verified(t, s, m.Answer)
			var got []byte
			for _, value := range m.Answer[0].(*dns.HTTPS).Value {
				if e, ok := value.(*dns.SVCBECHConfig); ok {
					got = e.ECH
				}
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s: %x, want %x", name, got, want)
			}
		}
		if m := askSecure(s, string(pseudonym.NewLabel())+".cloud.example.", dns.TypeHTTPS); m.Len() > maxPayload || len(m.Answer) != 2 {
			t.Errorf("%d bytes, %d records", m.Len(), len(m.Answer))
		}
		var b strings.Builder
		if err := s.Write(&b); err != nil || strings.Count(b.String(), `ech="`) != 2*min(len(want.own), 1)+min(len(want.wild), 1) {
			t.Errorf("%v\n%s", err, b.String())
		}
	}
}
