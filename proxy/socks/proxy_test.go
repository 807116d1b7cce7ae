package socks

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"heddle/internal/connlimit"
	"heddle/internal/polltest"
	"heddle/internal/socks5"
	"heddle/proxy/users"
)

func TestCurl(t *testing.T) {
	w := newWorld(t, true)
	proxy, _ := w.serve(t, nil)
	upload := filepath.Join(t.TempDir(), "upload")
	if err := os.WriteFile(upload, bytes.Repeat([]byte("x"), 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		url, want string // want is the page, or a part of curl's complaint
		more      []string
		fails     bool
	}{
		"address":        {"http://10.0.0.1/", "inside 10.0.0.1 0", nil, false},
		"IPv6 address":   {"http://[fd00::1]/", "inside [fd00::1] 0", nil, false},
		"name":           {"http://web.test/", "inside web.test 0", nil, false},
		"name with IPv6": {"http://six.test/", "inside six.test 0", nil, false},
		"short name":     {"http://intranet/", "inside intranet 0", nil, false},
		"upload":         {"http://10.0.0.1/", "inside 10.0.0.1 3145728", []string{"--data-binary", "@" + upload}, false},
		"unknown name":   {"http://nowhere.test/", "", nil, true},
		"localhost":      {"http://localhost/", "", nil, true},
		"closed port":    {"http://10.0.0.1:81/", "", nil, true},
		"outside":        {"http://192.0.2.1/", "", nil, true},
	} {
		for kind, args := range map[string][]string{
			"SOCKS5":       {"--socks5-hostname", proxy},
			"HTTP CONNECT": {"--proxytunnel", "--proxy", "http://" + proxy},
		} {
			out, err := curl(t, append(append(args, test.more...), test.url)...)
			if (err != nil) != test.fails || !strings.Contains(out, test.want) {
				t.Errorf("%s, %s: got %q, %v", name, kind, out, err)
			}
		}
	}
}

// With a file of users, programs show a password, by SOCKS5 and by HTTP, and nobody hears passwords from a source that guesses.
func TestUsers(t *testing.T) {
	w := newWorld(t, false)
	file := filepath.Join(t.TempDir(), "users")
	token, err := users.Add(file, "ann")
	if err != nil {
		t.Fatal(err)
	}
	// A hash of the least cost, so that guesses are checked faster than they come back.
	hash, err := bcrypt.GenerateFromPassword([]byte("password"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	appendTo(t, file, "eve:"+string(hash)+"\n")
	who, err := users.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	proxy, _ := w.serveFor(t, who, nil)
	const page = "http://10.0.0.1/"
	for name, c := range map[string]struct{ user, want string }{
		"right":     {"ann:" + token, "inside 10.0.0.1 0"},
		"none":      {"", ""},
		"wrong":     {"ann:" + token + "x", ""},
		"password":  {"eve:password", "inside 10.0.0.1 0"},
		"no such":   {"bob:" + token, ""},
		"no secret": {"ann:", ""},
	} {
		for kind, args := range map[string][]string{
			"SOCKS5":       {"--socks5-hostname", proxy},
			"HTTP CONNECT": {"--proxytunnel", "--proxy", "http://" + proxy},
		} {
			if c.user != "" {
				args = append(args, "--proxy-user", c.user)
			}
			out, err := curl(t, append(args, page)...)
			if got := err == nil; got != (c.want != "") || !strings.Contains(out, c.want) {
				t.Errorf("%s, %s: got %q, %v", name, kind, out, err)
			}
		}
	}
	// One more guess comes back each few seconds, and curl may take longer on a busy machine: so somebody goes on guessing.
	guess := func() { who.Check(netip.MustParseAddr("127.0.0.1"), "eve", "guess") }
	for range connlimit.FailuresAtOnce {
		guess()
	}
	ctx, cancel := context.WithCancel(t.Context())
	var guessing sync.WaitGroup
	guessing.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			guess()
		}
	})
	defer guessing.Wait()
	defer cancel()
	for kind, args := range map[string][]string{
		"SOCKS5":       {"--socks5-hostname", proxy},
		"HTTP CONNECT": {"--proxytunnel", "--proxy", "http://" + proxy},
	} {
		if out, err := curl(t, append(args, "--proxy-user", "ann:"+token, page)...); err != nil || !strings.Contains(out, "inside") {
			t.Errorf("%s: a token after guesses: got %q, %v", kind, out, err)
		}
	}
	// A guess that comes back at the moment when curl asks is curl's. A busy machine gives curl many such moments.
	polltest.Until(t, func() error {
		out, err := curl(t, "--proxytunnel", "--proxy", "http://"+proxy, "--proxy-user", "eve:password", page)
		if !strings.Contains(out, "429") {
			return fmt.Errorf("a password after guesses: got %q, %v", out, err)
		}
		return nil
	})
}

func appendTo(t *testing.T, file, text string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Each reason has its own SOCKS5 reply (RFC 1928, section 6), which curl prints in brackets.
func TestReplies(t *testing.T) {
	w := newWorld(t, true)
	proxy, _ := w.serve(t, nil)
	for url, want := range map[string]string{
		"http://192.0.2.1/":    "(3)", // not among the AllowedIPs
		"http://nowhere.test/": "(4)",
		"http://10.0.0.1:81/":  "(5)",
	} {
		if out, err := curl(t, "--socks5-hostname", proxy, url); err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: got %q, %v; want %s", url, out, err, want)
		}
	}
	out, err := curl(t, "--proxy", "http://"+proxy, "--fail-with-body", "http://10.0.0.1/")
	if err == nil || !strings.Contains(out, "let the client tunnel") {
		t.Errorf("GET through an HTTP proxy: got %q, %v", out, err)
	}
}

// Without DNS in the file no name is resolved, neither inside nor outside.
func TestNamesWithoutResolver(t *testing.T) {
	w := newWorld(t, false)
	proxy, log := w.serve(t, func(n *Tunnel) { n.Resolver = false })
	for range 2 {
		if out, err := curl(t, "--socks5-hostname", proxy, "http://web.test/"); err == nil || !strings.Contains(out, "(4)") {
			t.Errorf("got %q, %v", out, err)
		}
	}
	if got := log.String(); strings.Count(got, "names no DNS server") != 1 || !strings.Contains(got, "add a DNS line") {
		t.Errorf("the log is %q", got)
	}
	if out, err := curl(t, "--socks5-hostname", proxy, "http://10.0.0.1/"); err != nil || out != "inside 10.0.0.1 0" {
		t.Errorf("an address: got %q, %v", out, err)
	}
	if n := w.questions.Load(); n != 0 {
		t.Errorf("%d names were asked", n)
	}
}

// dialSOCKS sends a request and gives the reply and where the proxy is bound.
func dialSOCKS(t *testing.T, proxy string, request string) (net.Conn, byte, netip.AddrPort) {
	t.Helper()
	c, err := net.Dial("tcp", proxy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write([]byte("\x05\x01\x00" + request)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 12)
	if _, err := io.ReadFull(c, answer); err != nil {
		t.Fatal(err)
	}
	addr, _ := netip.AddrFromSlice(answer[6:10])
	return c, answer[3], netip.AddrPortFrom(addr, uint16(answer[10])<<8|uint16(answer[11]))
}

const associateRequest = "\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00"

func exchange(t *testing.T, c *net.UDPConn, datagram []byte) (string, netip.AddrPort) {
	t.Helper()
	if _, err := c.Write(datagram); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	buffer := make([]byte, 2000)
	n, err := c.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	from, payload, err := socks5.ParseDatagram(buffer[:n])
	if err != nil {
		t.Fatal(err)
	}
	return string(payload), netip.AddrPortFrom(from.Addr, from.Port)
}

func TestUDPAssociate(t *testing.T) {
	w := newWorld(t, true)
	proxy, _ := w.serve(t, nil)
	control, reply, bound := dialSOCKS(t, proxy, associateRequest)
	if reply != byte(socks5.Succeeded) || !bound.Addr().IsLoopback() {
		t.Fatalf("got reply %d, bound to %v", reply, bound)
	}
	local, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(bound))
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	for name, test := range map[string]struct {
		header []byte
		from   netip.AddrPort
	}{
		"IPv4": {socks5.AppendDatagramHeader(nil, netip.AddrPortFrom(far4, 7)), netip.AddrPortFrom(far4, 7)},
		"IPv6": {socks5.AppendDatagramHeader(nil, netip.AddrPortFrom(far6, 7)), netip.AddrPortFrom(far6, 7)},
		"name": {[]byte("\x00\x00\x00\x03\x08web.test\x00\x07"), netip.AddrPortFrom(far4, 7)},
	} {
		for _, text := range []string{"one", "two"} {
			got, from := exchange(t, local, append(bytes.Clone(test.header), text...))
			if got != "echo "+text || from != test.from {
				t.Errorf("%s: got %q from %v", name, got, from)
			}
		}
	}
	checkStranger(t, local, bound)
	control.Close()
	checkAssociationEnds(t, local)
}

// checkStranger sends from another port to the association, which is not served, and then from the client, which is.
func checkStranger(t *testing.T, local *net.UDPConn, bound netip.AddrPort) {
	t.Helper()
	stranger, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(bound))
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	header := socks5.AppendDatagramHeader(nil, netip.AddrPortFrom(far4, 7))
	if _, err := stranger.Write(append(bytes.Clone(header), "stranger"...)); err != nil {
		t.Fatal(err)
	}
	if got, _ := exchange(t, local, append(header, "client"...)); got != "echo client" {
		t.Errorf("after a stranger's datagram: got %q", got)
	}
}

// A program of another user on this machine cannot take an association over: neither with what is no request, nor with a
// request where the client declared its port (RFC 1928, section 6).
func TestAssociationIsNotTakenOver(t *testing.T) {
	w := newWorld(t, false)
	proxy, _ := w.serve(t, nil)
	request := socks5.AppendDatagramHeader(nil, netip.AddrPortFrom(far4, 7))
	for name, c := range map[string]struct {
		declares bool
		stranger []byte
	}{
		"no request":      {false, []byte("x")},
		"a declared port": {true, append(bytes.Clone(request), "stranger"...)},
	} {
		local, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer local.Close()
		associate := []byte(associateRequest)
		if c.declares {
			binary.BigEndian.PutUint16(associate[len(associate)-2:], uint16(local.LocalAddr().(*net.UDPAddr).Port))
		}
		_, reply, bound := dialSOCKS(t, proxy, string(associate))
		if reply != byte(socks5.Succeeded) {
			t.Fatalf("%s: reply %d", name, reply)
		}
		stranger, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(bound))
		if err != nil {
			t.Fatal(err)
		}
		defer stranger.Close()
		if _, err := stranger.Write(c.stranger); err != nil {
			t.Fatal(err)
		}
		if _, err := local.WriteToUDPAddrPort(append(bytes.Clone(request), "client"...), bound); err != nil {
			t.Fatal(err)
		}
		_ = local.SetReadDeadline(time.Now().Add(time.Minute))
		buffer := make([]byte, 2000)
		n, err := local.Read(buffer)
		if err != nil || !bytes.HasSuffix(buffer[:n], []byte("echo client")) {
			t.Errorf("%s: got %q, %v", name, buffer[:n], err)
		}
	}
}

// checkAssociationEnds waits for the socket to be closed: the kernel then refuses datagrams to it.
func checkAssociationEnds(t *testing.T, local *net.UDPConn) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if _, err := local.Write([]byte("x")); err != nil {
			return
		}
		_ = local.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		_, err := local.Read(make([]byte, 10))
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
	t.Error("the association outlives its connection")
}

func TestBoundedAssociations(t *testing.T) {
	w := newWorld(t, true)
	proxy, log := w.serve(t, nil)
	for i := range maxAssociations {
		if _, reply, _ := dialSOCKS(t, proxy, associateRequest); reply != byte(socks5.Succeeded) {
			t.Fatalf("association %d: reply %d", i, reply)
		}
	}
	if _, reply, _ := dialSOCKS(t, proxy, associateRequest); reply != byte(socks5.Failure) {
		t.Errorf("one too many: reply %d", reply)
	}
	if !strings.Contains(log.String(), "no room for another UDP association") {
		t.Errorf("the log is %q", log)
	}
}

func TestRefusals(t *testing.T) {
	w := newWorld(t, true)
	proxy, log := w.serve(t, nil)
	for name, test := range map[string]struct{ send, want string }{
		"BIND":            {"\x05\x01\x00\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00", "\x05\x00\x05\x07"},
		"unknown address": {"\x05\x01\x00\x05\x01\x00\x07", "\x05\x00\x05\x08"},
		"only passwords":  {"\x05\x01\x02", "\x05\xff"},
		"SOCKS4":          {"\x04\x01\x00\x50\x0a\x00\x00\x01\x00", "\x00\x5b"},
		"HTTP garbage":    {"hello\r\n\r\n", "HTTP/1.1 400 "},
		"HTTP no port":    {"CONNECT example.com HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 400 "},
		"huge header":     {"CONNECT 10.0.0.1:80 HTTP/1.1\r\nX: " + strings.Repeat("x", maxHeader), "HTTP/1.1 400 "},
	} {
		c, err := net.Dial("tcp", proxy)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = c.Write([]byte(test.send))
		got := make([]byte, len(test.want))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != test.want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, test.want)
		}
		c.Close()
	}
	if !strings.Contains(log.String(), "SOCKS4") {
		t.Errorf("the log is %q", log)
	}
}

func TestHTTPTarget(t *testing.T) {
	for in, want := range map[string]string{"example.com:443": "example.com:443", "[2001:db8::1]:80": "[2001:db8::1]:80", "192.0.2.1:1": "192.0.2.1:1"} {
		if got, err := httpTarget(in); err != nil || got.String() != want {
			t.Errorf("%s: got %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "example.com", "example.com:", "example.com:0", "example.com:70000", ":80", "a b:80"} {
		if got, err := httpTarget(in); err == nil {
			t.Errorf("%q: got %v, want an error", in, got)
		}
	}
}

// Programs that ask for nothing keep no other program out, however many connections they hold.
func TestIdleClientsKeepNobodyOut(t *testing.T) {
	w := newWorld(t, false)
	proxy, log := w.serve(t, nil)
	for range maxClients + 10 {
		c, err := net.Dial("tcp", proxy)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
	for kind, args := range map[string][]string{
		"SOCKS5":       {"--socks5-hostname", proxy},
		"HTTP CONNECT": {"--proxytunnel", "--proxy", "http://" + proxy},
	} {
		if out, err := curl(t, append(args, "http://10.0.0.1/")...); err != nil {
			t.Errorf("%s: %q, %v; %s", kind, out, err, log)
		}
	}
}

// A full proxy says so, and takes nothing from those that use it.
func TestFullProxy(t *testing.T) {
	w := newWorld(t, false)
	s := New(&Tunnel{Stack: w.near, Addresses: nearAddresses, Allowed: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, nil, nil)
	s.clients = make(chan struct{}, 1)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(ctx, listener) })
	defer serving.Wait()
	defer cancel()
	ask := func() (c net.Conn, reply string) {
		c, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(polltest.Patience))
		fmt.Fprint(c, "CONNECT 10.0.0.1:80 HTTP/1.1\r\nHost: 10.0.0.1:80\r\n\r\n")
		reply, err = bufio.NewReader(c).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return c, reply
	}
	first, reply := ask()
	if !strings.Contains(reply, "200") {
		t.Fatal(reply)
	}
	if _, reply := ask(); !strings.Contains(reply, "503") {
		t.Errorf("a full proxy answers %q", reply)
	}
	fmt.Fprint(first, "GET / HTTP/1.0\r\nHost: x\r\n\r\n")
	if page, err := io.ReadAll(first); err != nil || !strings.Contains(string(page), "inside") {
		t.Errorf("who uses it got %q, %v", page, err)
	}
	first.Close()
	polltest.Await(t, "the place is free again", func() bool { return len(s.clients) == 0 })
	if _, reply := ask(); !strings.Contains(reply, "200") {
		t.Errorf("later it answers %q", reply)
	}
}
