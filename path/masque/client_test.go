package masque

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"golang.org/x/sys/unix"

	"heddle/internal/errhint"
	"heddle/path"
)

// The other side in these tests is a bare HTTP/3 server that knows nothing of CONNECT-UDP: each test says what it
// answers.

var target = netip.MustParseAddrPort("[2001:db8::42]:443")

// bare is a QUIC server on loopback.
type bare struct {
	addr  netip.AddrPort
	pin   string
	conns atomic.Int64
}

func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// listen gives what connections go to serve.
func listen(t *testing.T, alpn string, config *quic.Config, serve func(*quic.Conn)) *bare {
	t.Helper()
	cert := certificate(t)
	l, err := quic.ListenAddr("127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{alpn}}, config)
	if err != nil {
		t.Fatal(err)
	}
	b := &bare{addr: l.Addr().(*net.UDPAddr).AddrPort(), pin: Pin(cert.Leaf)}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			b.conns.Add(1)
			go serve(c)
		}
	}()
	return b
}

// serveHTTP is a bare server with a handler.
func serveHTTP(t *testing.T, handler http.HandlerFunc) *bare {
	t.Helper()
	s := &http3.Server{Handler: handler, EnableDatagrams: true, Logger: slog.New(slog.DiscardHandler)}
	t.Cleanup(func() { s.Close() })
	return listen(t, http3.NextProtoH3, &quic.Config{EnableDatagrams: true}, func(c *quic.Conn) { s.ServeQUICConn(c) })
}

// hijack answers 200 and hands the stream to talk.
func hijack(t *testing.T, talk func(*http3.Stream)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		s, err := w.(http3.HTTPStreamer).HTTPStream()
		if err != nil {
			t.Error(err)
			return
		}
		talk(s)
	}
}

func (b *bare) way(t *testing.T, place string, secret path.Secret) *tunnel {
	t.Helper()
	o := path.Options{}
	if secret != "" {
		o.Secret = func(string) (path.Secret, error) { return secret, nil }
	}
	p, err := path.New(path.Spec{Name: "m", Kind: Scheme, Arg: "https://" + b.addr.String() + place + "#sha256=" + b.pin}, o)
	if err != nil {
		t.Fatal(err)
	}
	return p.(*tunnel)
}

func tryOpen(t *testing.T, p path.Path, to netip.AddrPort) (path.Flow, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return path.Open(ctx, p, to)
}

func mustOpen(t *testing.T, p path.Path, to netip.AddrPort) *flow {
	t.Helper()
	f, err := tryOpen(t, p, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f.(*flow)
}

func receive(t *testing.T, f path.Flow) string {
	t.Helper()
	into := make([]path.Inbound, 1)
	n, err := f.Receive(into)
	if n != 1 || err != nil || into[0].From != target {
		t.Fatalf("%d, %v from %v", n, err, into[0].From)
	}
	return string(into[0].Data)
}

func TestRequestOnTheWire(t *testing.T) {
	requests := make(chan *http.Request, 1)
	b := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		requests <- r
		hijack(t, func(s *http3.Stream) { <-s.Context().Done() })(w, r)
	})
	f := mustOpen(t, b.way(t, "/masque{?target_host,target_port}", "Aladdin:open sesame"), target)
	r := <-requests
	if r.Method != "CONNECT" || r.Proto != "connect-udp" || r.Host != b.addr.String() || r.RequestURI != "/masque?target_host=2001%3Adb8%3A%3A42&target_port=443" {
		t.Errorf("%s %s %s %s", r.Method, r.Proto, r.Host, r.RequestURI)
	}
	want := http.Header{"Capsule-Protocol": {"?1"}, "Proxy-Authorization": {"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="}}
	if fmt.Sprint(r.Header) != fmt.Sprint(want) {
		t.Errorf("header %v, want %v", r.Header, want)
	}
	if a := f.LocalAddr(); a.Addr() != netip.MustParseAddr("127.0.0.1") || a.Port() == 0 {
		t.Errorf("local address %v", a)
	}
}

// What arrives is read as RFC 9297 and RFC 9298 have it, whichever way it comes.
func TestDatagramsOnTheWire(t *testing.T) {
	sent := make(chan []byte, 1)
	b := serveHTTP(t, hijack(t, func(s *http3.Stream) {
		d, err := s.ReceiveDatagram(context.Background())
		if err != nil {
			t.Error(err)
			return
		}
		sent <- d
		s.SendDatagram([]byte{2, 'n', 'o'})                     // a context that was never registered
		s.Write(capsule(0x2843, 4, []byte("what")))             // a capsule that nobody knows
		s.Write(capsule(0, 8, append([]byte{0}, "capsule"...))) // the same datagrams on the stream
		s.Write(capsule(0, 3, []byte{4, 'n', 'o'}))
		s.SendDatagram([]byte{0})
		s.SendDatagram(append([]byte{0x40, 0}, "last"...))
		<-s.Context().Done()
	}))
	f := mustOpen(t, b.way(t, "", ""), target)
	if n, err := f.Send([][]byte{[]byte("hello")}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if got := <-sent; !bytes.Equal(got, append([]byte{0}, "hello"...)) {
		t.Errorf("sent %q", got)
	}
	got := map[string]bool{}
	for range 3 {
		got[receive(t, f)] = true
	}
	if !got["capsule"] || !got[""] || !got["last"] {
		t.Errorf("%v", got)
	}
}

// A proxy that breaks the protocol, or goes, ends the flow with words; none of quic-go's errors gets out, since they
// count as net.ErrClosed.
func TestFlowsThatEnd(t *testing.T) {
	for name, c := range map[string]struct {
		talk func(*http3.Stream)
		want string
	}{
		"empty datagram":     {func(s *http3.Stream) { s.SendDatagram(nil); <-s.Context().Done() }, "breaks the protocol"},
		"half a context":     {func(s *http3.Stream) { s.SendDatagram([]byte{0x80, 1}); <-s.Context().Done() }, "breaks the protocol"},
		"truncated capsule":  {func(s *http3.Stream) { s.Write([]byte{0, 9, 1}); s.Close() }, "unexpected EOF"},
		"oversize capsule":   {func(s *http3.Stream) { s.Write(capsule(0, 1<<40, nil)); <-s.Context().Done() }, "longer than any"},
		"orderly end":        {func(s *http3.Stream) { s.Close() }, "the proxy closed it"},
		"target unreachable": {func(s *http3.Stream) { s.CancelWrite(quic.StreamErrorCode(http3.ErrCodeConnectError)) }, "cannot reach the target"},
		"reset":              {func(s *http3.Stream) { s.CancelWrite(quic.StreamErrorCode(http3.ErrCodeInternalError)) }, "H3_INTERNAL_ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			f := mustOpen(t, serveHTTP(t, hijack(t, func(s *http3.Stream) {
				s.ReceiveDatagram(context.Background()) // so that a reset does not overtake the answer
				c.talk(s)
			})).way(t, "", ""), target)
			if n, err := f.Send([][]byte{{1}}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			_, err := f.Receive(make([]path.Inbound, 1))
			var e *path.Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) || errors.Is(err, net.ErrClosed) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if err := f.Check(); err == nil {
				t.Error("a dead flow passes its check")
			}
			if n, err := f.Send([][]byte{{1}}); n != 0 || err == nil {
				t.Errorf("a dead flow sends: %d, %v", n, err)
			}
		})
	}
}

func TestStatuses(t *testing.T) {
	var status atomic.Int64
	field := atomic.Pointer[http.Header]{}
	b := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		for k, v := range *field.Load() {
			w.Header()[k] = v
		}
		w.WriteHeader(int(status.Load()))
	})
	for _, c := range []struct {
		code   int
		field  http.Header
		secret path.Secret
		want   string
	}{
		{407, nil, "", "wants a password or token"},
		{401, nil, "a:b", "does not take the password or token"},
		{403, http.Header{"Proxy-Status": {"x; error=destination_ip_prohibited"}}, "", "does not forward to [2001:db8::42]:443, destination_ip_prohibited"},
		{404, nil, "", "proxies no UDP under this address (HTTP status 404)"},
		{429, http.Header{"Retry-After": {"30"}}, "", "HTTP status 429"},
		{502, http.Header{"Proxy-Status": {"x; error=See http://evil"}}, "", "cannot reach [2001:db8::42]:443 (HTTP status 502)"},
		{302, http.Header{"Location": {"https://elsewhere.example/"}}, "", "HTTP status 302"},
	} {
		status.Store(int64(c.code))
		field.Store(&c.field)
		_, err := tryOpen(t, b.way(t, "", c.secret), target)
		var e *path.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d: %v, want %q", c.code, err, c.want)
		}
		if err != nil && c.secret != "" && strings.Contains(fmt.Sprintf("%+v %s", err, e.Hint), string(c.secret)) {
			t.Errorf("%d: the secret is shown: %v", c.code, err)
		}
	}
}

func TestServersThatAreNoProxies(t *testing.T) {
	idle := func(c *quic.Conn) { <-c.Context().Done() }
	settings := func(bytes ...byte) func(*quic.Conn) {
		return func(c *quic.Conn) {
			s, err := c.OpenUniStream()
			if err != nil {
				t.Error(err)
				return
			}
			s.Write(append([]byte{0, 4, byte(len(bytes))}, bytes...)) // a control stream with SETTINGS
			<-c.Context().Done()
		}
	}
	for name, c := range map[string]struct {
		alpn   string
		config *quic.Config
		serve  func(*quic.Conn)
		want   string
	}{
		"another protocol":    {"doq", nil, idle, "does not speak HTTP/3"},
		"no extended CONNECT": {http3.NextProtoH3, &quic.Config{EnableDatagrams: true}, settings(0x33, 1), "no extended CONNECT"},
		"no HTTP datagrams":   {http3.NextProtoH3, &quic.Config{EnableDatagrams: true}, settings(8, 1), "no HTTP/3 datagrams"},
		"no QUIC datagrams":   {http3.NextProtoH3, nil, settings(8, 1, 0x33, 1), "atagram"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tryOpen(t, listen(t, c.alpn, c.config, c.serve).way(t, "", ""), target)
			var e *path.Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) || errors.Is(err, net.ErrClosed) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// A proxy with several addresses may answer from one that was not asked.
func TestProxyThatAnswersFromElsewhere(t *testing.T) {
	var sockets []net.PacketConn
	for range 2 {
		s, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		sockets = append(sockets, s)
	}
	go func() {
		for {
			_, from, err := sockets[0].ReadFrom(make([]byte, 1500))
			if err != nil {
				return
			}
			sockets[1].WriteTo([]byte("answer"), from)
		}
	}()
	b := &bare{addr: sockets[0].LocalAddr().(*net.UDPAddr).AddrPort(), pin: Pin(certificate(t).Leaf)}
	p := b.way(t, "", "")
	_, err := p.dialAddress(t.Context(), b.addr, 0)
	if !isSilence(err) {
		t.Fatalf("%v is no silence", err)
	}
	err = p.explainDial(b.addr, err)
	if answers := sockets[1].LocalAddr().String(); !strings.Contains(errhint.Of(err), answers) || errors.Is(err, net.ErrClosed) {
		t.Errorf("%v, hint %q; want one that names %s", err, errhint.Of(err), answers)
	}
}

func TestConnectionIsSharedAndLetGo(t *testing.T) {
	b := serveHTTP(t, hijack(t, func(s *http3.Stream) { <-s.Context().Done() }))
	p := b.way(t, "", "")
	p.keep = 0
	opened := make(chan *flow)
	for range 8 {
		go func() { f, _ := tryOpen(t, p, target); opened <- f.(*flow) }()
	}
	var flows []*flow
	for range 8 {
		flows = append(flows, <-opened)
	}
	c := flows[0].conn
	for _, f := range flows {
		if c.quic.Context().Err() != nil {
			t.Error("the connection is gone before its last flow")
		}
		f.Close()
		if err := f.Close(); err != net.ErrClosed {
			t.Errorf("closed twice: %v", err)
		}
	}
	<-c.quic.Context().Done()
	mustOpen(t, p, target)
	if got := b.conns.Load(); got != 2 {
		t.Errorf("%d connections, want one and another after a pause", got)
	}
}

// A congested connection does not hold up whoever sends: what has no room is lost, and told of.
func TestSendDoesNotWait(t *testing.T) {
	b := serveHTTP(t, hijack(t, func(s *http3.Stream) { <-s.Context().Done() }))
	f := mustOpen(t, b.way(t, "", ""), target)
	burst := make([][]byte, 20000)
	for i := range burst {
		burst[i] = make([]byte, 1200)
	}
	n, err := f.Send(burst)
	var u *path.Unreachable
	if n == len(burst) || !errors.As(err, &u) || u.Errno != unix.ENOBUFS {
		t.Errorf("sent %d of %d, %v", n, len(burst), err)
	}
}

func TestRefusalsGrowAndAreBounded(t *testing.T) {
	var r refusals
	now := time.Now()
	failed := errors.New("no")
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		r.note(target, failed, now)
		if r.standing(target, now.Add(want*time.Second-1)) != failed || r.standing(target, now.Add(want*time.Second)) != nil {
			t.Errorf("it does not stand for %d s", want)
		}
	}
	r.forgive(target)
	r.note(target, &laterError{&path.Error{}, 30 * time.Second}, now)
	if r.standing(target, now.Add(29*time.Second)) == nil {
		t.Error("what the proxy asked for is not kept")
	}
	r.note(netip.AddrPort{}, failed, now)
	for port := range 200 {
		r.note(netip.AddrPortFrom(target.Addr(), uint16(port+1000)), failed, now)
	}
	if len(r.of) > maxRefusals || r.standing(netip.AddrPort{}, now) == nil {
		t.Errorf("%d are kept", len(r.of))
	}
}

func TestPacketSizes(t *testing.T) {
	for _, c := range []struct{ mtu, overhead, want int }{
		{0, headers6, PacketRoomy}, {1500, headers6, PacketRoomy}, {1420, headers4, PacketRoomy}, {1420, headers6, 1372}, {1350, headers4, 1322}, {1308, headers4, 1280},
		{1307, headers4, 0}, {1280, headers6, 0},
	} {
		if got := firstPacket(c.mtu, c.overhead); got != c.want {
			t.Errorf("MTU %d less %d: %d, want %d", c.mtu, c.overhead, got, c.want)
		}
	}
	if got := payloadOf(PacketNarrow); got < 1200 {
		t.Errorf("the narrow size carries %d bytes", got)
	}
	if got := payloadOf(PacketRoomy); got < 1280+32 || got < 1350 {
		t.Errorf("the roomy size carries %d bytes: no WireGuard of 1,280, or no server of quiche", got)
	}
}
