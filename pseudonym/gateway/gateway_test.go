package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"heddle/internal/clienthello"
	"heddle/internal/polltest"
	"heddle/internal/tcptest"
	"heddle/pseudonym"
	"heddle/pseudonym/ech"
)

const zone = pseudonym.Zone("cloud.example")

// routes is a router that a test changes.
type routes struct {
	mu  sync.Mutex
	to  map[pseudonym.Label][]string
	err error

	until map[pseudonym.Label][]time.Time // the answers to questions; the last holds on
}

func (r *routes) Route(_ context.Context, l pseudonym.Label) (Place, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return Place{}, r.err
	}
	if to, ok := r.to[l]; ok {
		place := Place{Addresses: to}
		if all := r.until[l]; len(all) > 0 {
			place.Until = all[0]
			r.until[l] = all[min(1, len(all)-1):]
		}
		return place, nil
	}
	return Place{}, pseudonym.ErrNone
}

func (r *routes) Ended(ctx context.Context, labels []pseudonym.Label) (ended []pseudonym.Label, err error) {
	for _, l := range labels {
		if _, err := r.Route(ctx, l); errors.Is(err, pseudonym.ErrNone) {
			ended = append(ended, l)
		} else if err != nil {
			return ended, err
		}
	}
	return ended, nil
}

func (r *routes) set(l pseudonym.Label, to ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(to) == 0 {
		delete(r.to, l)
		return
	}
	r.to[l] = to
}

func start(t testing.TB, r *routes, own map[string][]string, keys ...*ech.Key) (*Gateway, string) {
	t.Helper()
	o := Options{Zone: zone, Router: r, Own: own, Log: slog.New(slog.DiscardHandler)}
	if len(keys) > 0 {
		o.Hellos = func() []*ech.Key { return keys }
	}
	g := New(o)
	g.patience = polltest.Patience // a busy machine may be slow between two parts of a hello
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return g, l.Addr().String()
}

// tenant tells the client's address, as it learns it, and the name in the ClientHello, and echoes what follows that.
func tenant(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	introduced := Introduced(l, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := introduced.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, hello, err := readHello(c, helloFor)
				if err != nil {
					return
				}
				io.WriteString(c, c.RemoteAddr().String()+" "+hello.ServerName+"\n")
				io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

// hello is a ClientHello for a name, of more than a segment.
func hello(t testing.TB, name string) []byte {
	t.Helper()
	near, far := net.Pipe()
	go func() {
		tls.Client(near, &tls.Config{ServerName: name, NextProtos: []string{string(make([]byte, 200)) + "x"}}).Handshake()
		near.Close()
	}()
	far.SetReadDeadline(time.Now().Add(time.Minute))
	all, got, err := readHello(far, helloFor)
	far.Close()
	if err != nil || got.ServerName != name {
		t.Fatalf("%q, %v", got.ServerName, err)
	}
	return all
}

// reach sends pieces, and returns the first line of the answer.
func reach(t *testing.T, at string, pieces ...[]byte) (net.Conn, string, error) {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	for i, p := range pieces {
		if i > 0 {
			time.Sleep(10 * time.Millisecond) // so that they are segments of their own
		}
		if _, err := c.Write(p); err != nil {
			return c, "", err
		}
	}
	c.SetReadDeadline(time.Now().Add(time.Minute))
	line, err := bufio.NewReader(io.LimitReader(c, 1000)).ReadString('\n')
	return c, line, err
}

func TestRelays(t *testing.T) {
	l := pseudonym.NewLabel()
	r := &routes{to: map[pseudonym.Label][]string{l: {tenant(t)}}}
	own := "store." + string(zone)
	g, at := start(t, r, map[string][]string{own: {tenant(t)}})
	for _, name := range []string{zone.Name(l), own} {
		h := hello(t, name)
		for _, pieces := range [][][]byte{{h}, {h[:1], h[1:700], h[700:]}} {
			c, line, err := reach(t, at, pieces...)
			if err != nil || line != c.LocalAddr().String()+" "+name+"\n" {
				t.Fatalf("%q, %v", line, err)
			}
			if _, err := io.WriteString(c, "more"); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 4)
			if _, err := io.ReadFull(c, b); err != nil || string(b) != "more" {
				t.Errorf("%q, %v", b, err)
			}
			c.Close()
		}
	}
	polltest.Await(t, "all is counted", func() bool { n := g.Counts(); return n.Relayed == 4 && n.Live == 0 && n.BytesUp == 16 })
}

// One of two sidecars is gone, and each connection reaches the other.
func TestOtherSidecarTakesOver(t *testing.T) {
	l := pseudonym.NewLabel()
	g, at := start(t, &routes{to: map[pseudonym.Label][]string{l: {tcptest.Nobody(t).String(), tenant(t)}}}, nil)
	for range 16 {
		if _, line, err := reach(t, at, hello(t, zone.Name(l))); err != nil {
			t.Errorf("%q, %v", line, err)
		}
	}
	if n := g.Counts().Failed; n != 0 {
		t.Errorf("%d failed", n)
	}
}

func TestRefuses(t *testing.T) {
	gone := pseudonym.NewLabel()
	r := &routes{to: map[pseudonym.Label][]string{gone: {tcptest.Nobody(t).String()}}}
	g, at := start(t, r, nil)
	refused := uint64(0)
	for name, first := range map[string][]byte{
		"no pseudonym":      hello(t, zone.Name(pseudonym.NewLabel())),
		"another zone":      hello(t, "www.example.com"),
		"HTTP":              []byte("GET / HTTP/1.1\r\n\r\n"),
		"an endless record": append([]byte{22, 3, 1, 0x40, 0, 1, 0, 0x7f, 0xff}, make([]byte, clienthello.Limit)...),
	} {
		refused++
		if _, line, err := reach(t, at, first); err == nil {
			t.Errorf("%s: %q", name, line)
		}
	}
	polltest.Await(t, "refusals are counted", func() bool { return g.Counts().Refused == refused })
	if _, line, err := reach(t, at, hello(t, zone.Name(gone))); err == nil {
		t.Errorf("a tenant that is gone: %q", line)
	}
	r.mu.Lock()
	r.err = errors.New("the database is away")
	r.mu.Unlock()
	if _, line, err := reach(t, at, hello(t, zone.Name(gone))); err == nil {
		t.Errorf("without a database: %q", line)
	}
	polltest.Await(t, "failures are counted", func() bool { return g.Counts().Failed == 2 })
}

func TestRevocationEndsConnections(t *testing.T) {
	one, two := pseudonym.NewLabel(), pseudonym.NewLabel()
	to := tenant(t)
	r := &routes{to: map[pseudonym.Label][]string{one: {to}, two: {to}}}
	g, at := start(t, r, nil)
	first, _, err := reach(t, at, hello(t, zone.Name(one)))
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := reach(t, at, hello(t, zone.Name(two)))
	if err != nil {
		t.Fatal(err)
	}
	for _, forget := range []pseudonym.Label{one, ""} { // of a change that is known, and after some were missed
		g.Forget(t.Context(), forget)
		g.rechecks.Wait()
		if g.Counts().Live != 2 {
			t.Errorf("%d connections are open", g.Counts().Live)
		}
	}
	r.set(one)
	g.Forget(t.Context(), "")
	if _, err := first.Read(make([]byte, 1)); err == nil {
		t.Error("the connection goes on")
	}
	io.WriteString(second, "x")
	if _, err := io.ReadFull(second, make([]byte, 1)); err != nil {
		t.Errorf("another pseudonym: %v", err)
	}
}

// A connection ends when its pseudonym does, and not when that was renewed.
func TestEndOfAPseudonymEndsConnections(t *testing.T) {
	one, two, three := pseudonym.NewLabel(), pseudonym.NewLabel(), pseudonym.NewLabel()
	to := tenant(t)
	soon, late := time.Now().Add(100*time.Millisecond), time.Now().Add(time.Hour)
	r := &routes{to: map[pseudonym.Label][]string{one: {to}, two: {to}, three: {to}},
		// It is asked for a route, whether that still holds, and at the end: one has ended, two was renewed, and nothing is known of three any more.
		until: map[pseudonym.Label][]time.Time{one: {soon, soon, soon, soon}, two: {soon, soon, late, late}, three: {soon, soon, {}, {}}}}
	_, at := start(t, r, nil)
	for l, ends := range map[pseudonym.Label]bool{one: true, two: false, three: true} {
		c, _, err := reach(t, at, hello(t, zone.Name(l)))
		if ends { // maybe before the tenant's answer came
			if err == nil {
				_, err = c.Read(make([]byte, 1))
			}
			if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the connection goes on (%v)", err)
			}
		} else if err != nil {
			t.Fatal(err)
		}
		polltest.Await(t, "the gateway asks again", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return len(r.until[l]) == 1
		})
		if ends {
			continue
		}
		io.WriteString(c, "x")
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Errorf("a renewed pseudonym: %v", err)
		}
	}
}

// Only gateways may say who the client is.
func TestOthersIntroduceNobody(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			io.WriteString(c, "PROXY TCP4 198.51.100.1 192.0.2.1 1234 443\r\nhello")
			c.Close()
		}
	}()
	c, err := Introduced(l, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}).Accept()
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(c)
	if from := netip.MustParseAddrPort(c.RemoteAddr().String()); !from.Addr().IsLoopback() || string(b[:5]) != "PROXY" {
		t.Errorf("from %v: %q", from, b)
	}
}

// A client of PostgreSQL asks before it begins TLS. The tenant does not see that.
func TestPostgreSQLAsksFirst(t *testing.T) {
	l := pseudonym.NewLabel()
	_, at := start(t, &routes{to: map[pseudonym.Label][]string{l: {tenant(t)}}}, nil)
	for name, pieces := range map[string][][]byte{"whole": {sslRequest}, "in bytes": {sslRequest[:1], sslRequest[1:7], sslRequest[7:]}} {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for _, one := range pieces {
			if _, err := c.Write(one); err != nil {
				t.Fatal(err)
			}
		}
		if b := make([]byte, 1); second(io.ReadFull(c, b)) != nil || b[0] != sslYes {
			t.Fatalf("%s: the answer is %q", name, b)
		}
		if _, err := c.Write(hello(t, zone.Name(l))); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != c.LocalAddr().String()+" "+zone.Name(l)+"\n" {
			t.Errorf("%s: %q, %v", name, line, err)
		}
	}
	// It asks once.
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i, want := range []error{nil, io.EOF} {
		if _, err := c.Write(sslRequest); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); (err == nil) != (want == nil) {
			t.Errorf("request %d: %v, want %v", i, err, want)
		}
	}
}

func second[T any](_ T, err error) error { return err }
