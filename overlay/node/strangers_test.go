package node

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/identity"
	"heddle/internal/connlimit"
	"heddle/internal/polltest"
	"heddle/internal/tcptest"
	"heddle/overlay/client"
)

// knock connects to the node's port without TLS.
func (s *setup) knock(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// greet connects as somebody with a key, whose handshake is part of the first word.
func (s *setup) greet(t *testing.T, id identity.Identity) *tls.Conn {
	t.Helper()
	config, err := id.Client(s.Key(), client.Protocol)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Client(s.knock(t), config)
}

// speak is greet where the node answers.
func (s *setup) speak(t *testing.T, id identity.Identity) *tls.Conn {
	t.Helper()
	c := s.greet(t, id)
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	return c
}

// Who says nothing, or too little for too long, is shown out; and so is who says what means nothing.
func TestStrangersAreShownOut(t *testing.T) {
	s := start(t, func(o *Options) { o.patience = 300 * time.Millisecond })
	stranger := fresh(t)
	for name, c := range map[string]struct {
		conn net.Conn
		says string
	}{
		"nothing":              {s.knock(t), ""},
		"rubbish":              {s.knock(t), "\x00\x01\x02 rubbish\r\n\r\n"},
		"HTTP without TLS":     {s.knock(t), "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
		"half a hello":         {s.knock(t), "\x16\x03\x01\x02\x00\x01\x00"},
		"a handshake, no more": {s.greet(t, stranger), ""},
		"half a request":       {s.greet(t, stranger), "CONNECT 127.0.0.1:1 HTTP/1.1\r\nHeddle-Gr"},
	} {
		io.WriteString(c.conn, c.says)
		c.conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, c.conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: nobody closed", name)
		}
	}
	polltest.Await(t, "the door is empty", func() bool { return s.crowd.Count() == 0 })
}

// patiently has a node show nobody out for being slow: how long it takes to fill the door is the machine's affair, and who
// leaves it was turned away.
func patiently(o *Options) { o.patience = time.Hour }

// shownOut fails where the node lets a connection stay.
func shownOut(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(polltest.Patience))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it may stay: %v", err)
	}
}

// Each source has so many places at the door, and a stream needs none.
func TestDoorHasSoManyPlaces(t *testing.T) {
	s := start(t, patiently)
	to := tcptest.Serve(t, tcptest.Echo)
	if _, err := s.through(t, t.Context(), s.grant(t, nil), to); err != nil {
		t.Fatal(err)
	}
	first := s.knock(t)
	io.WriteString(first, "\x16") // who says nothing is shown out in any case
	for range connlimit.Strangers.Source {
		s.knock(t)
	}
	shownOut(t, first)
	if s.flows.Count() != 1 {
		t.Error("a stream that is open suffers from it")
	}
}

// A holder who asks and carries nothing takes a place at the door like everybody: grants are no way to fill the node.
func TestAskingTakesAPlace(t *testing.T) {
	s := start(t, patiently)
	grant := s.grant(t, nil)
	var open []*tls.Conn
	for range connlimit.Guests.Source + 1 {
		c := s.speak(t, s.holder)
		io.WriteString(c, "GET "+client.StatusURL+" HTTP/1.1\r\nHost: x\r\nHeddle-Grant: "+grant.String()+"\r\n\r\n")
		if answer, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", answer, err)
		}
		open = append(open, c)
	}
	shownOut(t, open[0])
	if _, err := s.through(t, t.Context(), grant, tcptest.Serve(t, tcptest.Echo)); err != nil {
		t.Errorf("beside these: %v", err)
	}
}

// Who shows wrong grants may do so a few times.
func TestWrongGrantsAreSlowedDown(t *testing.T) {
	s := start(t, nil)
	to := tcptest.Serve(t, tcptest.Echo)
	stolen, thief := s.grant(t, nil), fresh(t)
	begin := time.Now()
	for tries := 0; ; tries++ {
		_, err := dialBy(t, t.Context(), s.pass(stolen), thief, to)
		if reasonOf(err) == client.ReasonBusy && tries >= connlimit.FailuresAtOnce {
			return
		}
		more := int(time.Since(begin) / connlimit.RefillAfter) // on a busy machine
		if reasonOf(err) != client.ReasonHolder || tries >= connlimit.FailuresAtOnce+more {
			t.Fatalf("try %d: %v", tries, err)
		}
	}
}

func TestHostileRequests(t *testing.T) {
	s := start(t, func(o *Options) {
		o.lookup = func(context.Context, string, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil
		}
	})
	grant := s.grant(t, nil).String()
	ask := func(text string) string {
		t.Helper()
		c := s.speak(t, s.holder)
		io.WriteString(c, text)
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return "no answer"
		}
		return strings.TrimSpace(answer.Status[:3] + " " + strings.SplitN(answer.Header.Get("Heddle-Refused"), " ", 2)[0])
	}
	header := "\r\nHost: x\r\nHeddle-Grant: " + grant + "\r\n\r\n"
	for text, want := range map[string]string{
		"CONNECT 127.0.0.1 HTTP/1.1" + header:                                        "400 request-malformed",
		"CONNECT 127.0.0.1:0 HTTP/1.1" + header:                                      "400 request-malformed",
		"CONNECT 127.0.0.1:99999 HTTP/1.1" + header:                                  "400 request-malformed",
		"CONNECT [fe80::1%25lo]:80 HTTP/1.1" + header:                                "400 request-malformed",
		"CONNECT a..b:80 HTTP/1.1" + header:                                          "400 request-malformed",
		"CONNECT www.example.org:80 HTTP/1.1" + header:                               "403 destination-not-allowed",
		"CONNECT 169.254.169.254:80 HTTP/1.1" + header:                               "403 destination-not-allowed",
		"CONNECT [::ffff:10.0.0.1]:80 HTTP/1.1" + header:                             "403 destination-not-allowed",
		"GET / HTTP/1.1" + header:                                                    "400 request-malformed",
		"GET http://127.0.0.1/ HTTP/1.1" + header:                                    "400 request-malformed",
		"POST /v1/survey HTTP/1.1" + header:                                          "501 mode-not-served",
		"POST /v1/nat HTTP/1.1" + header:                                             "501 mode-not-served",
		"CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: x\r\nHeddle-Grant: x\r\n\r\n":        "407 grant-malformed",
		"CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: x\r\n\r\n":                           "407 grant-missing",
		"GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n": "431",
	} {
		if got := ask(text); got != want {
			t.Errorf("%.60q: %q, want %q", text, got, want)
		}
		for range 3 {
			s.failures.GiveBack(connlimit.SourceOf(s.listener.Addr()))
		}
	}
	if s.flows.Count() != 0 {
		t.Error("a refused request holds a place")
	}
}

// Names lead where the grant says, and never to what is not public.
func TestNames(t *testing.T) {
	s := start(t, nil)
	for text, allowed := range map[string]bool{"192.0.2.0/24:443": true, "www.example.org:443": true, "other.example.org:443": false, "www.example.org:80": false} {
		where, err := s.places(client.Grant{To: []string{text}})
		if err != nil {
			t.Fatal(err)
		}
		if got := where.named("WWW.example.org.", 443); got != allowed {
			t.Errorf("%s: DNS is asked: %v", text, got)
		}
	}
	where, err := s.places(client.Grant{To: []string{"www.example.org:443", "10.0.0.0/8:22"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		host, to string
		want     bool
	}{
		{"www.example.org", "93.184.216.34:443", true},
		{"www.example.org", "10.0.0.1:443", false}, // a name that comes to mean a private address
		{"www.example.org", "127.0.0.1:443", false},
		{"www.example.org", "[::1]:443", false},
		{"other.example.org", "93.184.216.34:443", false},
		{"", "93.184.216.34:443", false},
		{"10.0.0.1", "10.0.0.1:22", true},
		{"10.0.0.1", "10.0.0.1:23", false},
	} {
		if got := where.allowed(c.host, mustAddrPort(c.to)); got != c.want {
			t.Errorf("%s at %s: %v", c.host, c.to, got)
		}
	}
}

func TestDenyGoesBeforeGrants(t *testing.T) {
	to := tcptest.Serve(t, tcptest.Echo)
	denied, err := client.ParseDestination("127.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, func(o *Options) { o.Deny = []client.Destination{denied} })
	if _, err := s.through(t, t.Context(), s.grant(t, nil), to); reasonOf(err) != client.ReasonDestination {
		t.Errorf("%v", err)
	}
}

// What is denied in IPv4 is denied by each IPv6 address that leads there.
func TestDenyLooksInside(t *testing.T) {
	denied, err := client.ParseDestination("9.9.9.0/24")
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, func(o *Options) { o.Deny = []client.Destination{denied} })
	for to, want := range map[string]bool{"9.9.9.9": false, "9.9.8.9": true, "64:ff9b::909:909": false, "64:ff9b::909:809": true, "2002:909:909::1": false,
		"64:ff9b:1::909:909": false, "64:ff9b:1::909:809": true, "2001:db8::5efe:909:909": false, "::ffff:9.9.9.9": false, "168.63.129.16": false} {
		where, err := s.places(client.Grant{To: []string{"9.0.0.0/8", "2000::/3", "64:ff9b::/96", "64:ff9b:1::/48", "168.63.0.0/16"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := where.allowed("", netip.AddrPortFrom(netip.MustParseAddr(to), 443)); got != want {
			t.Errorf("%s: %v", to, got)
		}
	}
}

// A list that cannot be read revokes all; a list that is gone does too.
func TestBrokenListServesNobody(t *testing.T) {
	s := start(t, nil)
	to := tcptest.Serve(t, tcptest.Echo)
	grant := s.grant(t, nil)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(s.o.Revoked, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.enforce()
	}
	write("# nobody\n\n" + fresh(t).Key().String() + " # somebody\n")
	if _, err := s.through(t, t.Context(), grant, to); err != nil {
		t.Errorf("another holder is revoked: %v", err)
	}
	write("what is this\n")
	if _, err := s.through(t, t.Context(), grant, to); reasonOf(err) != client.ReasonRevoked {
		t.Errorf("a broken list: %v", err)
	}
	write(strings.Repeat("0", 32) + "\n")
	if _, err := s.through(t, t.Context(), grant, to); err != nil {
		t.Errorf("mended: %v", err)
	}
	os.Remove(s.o.Revoked)
	s.enforce()
	if _, err := s.through(t, t.Context(), grant, to); reasonOf(err) != client.ReasonRevoked {
		t.Errorf("a list that is gone: %v", err)
	}
}

func TestRevokeKeepsWhatIsThere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "revoked")
	one, two := strings.Repeat("0", 32), fresh(t).Key().String()
	if err := os.WriteFile(file, []byte("# ours\n"+one), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Revoke(file, two, "left\nus"); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if want := "# ours\n" + one + "\n" + two + " # left us\n"; err != nil || string(text) != want {
		t.Errorf("%q, want %q, %v", text, want, err)
	}
	if err := Revoke(file, "everybody", ""); err == nil {
		t.Error("a word was taken")
	}
}

func FuzzParseRevoked(f *testing.F) {
	f.Add([]byte("# a\n" + strings.Repeat("0", 32) + "\ned25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE # b\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := parseRevoked(text)
		if err != nil {
			return
		}
		var again bytes.Buffer
		for word := range list {
			again.WriteString(word + "\n")
		}
		if back, err := parseRevoked(again.Bytes()); err != nil || len(back) != len(list) {
			t.Errorf("%v, %v", back, err)
		}
	})
}

func FuzzSplitAddress(f *testing.F) {
	f.Add("[2001:db8::1]:443")
	f.Fuzz(func(t *testing.T, text string) {
		if host, port, err := client.SplitAddress(text); err == nil && (host == "" || port == 0) {
			t.Errorf("%q is %q and %d", text, host, port)
		}
	})
}

// FuzzRequests: whatever a holder says once TLS is up, the node answers or closes, reaches nothing that the grant does not
// lead to, and keeps nothing.
func FuzzRequests(f *testing.F) {
	for _, text := range []string{
		"GET /v1/status HTTP/1.1\r\nHost: x\r\nHeddle-Grant: GRANT\r\n\r\n",
		"CONNECT 127.0.0.1:9 HTTP/1.1\r\nHost: x\r\nHeddle-Grant: GRANT\r\n\r\nearly",
		"POST /v1/survey HTTP/1.1\r\nHost: x\r\nHeddle-Grant: GRANT\r\nContent-Length: 20\r\n\r\n{\"to\":\"127.0.0.1:9\"}",
		"POST /v1/nat HTTP/1.1\r\nHost: x\r\nHeddle-Grant: GRANT\r\nContent-Length: 28\r\n\r\n{\"to\":\"127.0.0.1:9\",\"ttl\":9}",
		"POST /v1/nat/0 HTTP/1.1\r\nHost: x\r\nHeddle-Grant: GRANT\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"DELETE /v1/nat/%2e HTTP/1.1\r\nHost: x\r\nHeddle-Grant: GRANT\r\n\r\n",
	} {
		f.Add(text)
	}
	rules := &table{rules: map[string]client.NATLease{}}
	s := start(f, func(o *Options) {
		o.Modes, o.NAT, o.patience = client.Modes(), rules, time.Second
		o.Survey = func(_ context.Context, to netip.AddrPort) (any, error) { return to, nil }
		o.lookup = func(context.Context, string, string) ([]netip.Addr, error) { return nil, errors.New("no DNS here") }
	})
	allowed := netip.MustParseAddrPort("127.0.0.1:9") // where nobody answers
	grant := s.grant(f, func(g *client.Grant) { g.Modes, g.To = client.Modes(), []string{allowed.String()} })
	config, err := s.holder.Client(s.Key(), client.Protocol)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		raw, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		c := tls.Client(raw, config)
		text = strings.ReplaceAll(text, "GRANT", grant.String())
		io.WriteString(c, text)
		c.CloseWrite()
		c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the node neither answers nor closes")
		}
		rules.mu.Lock()
		defer rules.mu.Unlock()
		for _, r := range rules.rules {
			if r.To != allowed {
				t.Errorf("a lease to %v", r.To)
			}
		}
		clear(rules.rules)
		s.failures.GiveBack(connlimit.SourceOf(s.listener.Addr()))
	})
}
