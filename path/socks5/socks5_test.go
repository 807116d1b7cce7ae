package socks5

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"heddle/internal/polltest"
	"heddle/internal/socks5"
	"heddle/internal/tcptest"
	"heddle/path"
)

// echo answers each datagram with itself.
func echo(t *testing.T) netip.AddrPort {
	t.Helper()
	s, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := s.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			s.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	return s.LocalAddr().(*net.UDPAddr).AddrPort()
}

// newProxyPath rides IPv4's loopback, and nothing else.
func newProxyPath(t *testing.T, arg string, secret path.Secret) path.Path {
	t.Helper()
	under, err := path.New(path.Spec{Name: "lo", Kind: "src", Arg: "127.0.0.1"}, path.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := path.Options{Base: under}
	if secret != "" {
		o.Secret = func(string) (path.Secret, error) { return secret, nil }
	}
	spec, err := path.ParseSpec("p=socks5:" + arg)
	if err != nil {
		t.Fatal(err)
	}
	p, err := path.New(spec, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func open(t *testing.T, p path.Path, to netip.AddrPort) path.Flow {
	t.Helper()
	f, err := path.Open(t.Context(), p, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// exchange sends a datagram and wants it back from the server.
func exchange(t *testing.T, f path.Flow, server netip.AddrPort, text string) {
	t.Helper()
	if n, err := f.Send([][]byte{[]byte(text)}); n != 1 || err != nil {
		t.Fatalf("sent %d: %v", n, err)
	}
	into := make([]path.Inbound, 2)
	n, err := f.Receive(into)
	if err != nil {
		t.Fatal(err)
	}
	if n != 1 || string(into[0].Data) != text || into[0].From != server {
		t.Fatalf("%d received, the first %q from %v; want %q from %v", n, into[0].Data, into[0].From, text, server)
	}
}

func TestDatagramsGoThroughTheProxy(t *testing.T) {
	server := echo(t)
	for name, p := range map[string]*testProxy{
		"plain":              {},
		"password":           {user: "anna", password: "a:b c"},
		"unspecified":        {bound: netip.IPv4Unspecified()},
		"names":              {named: true},
		"fragments, rubbish": {fragments: true},
	} {
		t.Run(name, func(t *testing.T) {
			secret := path.Secret("")
			if p.user != "" {
				secret = path.Secret(p.user + ":" + p.password)
			}
			f := open(t, newProxyPath(t, p.start(t), secret), server)
			for i := range 3 {
				exchange(t, f, server, fmt.Sprint("datagram ", i))
			}
			if err := f.(path.Checker).Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPathRidesAnotherProxy(t *testing.T) {
	server := echo(t)
	near, far := &testProxy{}, &testProxy{}
	specs := []path.Spec{{Name: "near", Kind: "socks5", Arg: near.start(t)}, {Name: "far", Kind: "socks5", Arg: far.start(t), Base: "near"}}
	set, err := path.NewSet(specs, path.Options{})
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, open(t, set["far"], server), server, "through both")
	if got := set["far"].Describe().Observer; got != "socks5:"+specs[0].Arg {
		t.Errorf("who sees the far proxy's path is %s, and the near proxy does", got)
	}
}

func TestStreamsGoThroughTheProxy(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			io.Copy(c, c)
			c.Close()
		}
	}()
	p := &testProxy{user: "anna", password: "secret"}
	way := newProxyPath(t, p.start(t), "anna:secret").(path.Dialer)
	c, err := way.Dial(t.Context(), path.At(netip.MustParseAddrPort(l.Addr().String())))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("stream")); err != nil {
		t.Fatal(err)
	}
	c.(interface{ CloseWrite() error }).CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "stream" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// The name itself is what the proxy gets (RFC 1928, section 5): nobody looks it up here.
func TestNamesGoToTheProxy(t *testing.T) {
	p := &testProxy{}
	to, err := path.HostPort("web.heddle.invalid", 443)
	if err != nil {
		t.Fatal(err)
	}
	c, err := path.Dial(t.Context(), newProxyPath(t, p.start(t), ""), to)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.names) != 1 || p.names[0] != "web.heddle.invalid\x01\xbb" {
		t.Errorf("asked for %q", p.names)
	}
}

func TestRefusals(t *testing.T) {
	const password = "hunter2-very-secret"
	closed := tcptest.Nobody(t)
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	go func() {
		for {
			c, err := web.Accept()
			if err != nil {
				return
			}
			io.CopyN(io.Discard, c, 3)
			io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
			c.Close()
		}
	}()
	for name, c := range map[string]struct {
		proxy     *testProxy
		addr      string
		secret    path.Secret
		why, hint string
	}{
		"refuses UDP":       {proxy: &testProxy{reply: byte(socks5.CommandUnknown)}, why: "refuses UDP", hint: "UDP ASSOCIATE"},
		"rules forbid UDP":  {proxy: &testProxy{reply: byte(socks5.NotAllowed)}, why: "rules forbid", hint: "UDP ASSOCIATE"},
		"unknown code":      {proxy: &testProxy{reply: 77}, why: "code 77"},
		"wrong password":    {proxy: &testProxy{user: "anna", password: "x"}, secret: "anna:" + password, why: "does not accept the user and password", hint: "--secret p=FILE"},
		"wants a password":  {proxy: &testProxy{user: "anna", password: "x"}, why: "wants a user and a password", hint: "--secret p=FILE"},
		"secret of no use":  {proxy: &testProxy{}, secret: password, why: "no user and password", hint: "USER:PASSWORD"},
		"not there":         {addr: closed.String(), why: "cannot be reached", hint: "is it running"},
		"no SOCKS":          {addr: web.Addr().String(), why: "does not speak SOCKS", hint: "SOCKS5 proxy"},
		"stray relay":       {proxy: &testProxy{bound: netip.MustParseAddr("224.0.0.1")}, why: "cannot be"},
		"says nothing":      {proxy: &testProxy{silent: true, spokenTo: make(chan struct{})}, why: "does not answer in time", hint: "SOCKS5 proxy"},
		"relay over no way": {proxy: &testProxy{bound: netip.MustParseAddr("2001:db8::77")}, why: "no way to the proxy's relay"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.proxy != nil {
				c.addr = c.proxy.start(t)
			}
			ctx := t.Context()
			if c.proxy != nil && c.proxy.silent {
				ctx = overdue{ctx, c.proxy.spokenTo}
			}
			f, err := path.Open(ctx, newProxyPath(t, c.addr, c.secret), netip.MustParseAddrPort("127.0.0.1:9"))
			if err == nil {
				f.Close()
				t.Fatal("opened")
			}
			var e *path.Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), c.why) || !strings.Contains(e.Hint, c.hint) {
				t.Errorf("%v (hint: %s)", err, e.HintText())
			}
			if strings.Contains(fmt.Sprintf("%v %+v", err, err), password) {
				t.Errorf("the password is in the error: %v", err)
			}
		})
	}
}

// overdue is a context whose time is up when done is closed.
type overdue struct {
	context.Context
	done chan struct{}
}

func (o overdue) Done() <-chan struct{} { return o.done }

func (o overdue) Err() error {
	select {
	case <-o.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestProxyVanishes(t *testing.T) {
	server := echo(t)
	p := &testProxy{}
	way := newProxyPath(t, p.start(t), "")
	f := open(t, way, server)
	exchange(t, f, server, "before")
	p.vanish()
	polltest.Await(t, "the flow is over", func() bool { return f.(path.Checker).Check() != nil })
	var e *path.Error
	if err := f.(path.Checker).Check(); !errors.As(err, &e) || !strings.Contains(e.Why, "closed the connection") {
		t.Errorf("Check: %v", err)
	}
	if n, err := f.Send([][]byte{[]byte("lost")}); n != 0 || err == nil {
		t.Errorf("%d datagrams went to a proxy that may give their port to somebody else: %v", n, err)
	}
	again := open(t, way, server)
	exchange(t, again, server, "after")
	f.Close()
	if _, err := f.Receive(make([]path.Inbound, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Receive after Close: %v", err)
	}
}

// A burst arrives whole and in order, although the kernel joins its datagrams and their headers.
func TestBursts(t *testing.T) {
	server := echo(t)
	p := &testProxy{}
	f := open(t, newProxyPath(t, p.start(t), ""), server)
	var all [][]byte
	for i := range 300 {
		size := 1200
		if i%40 == 39 {
			size = 7
		}
		all = append(all, bytes.Repeat([]byte{byte(i)}, size))
	}
	into := make([]path.Inbound, 4)
	for burst := all; len(burst) > 0; burst = burst[min(60, len(burst)):] {
		want := burst[:min(60, len(burst))]
		if n, err := f.Send(want); n != len(want) || err != nil {
			t.Fatalf("sent %d: %v", n, err)
		}
		for len(want) > 0 {
			n, err := f.Receive(into)
			if err != nil {
				t.Fatal(err)
			}
			for _, in := range into[:n] {
				for data := in.Data; len(data) > 0; want = want[1:] {
					d := data[:min(in.Size, len(data))]
					data = data[len(d):]
					if !bytes.Equal(d, want[0]) {
						t.Fatalf("%d bytes of %d came, %d of %d were next", len(d), d[0], len(want[0]), want[0][0])
					}
				}
			}
		}
	}
}

func TestArguments(t *testing.T) {
	for _, bad := range []string{"1080", "proxy:", ":1080", "proxy:0", "proxy:65536", "proxy:http", "::1:1080", "[::1]", "[proxy]:1080", "user@proxy:1080", "[::1:1080"} {
		if _, err := path.New(path.Spec{Name: "p", Kind: "socks5", Arg: bad}, path.Options{}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	for _, good := range []string{"proxy:1080", "192.0.2.1:1", "[::1]:65535"} {
		if _, err := path.New(path.Spec{Name: "p", Kind: "socks5", Arg: good}, path.Options{}); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	if _, err := path.New(path.Spec{Name: "p", Kind: "socks5", Arg: "proxy:1", Base: "m"}, path.Options{Base: datagramsOnly{path.NewSystem(0)}}); err == nil {
		t.Error("rides a path without TCP")
	}
}

type datagramsOnly struct{ path.Opener }
