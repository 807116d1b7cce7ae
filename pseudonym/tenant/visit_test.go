package tenant

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/ca/catest"
	"heddle/pseudonym/mutual"
)

// keys are what the holder of one pseudonym has, and what a sidecar knows of it.
type keys struct {
	*mutual.Entry
	name   string
	client tls.Certificate
	root   *x509.Certificate
	roots  *x509.CertPool
}

func newKeys(t testing.TB) keys {
	t.Helper()
	issuer, root := catest.NewIssuer(t, string(zone))
	serverKey, clientKey := catest.NewKey(t), catest.NewKey(t)
	e := &mutual.Entry{Label: pseudonym.NewLabel(), Site: site, Capability: pseudonym.NewCapability(), Expires: time.Now().Add(time.Hour)}
	k := keys{Entry: e, name: zone.Name(e.Label), root: root, roots: x509.NewCertPool()}
	k.roots.AddCert(root)
	cert, err := issuer.Server(k.name, serverKey.Public(), time.Now(), e.Expires)
	if err != nil {
		t.Fatal(err)
	}
	e.Chain = append([][]byte{cert.Raw}, issuer.Chain()...)
	if e.Key, err = x509.MarshalPKCS8PrivateKey(serverKey); err != nil {
		t.Fatal(err)
	}
	client, err := ca.Client(k.name, clientKey, time.Now(), e.Expires)
	if err != nil {
		t.Fatal(err)
	}
	e.Client = ca.KeyOf(client)
	k.client = tls.Certificate{Certificate: [][]byte{client.Raw}, PrivateKey: clientKey}
	return k
}

// visit is a sidecar that runs, and the holder of its one pseudonym.
type visit struct {
	keys
	*Sidecar
	at    string
	intro string      // what a gateway says first
	near  string      // where nginx takes clients without a gateway
	pipes *inside     // a network in place of at, for synctest
	gone  atomic.Bool // the pseudonym was revoked
}

// Pseudonym implements [mutual.Source].
func (v *visit) Pseudonym(ctx context.Context, l pseudonym.Label) (*mutual.Entry, error) {
	if v.gone.Load() {
		return nil, pseudonym.ErrNone
	}
	return known{v.Entry}.Pseudonym(ctx, l)
}

// serving starts a web server of Go, and returns its URL.
func serving(t testing.TB, serve http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	return server.URL
}

// newVisit starts a sidecar before a site's web server at a URL. The cloud has another site, shop.example.
func newVisit(t testing.TB, o Options, to string) *visit {
	t.Helper()
	var err error
	if o.To, err = url.Parse(to); err != nil {
		t.Fatal(err)
	}
	o.Zone, o.Size, o.Log, o.Gateways = zone, 10, slog.New(slog.DiscardHandler), []netip.Prefix{}
	v := &visit{keys: newKeys(t)}
	if v.Sidecar, err = newSidecar(o, v, func(site string) bool { return site == "shop.example" }); err != nil {
		t.Fatal(err)
	}
	return v
}

// start lets it run.
func (v *visit) start(t testing.TB) *visit {
	t.Helper()
	v.at = run(t, v.serve)
	return v
}

// pipes is a listener of [visit.piped].
type pipes struct{ *inside }

func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

// piped lets it run on a network of pipes.
func (v *visit) piped(t testing.TB) *visit {
	t.Helper()
	v.pipes = newInside()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- v.serve(ctx, pipes{v.pipes}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return v
}

func (v *visit) config(protocols ...string) *tls.Config {
	return &tls.Config{ServerName: v.name, RootCAs: v.roots, Certificates: []tls.Certificate{v.client}, NextProtos: protocols}
}

// reach makes a connection to the sidecar.
func (v *visit) reach(ctx context.Context, _, _ string) (net.Conn, error) {
	if v.pipes != nil {
		return v.pipes.dial(ctx, "", "")
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", v.at)
	if err == nil {
		_, err = io.WriteString(c, v.intro)
	}
	return c, err
}

// dial makes a connection with TLS.
func (v *visit) dial(t testing.TB, protocols ...string) *tls.Conn {
	t.Helper()
	c, err := v.dialAs(t, v.config(protocols...))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (v *visit) dialAs(t testing.TB, config *tls.Config) (*tls.Conn, error) {
	t.Helper()
	raw, err := v.reach(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Client(raw, config)
	t.Cleanup(func() { c.Close() })
	return c, c.Handshake()
}

// browser returns a client that speaks one version of HTTP and has the capability as a cookie.
func (v *visit) browser(t testing.TB, protocol string) *http.Client {
	t.Helper()
	way := &http.Transport{TLSClientConfig: v.config(protocol), ForceAttemptHTTP2: protocol == "h2", DisableCompression: true,
		DialContext: v.reach}
	t.Cleanup(way.CloseIdleConnections)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	jar.SetCookies(&url.URL{Scheme: "https", Host: v.name}, []*http.Cookie{{Name: mutual.CookieName, Value: v.Capability.String(), Path: "/", Secure: true}})
	return &http.Client{Transport: way, Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// protocols are those that browsers speak.
var protocols = []string{"http/1.1", "h2"}

// get asks for one thing, and returns the answer with its body.
func (v *visit) get(t testing.TB, c *http.Client, method, path string, body io.Reader, header ...string) (*http.Response, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, "https://"+v.name+path, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	r, err := c.Do(q)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return r, string(text)
}
