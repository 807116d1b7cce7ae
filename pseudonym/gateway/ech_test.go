package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"heddle/internal/clienthello"
	"heddle/internal/netutil"
	"heddle/internal/polltest"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/ca/catest"
	"heddle/pseudonym/ech"
)

func newKey(t testing.TB, id uint8) *ech.Key {
	t.Helper()
	k, err := ech.NewKey(id, zone.Store(), 40)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// site is a server of crypto/tls that has no key for encrypted hellos, unless edit gives it one. It echoes what clients send.
func site(t *testing.T, issuer *ca.Issuer, name string, edit func(*tls.Config)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return siteAt(t, l, issuer, name, edit)
}

// siteAt is [site] at a listener.
func siteAt(t *testing.T, l net.Listener, issuer *ca.Issuer, name string, edit func(*tls.Config)) string {
	t.Helper()
	key, now := catest.NewKey(t), time.Now()
	cert, err := issuer.Server(name, key.Public(), now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: append([][]byte{cert.Raw}, issuer.Chain()...), PrivateKey: key}}, NextProtos: []string{"echo", "who"}}
	if edit != nil {
		edit(config)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- netutil.Serve(ctx, Introduced(l, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.9.1.1/32"), netip.MustParsePrefix("fd09::1/128"), netip.MustParsePrefix("203.0.113.2/32")}), func(raw net.Conn) {
			go func() {
				c := tls.Server(raw, config)
				defer c.Close()
				if c.Handshake() == nil && c.ConnectionState().NegotiatedProtocol == "who" {
					io.WriteString(c, raw.RemoteAddr().String()+"\n")
				}
				io.Copy(c, c)
			}()
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// wire records what goes over a connection.
type wire struct {
	net.Conn
	mu         sync.Mutex
	sent, came []byte
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.came = append(w.came, b[:n]...)
	return n, err
}

func (w *wire) Write(b []byte) (int, error) {
	w.mu.Lock()
	w.sent = append(w.sent, b...)
	w.mu.Unlock()
	return w.Conn.Write(b)
}

// retried reports whether the server asked for another hello.
func (w *wire) retried() bool {
	return asksAgain(clienthello.Handshake(w.came))
}

// visit makes a handshake with a gateway and sends something there and back.
func visit(t *testing.T, at string, config *tls.Config) (*wire, tls.ConnectionState, error) {
	t.Helper()
	raw, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	raw.SetDeadline(time.Now().Add(time.Minute))
	w := &wire{Conn: raw}
	c := tls.Client(w, config)
	if err := c.Handshake(); err != nil {
		return w, tls.ConnectionState{}, err
	}
	b := make([]byte, 4)
	if _, err := io.WriteString(c, "echo"); err != nil {
		return w, tls.ConnectionState{}, err
	}
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "echo" {
		t.Errorf("%q, %v", b, err)
	}
	return w, c.ConnectionState(), c.Close()
}

// hidden has a cloud with one site and its store, and what a client needs.
type hidden struct {
	way    *Gateway
	at     string
	key    *ech.Key
	routes *routes
	label  pseudonym.Label
	client *tls.Config
}

func newHidden(t *testing.T, edit func(*tls.Config)) *hidden {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newHiddenAt(t, l, l.Addr().String(), edit)
}

// newHiddenAt is [newHidden] with the site at a listener, which the gateway knows by an address.
func newHiddenAt(t *testing.T, l net.Listener, address string, edit func(*tls.Config)) *hidden {
	t.Helper()
	issuer, root := catest.NewIssuer(t, string(zone))
	h := &hidden{key: newKey(t, 7), label: pseudonym.NewLabel()}
	siteAt(t, l, issuer, zone.Name(h.label), edit)
	h.routes = &routes{to: map[pseudonym.Label][]string{h.label: {address}}}
	store := site(t, issuer, zone.Store(), func(c *tls.Config) {
		c.EncryptedClientHelloKeys = []tls.EncryptedClientHelloKey{{Config: h.key.Config(), PrivateKey: private(t, h.key), SendAsRetry: true}}
	})
	h.way, h.at = start(t, h.routes, map[string][]string{zone.Store(): {store}}, h.key)
	h.client = &tls.Config{ServerName: zone.Name(h.label), RootCAs: x509.NewCertPool(), NextProtos: []string{"echo"}, EncryptedClientHelloConfigList: ech.List(h.key.Config())}
	h.client.RootCAs.AddCert(root)
	return h
}

func private(t *testing.T, k *ech.Key) []byte {
	t.Helper()
	b, err := k.Private()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The name of the pseudonym is not on the wire, and a site without a key takes the hello; also when it asks for another one, in resumed
// sessions, and when the hello comes in pieces.
func TestHiddenName(t *testing.T) {
	for name, c := range map[string]struct {
		site, client func(*tls.Config)
		retried      bool
	}{
		"at once":                     {nil, nil, false},
		"after another hello":         {func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.CurveP384} }, nil, true},
		"without post-quantum groups": {nil, func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.X25519} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHidden(t, c.site)
			if c.client != nil {
				c.client(h.client)
			}
			h.client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
			for round := range uint64(2) {
				w, state, err := visit(t, h.at, h.client)
				if err != nil || !state.ECHAccepted || state.NegotiatedProtocol != "echo" || state.DidResume != (round == 1) {
					t.Fatalf("%+v, %v", state, err)
				}
				if w.retried() != c.retried {
					t.Errorf("asked for another hello: %v", w.retried())
				}
				if all := slices.Concat(w.sent, w.came); bytes.Contains(all, []byte(h.label)) || !bytes.Contains(all, []byte(zone.Store())) {
					t.Errorf("the pseudonym is in clear: %q", all)
				}
				polltest.Await(t, "it is counted", func() bool { n := h.way.Counts(); return n.Encrypted == round+1 && n.Live == 0 })
			}
		})
	}
}

// A client with a key that is too old learns the new one from the server of the public name, whose certificate it checks.
func TestOldKey(t *testing.T) {
	h := newHidden(t, nil)
	for _, id := range []uint8{7, 8} { // the identifier may be in use again
		old := h.client.Clone()
		old.EncryptedClientHelloConfigList = ech.List(newKey(t, id).Config())
		w, _, err := visit(t, h.at, old)
		var rejected *tls.ECHRejectionError
		if !errors.As(err, &rejected) || !bytes.Equal(rejected.RetryConfigList, ech.List(h.key.Config())) {
			t.Fatalf("%v", err)
		}
		if bytes.Contains(w.sent, []byte(h.label)) {
			t.Error("the pseudonym is in clear")
		}
		old.EncryptedClientHelloConfigList = rejected.RetryConfigList
		if _, state, err := visit(t, h.at, old); err != nil || !state.ECHAccepted {
			t.Errorf("%+v, %v", state, err)
		}
	}
}

// Clients that encrypt nothing, and those that send a random text in place of an encrypted hello, ask by the name in clear.
func TestNameInClear(t *testing.T) {
	h := newHidden(t, nil)
	plain := h.client.Clone()
	plain.EncryptedClientHelloConfigList = nil
	if _, state, err := visit(t, h.at, plain); err != nil || state.ECHAccepted {
		t.Errorf("%+v, %v", state, err)
	}
	// A random key for the name itself looks like that text. The site has no keys, and the client finds the site's certificate good.
	random, err := ech.NewKey(7, zone.Name(h.label), 40)
	if err != nil {
		t.Fatal(err)
	}
	plain.EncryptedClientHelloConfigList = ech.List(random.Config())
	var rejected *tls.ECHRejectionError
	if _, _, err := visit(t, h.at, plain); !errors.As(err, &rejected) || len(rejected.RetryConfigList) > 0 {
		t.Errorf("%v", err)
	}
	if n := h.way.Counts(); n.Encrypted > 0 {
		t.Errorf("%+v", n)
	}
}

// What a gateway refuses: names that are nobody's within, and a client that goes on in clear after it was asked for another hello.
func TestRefusesHidden(t *testing.T) {
	h := newHidden(t, func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.CurveP384} })
	for _, name := range []string{zone.Name(pseudonym.NewLabel()), "www.example.com"} {
		c := h.client.Clone()
		c.ServerName = name
		if _, _, err := visit(t, h.at, c); err == nil {
			t.Errorf("%s is served", name)
		}
	}
	polltest.Await(t, "refusals are counted", func() bool { return h.way.Counts().Refused == 2 })

	plain := h.client.Clone()
	plain.EncryptedClientHelloConfigList = nil
	for name, c := range map[string]struct {
		second []byte
		answer []byte
	}{
		"another hello in clear": {hello(t, zone.Name(h.label)), []byte{21, 3, 3, 0, 2, 2, 109}},
		"no record of TLS":       {[]byte("GET / HTTP/1.1\r\n\r\n"), nil},
		"another message":        {clienthello.Records([]byte{2, 0, 0, 0}), nil},
		"an endless one":         {append([]byte{22, 3, 1, 0x40, 0, 1, 0, 0x7f, 0xff}, make([]byte, 3*clienthello.Limit)...), nil},
		"nothing":                {nil, nil},
	} {
		raw, err := net.Dial("tcp", h.at)
		if err != nil {
			t.Fatal(err)
		}
		raw.SetDeadline(time.Now().Add(time.Minute))
		tap := &stopped{wire: wire{Conn: raw}}
		if err := tls.Client(tap, h.client).Handshake(); err == nil || !tap.retried() {
			t.Fatalf("%s: %v, asked for another hello: %v", name, err, tap.retried())
		}
		raw.Write(c.second)
		raw.(*net.TCPConn).CloseWrite()
		tail, _ := io.ReadAll(raw)
		if !bytes.HasSuffix(append(tap.came, tail...), c.answer) || c.answer == nil && bytes.Contains(tail, []byte{21, 3, 3, 0, 2, 2, 109}) {
			t.Errorf("%s: the answer is %x", name, tail)
		}
		raw.Close()
	}
	polltest.Await(t, "they are counted", func() bool { n := h.way.Counts(); return n.Failed == 5 && n.Live == 0 })
}

// stopped sends nothing after the first hello.
type stopped struct{ wire }

func (s *stopped) Write(b []byte) (int, error) {
	if len(s.sent) > 0 {
		return 0, io.ErrClosedPipe
	}
	return s.wire.Write(b)
}

// Early data may stand before the second hello, and goes to the tenant as it is.
func TestReadSecond(t *testing.T) {
	second := hello(t, zone.Store())
	before := slices.Concat([]byte{changeCipherSpec, 3, 3, 0, 1, 1}, []byte{applicationData, 3, 3, 0, 3, 'a', 'b', 'c'})
	stream := slices.Concat(before, second, []byte("rest"))
	for cut := range len(stream) {
		near, far := net.Pipe()
		go func() {
			near.Write(stream[:cut])
			near.Write(stream[cut:])
			near.Close()
		}()
		var passed bytes.Buffer
		handshake, rest, err := readSecond(far, &passed)
		if err != nil || !bytes.Equal(passed.Bytes(), before) || !bytes.Equal(clienthello.Records(handshake)[5:], second[5:]) {
			t.Fatalf("cut at %d: %v, %q passed", cut, err, passed.Bytes())
		}
		more, _ := io.ReadAll(far)
		if string(rest)+string(more) != "rest" {
			t.Fatalf("cut at %d: %q", cut, rest)
		}
		far.Close()
	}
	large := append([]byte{applicationData, 3, 3, 0x42, 0}, make([]byte, 0x4200)...)
	near, far := net.Pipe()
	go func() { near.Write(large); near.Close() }()
	if _, _, err := readSecond(far, io.Discard); !errors.Is(err, clienthello.ErrMalformed) {
		t.Errorf("a record that is too large: %v", err)
	}
	far.Close()
}
