package connectudp

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"heddle/internal/connlimit"
	"heddle/path/masque"
)

// The client in these tests is a bare HTTP/3 client that knows nothing of CONNECT-UDP: each test writes the request.

// bare is a connection to the proxy.
type bare struct {
	t    *testing.T
	s    *setup
	quic *quic.Conn
	http *http3.ClientConn
}

func connect(t *testing.T, s *setup) *bare {
	t.Helper()
	c, err := quic.DialAddr(t.Context(), s.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3}},
		&quic.Config{EnableDatagrams: true, HandshakeIdleTimeout: time.Minute, KeepAlivePeriod: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CloseWithError(0, "") })
	b := &bare{t: t, s: s, quic: c, http: (&http3.Transport{EnableDatagrams: true}).NewClientConn(c)}
	<-b.http.ReceivedSettings()
	if set := b.http.Settings(); !set.EnableDatagrams || !set.EnableExtendedConnect {
		t.Fatalf("settings %+v", set)
	}
	return b
}

// ask sends one request and gives the stream and the answer.
func (b *bare) ask(edit func(*http.Request), place string) (*http3.RequestStream, *http.Response) {
	b.t.Helper()
	stream, err := b.http.OpenRequestStream(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	u, err := url.Parse("https://proxy.example" + place)
	if err != nil {
		b.t.Fatal(err)
	}
	r := &http.Request{Method: http.MethodConnect, Proto: "connect-udp", Host: "proxy.example", URL: u, Header: http.Header{
		"Capsule-Protocol": {"?1"}, "Proxy-Authorization": {"Bearer " + b.s.token}}}
	if edit != nil {
		edit(r)
	}
	if err := stream.SendRequestHeader(r); err != nil {
		b.t.Fatal(err)
	}
	response, err := stream.ReadResponse()
	if err != nil {
		b.t.Fatal(err)
	}
	return stream, response
}

// to is the path for a target.
func to(host string, port uint16) string {
	return fmt.Sprintf("/.well-known/masque/udp/%s/%d/", url.PathEscape(host), port)
}

// flow opens one that must succeed.
func (b *bare) flow(at netip.AddrPort) *http3.RequestStream {
	b.t.Helper()
	stream, response := b.ask(nil, to(at.Addr().String(), at.Port()))
	if response.StatusCode != 200 || response.Header.Get("Capsule-Protocol") != "?1" {
		b.t.Fatalf("%s, %v", response.Status, response.Header)
	}
	return stream
}

func (b *bare) receive(stream *http3.RequestStream) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	d, err := stream.ReceiveDatagram(ctx)
	if err != nil || len(d) == 0 || d[0] != 0 {
		b.t.Fatalf("%x, %v", d, err)
	}
	return string(d[1:])
}

// ended waits for the end of a flow, and gives the error code of a reset.
func (b *bare) ended(stream *http3.RequestStream) http3.ErrCode {
	b.t.Helper()
	_, err := stream.Read(make([]byte, 1))
	var reset *http3.Error
	if errors.As(err, &reset) {
		return reset.ErrorCode
	}
	return 0
}

// names is a resolver.
func names(_ context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	known := map[string][]string{"here.example": {"127.0.0.1"}, "inside.example": {"10.0.0.1", "::ffff:10.0.0.1", "fd00::1"},
		"both.example": {"10.0.0.1", "::ffff:127.0.0.1"}}
	var addrs []netip.Addr
	for _, a := range known[host] {
		addrs = append(addrs, netip.MustParseAddr(a))
	}
	if addrs == nil {
		return nil, errors.New("no such host")
	}
	return addrs, nil
}

func TestAnswers(t *testing.T) {
	s := start(t, func(o *Options) { o.lookup = names })
	b := connect(t, s)
	at, _ := echo(t, "127.0.0.1:0")
	good := to("127.0.0.1", at.Port())
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Del("Proxy-Authorization")
			if value != "" {
				r.Header.Set(name, value)
			}
		}
	}
	for name, c := range map[string]struct {
		edit  func(*http.Request)
		place string
		want  int
	}{
		"good":                      {nil, good, 200},
		"as to a server":            {header("Authorization", "Bearer "+s.token), good, 200},
		"a name to look up":         {nil, to("here.example", at.Port()), 200},
		"no credentials":            {header("", ""), good, 407},
		"credentials of no kind":    {header("Proxy-Authorization", "Negotiate x"), good, 407},
		"basic that is no base64":   {header("Proxy-Authorization", "Basic !"), good, 407},
		"bearer that is empty":      {header("Proxy-Authorization", "Bearer "), good, 407},
		"another method":            {func(r *http.Request) { r.Method, r.Proto = "GET", "" }, good, 404},
		"another protocol":          {func(r *http.Request) { r.Proto = "connect-ip" }, good, 404},
		"another path":              {nil, "/", 400},
		"no port":                   {nil, "/.well-known/masque/udp/192.0.2.1//", 400},
		"a port too large":          {nil, "/.well-known/masque/udp/192.0.2.1/65536/", 400},
		"a zone":                    {nil, to("fe80::1%lo", 443), 400},
		"a private target":          {nil, to("192.168.1.1", 443), 403},
		"a name that is no name":    {nil, to("no_such name", 443), 400},
		"a name that is nowhere":    {nil, to("nowhere.example", 443), 502},
		"a name of a private place": {nil, to("inside.example", 443), 403},
		"a name of both":            {nil, to("both.example", at.Port()), 200},
		"an address inside another": {nil, to("64:ff9b::a00:1", 443), 403},
	} {
		stream, response := b.ask(c.edit, c.place)
		if response.StatusCode != c.want {
			t.Errorf("%s: %s, want %d", name, response.Status, c.want)
		}
		if c.want == 407 && len(response.Header["Proxy-Authenticate"]) != 2 {
			t.Errorf("%s: %v", name, response.Header)
		}
		stream.CancelRead(0)
		stream.CancelWrite(0)
	}
}

func TestDatagramsOnTheWire(t *testing.T) {
	s := start(t, nil)
	b := connect(t, s)
	at, _ := echo(t, "127.0.0.1:0")
	stream := b.flow(at)
	for _, d := range [][]byte{{2, 'n', 'o'}, append([]byte{0x40, 0}, "first"...), {0}} {
		if err := stream.SendDatagram(d); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.receive(stream); got != "first" {
		t.Errorf("%q", got)
	}
	if got := b.receive(stream); got != "" {
		t.Errorf("%q", got)
	}
	for _, c := range [][]byte{capsule(0x2843, 4, []byte("what")), capsule(0, 6, append([]byte{0}, "third"...))} {
		if _, err := stream.Write(c); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.receive(stream); got != "third" {
		t.Errorf("%q", got)
	}
	if got := s.settled(t, 3, 3); got.Up != (Direction{3, 10, 1}) || got.Down.Packets != 3 {
		t.Errorf("%+v", got)
	}
	stream.Close()
	if code := b.ended(stream); code != 0 {
		t.Errorf("an orderly end is answered with %v", code)
	}
}

// capsule is one as it stands on the stream; both numbers are written in eight bytes.
func capsule(kind, length uint64, value []byte) []byte {
	eight := func(n uint64) []byte {
		return []byte{0xc0 | byte(n>>56), byte(n >> 48), byte(n >> 40), byte(n >> 32), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
	}
	return bytes.Join([][]byte{eight(kind), eight(length), value}, nil)
}

// Who breaks the protocol loses that flow; the others go on.
func TestBrokenClients(t *testing.T) {
	s := start(t, func(o *Options) { o.MaxFlows = 16 }) // the proxy may be late to see that one ended
	b := connect(t, s)
	at, _ := echo(t, "127.0.0.1:0")
	other := b.flow(at)
	for name, c := range map[string]struct {
		do   func(*http3.RequestStream)
		want http3.ErrCode
	}{
		"empty datagram":    {func(s *http3.RequestStream) { s.SendDatagram(nil) }, http3.ErrCodeMessageError},
		"half a context":    {func(s *http3.RequestStream) { s.SendDatagram([]byte{0x80}) }, http3.ErrCodeMessageError},
		"oversize capsule":  {func(s *http3.RequestStream) { s.Write(capsule(0, 1<<40, nil)) }, 0},
		"truncated capsule": {func(s *http3.RequestStream) { s.Write(capsule(0, 9, []byte{1})); s.Close() }, 0},
		"a payload too long": {func(s *http3.RequestStream) {
			go s.Write(capsule(0, masque.MaxPayload+2, make([]byte, masque.MaxPayload+2)))
		}, http3.ErrCodeMessageError},
	} {
		stream := b.flow(at)
		c.do(stream)
		if code := b.ended(stream); code != c.want {
			t.Errorf("%s: ended with %v, want %v", name, code, c.want)
		}
	}
	other.SendDatagram([]byte{0, 'x'})
	if got := b.receive(other); got != "x" {
		t.Errorf("%q", got)
	}
}

// A datagram too large for the way back is lost, and the flow goes on. (loopback takes packets of 64 KiB.)
func TestLargeDatagramsFromTheTarget(t *testing.T) {
	s := start(t, nil)
	b := connect(t, s)
	target, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	stream := b.flow(target.LocalAddr().(*net.UDPAddr).AddrPort())
	stream.SendDatagram([]byte{0, 'x'})
	buffer := make([]byte, 10)
	_, from, err := target.ReadFromUDPAddrPort(buffer)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1500, largest, 60000, 5} {
		if _, err := target.WriteToUDPAddrPort(make([]byte, size), from); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.receive(stream); len(got) != 5 {
		t.Errorf("%d bytes", len(got))
	}
	if got := s.settled(t, 1, 1).Down; got.Dropped != 3 || got.Packets != 1 {
		t.Errorf("%+v", got)
	}
}

// Others than the target are not heard.
func TestStrangersAreNotHeard(t *testing.T) {
	s := start(t, nil)
	b := connect(t, s)
	target, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	stranger, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	stream := b.flow(target.LocalAddr().(*net.UDPAddr).AddrPort())
	stream.SendDatagram([]byte{0, 'x'})
	_, from, err := target.ReadFromUDPAddrPort(make([]byte, 10))
	if err != nil {
		t.Fatal(err)
	}
	stranger.WriteToUDPAddrPort([]byte("stranger"), from)
	target.WriteToUDPAddrPort([]byte("target"), from)
	if got := b.receive(stream); got != "target" {
		t.Errorf("%q", got)
	}
}

func TestIdleFlowsEnd(t *testing.T) {
	s := start(t, func(o *Options) { o.Idle = 50 * time.Millisecond })
	b := connect(t, s)
	at, _ := echo(t, "127.0.0.1:0")
	if code := b.ended(b.flow(at)); code != 0 {
		t.Errorf("ended with %v", code)
	}
}

func TestDeadTargetResetsTheStream(t *testing.T) {
	s := start(t, nil)
	b := connect(t, s)
	at, socket := echo(t, "127.0.0.1:0")
	socket.Close()
	stream := b.flow(at)
	stream.SendDatagram([]byte{0, 'x'})
	if code := b.ended(stream); code != http3.ErrCodeConnectError {
		t.Errorf("ended with %v", code)
	}
}

// A source that guesses is soon refused, but not with the right token.
func TestGuessingIsBounded(t *testing.T) {
	for tries := 0; ; tries++ {
		begin := time.Now()
		err := guess(t)
		if err == nil {
			return
		}
		// One more guess comes back by then: on a busy machine such a run shows nothing.
		if tries == 10 || time.Since(begin) < connlimit.RefillAfter {
			t.Fatal(err)
		}
	}
}

// guess shows wrong credentials to a new proxy, and gives what was answered otherwise than it should be.
func guess(t *testing.T) error {
	t.Helper()
	s := start(t, nil)
	b := connect(t, s)
	at, _ := echo(t, "127.0.0.1:0")
	good := to("127.0.0.1", at.Port())
	wrong := func(r *http.Request) { r.Header.Set("Proxy-Authorization", "Bearer guess") }
	for i := range connlimit.FailuresAtOnce {
		if _, response := b.ask(wrong, good); response.StatusCode != 407 {
			return fmt.Errorf("guess %d: %s", i, response.Status)
		}
	}
	// Many at once are no way around.
	answers := make(chan int, 3)
	for range cap(answers) {
		go func() { _, response := b.ask(wrong, good); answers <- response.StatusCode }()
	}
	var err error
	for range cap(answers) {
		if got := <-answers; got != 429 {
			err = fmt.Errorf("a guess too many: %d", got)
		}
	}
	if _, response := b.ask(wrong, good); response.StatusCode != 429 || response.Header.Get("Retry-After") == "" {
		err = errors.Join(err, fmt.Errorf("one more guess: %s", response.Status))
	}
	if _, response := b.ask(nil, good); response.StatusCode != 200 {
		t.Errorf("the right token: %s", response.Status) // strangers at the same address do not lock its holder out
	}
	return err
}

// A connection that shows no credentials does not stay.
func TestSilentConnectionsEnd(t *testing.T) {
	over := make(chan func(), 2) // ends the patience with a connection
	s := start(t, func(o *Options) {
		o.after = func(_ time.Duration, f func()) *time.Timer {
			over <- f
			return time.NewTimer(time.Hour)
		}
	})
	b := connect(t, s)
	(<-over)()
	<-b.quic.Context().Done()
	at, _ := echo(t, "127.0.0.1:0")
	known := connect(t, s)
	stream := known.flow(at)
	stream.SendDatagram([]byte{0, 'x'})
	known.receive(stream)
	(<-over)()
	stream.SendDatagram([]byte{0, 'y'})
	if got := known.receive(stream); got != "y" {
		t.Errorf("%q", got)
	}
}

// gateOf is a [Gate] that a test works.
type gateOf func() (Admission, error)

func (g gateOf) Admit(*http.Request, string, uint16) (Admission, error) { return g() }

// A client whose credentials are being checked has shown some in time.
func TestSlowChecksAreWaitedFor(t *testing.T) {
	over := make(chan func(), 2)
	s := start(t, func(o *Options) {
		o.after = func(_ time.Duration, f func()) *time.Timer {
			over <- f
			return time.NewTimer(time.Hour)
		}
		o.Gate = gateOf(func() (Admission, error) {
			(<-over)() // while it is being checked
			return Admission{}, errors.New("not you")
		})
	})
	b := connect(t, s)
	if _, response := b.ask(nil, to("192.0.2.1", 9)); response.StatusCode != http.StatusForbidden {
		t.Errorf("the answer: %s", response.Status)
	}
	(<-over)()
	<-b.quic.Context().Done()
}

// What a connection holds is given back.
func TestNothingIsLeft(t *testing.T) {
	s := start(t, nil)
	b := connect(t, s)
	at, _ := echo(t, "127.0.0.1:0")
	b.flow(at)
	b.flow(at)
	if got := s.Status(); got.Connections != 1 || got.FlowsOpen != 2 {
		t.Errorf("%+v", got)
	}
	b.quic.CloseWithError(0, "")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		got := s.Status()
		if got.Connections == 0 && got.FlowsOpen == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", got)
		}
	}
}
