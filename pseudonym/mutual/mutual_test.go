package mutual

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"heddle/internal/connlimit"
	"heddle/internal/polltest"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/ca/catest"
)

const zone = pseudonym.Zone("cloud.example")

// cloud is a source whose entries a test changes.
type cloud struct {
	issuer *ca.Issuer
	roots  *x509.CertPool

	mu      sync.Mutex
	entries map[pseudonym.Label]*Entry
	asked   map[pseudonym.Label]int
	gone    error
	renewed map[pseudonym.Label]*Entry // replace those in entries once they were asked for
}

// renewOnceAsked renews a pseudonym after the first question.
func (c *cloud) renewOnceAsked(l pseudonym.Label, life time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := *c.entries[l]
	e.Expires = time.Now().Add(life)
	c.renewed = map[pseudonym.Label]*Entry{l: &e}
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	issuer, root := catest.NewIssuer(t, string(zone))
	c := &cloud{issuer: issuer, roots: x509.NewCertPool(), entries: map[pseudonym.Label]*Entry{}, asked: map[pseudonym.Label]int{}}
	c.roots.AddCert(root)
	return c
}

func (c *cloud) Pseudonym(_ context.Context, l pseudonym.Label) (*Entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[l]++
	if c.gone != nil {
		return nil, c.gone
	}
	e := c.entries[l]
	if e == nil {
		return nil, pseudonym.ErrNone
	}
	if next := c.renewed[l]; next != nil {
		c.entries[l] = next
	}
	return e, nil
}

func (c *cloud) remove(l pseudonym.Label) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, l)
}

// user has a pseudonym and what a client needs for it.
type user struct {
	label  pseudonym.Label
	config *tls.Config
}

func (c *cloud) register(t *testing.T, life time.Duration) user {
	t.Helper()
	l, server, client := pseudonym.NewLabel(), catest.NewKey(t), catest.NewKey(t)
	now, name := time.Now(), zone.Name(l)
	cert, err := c.issuer.Server(name, server.Public(), now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(server)
	if err != nil {
		t.Fatal(err)
	}
	own, err := ca.Client(name, client, now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.entries[l] = &Entry{Label: l, Site: "a.example", Client: ca.KeyOf(own), Expires: now.Add(life), Chain: append([][]byte{cert.Raw}, c.issuer.Chain()...), Key: key}
	c.mu.Unlock()
	return user{l, &tls.Config{ServerName: name, RootCAs: c.roots, Certificates: []tls.Certificate{{Certificate: [][]byte{own.Raw}, PrivateKey: client}}}}
}

// serve echoes what clients send.
func (c *cloud) serve(t *testing.T, size int) (*Server, string) {
	t.Helper()
	s, err := NewServer(zone, c, size)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- s.Serve(ctx, l, connlimit.NewPlaces(connlimit.Guests), func(c *tls.Conn, e *Entry) {
			defer c.Close()
			io.WriteString(c, string(e.Label))
			io.Copy(c, c)
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, l.Addr().String()
}

// greeted connects, and returns what the server says of the client.
func greeted(at string, config *tls.Config) (*tls.Conn, error) {
	c, err := tls.Dial("tcp", at, config)
	if err != nil {
		return nil, err
	}
	said := make([]byte, 26)
	if _, err := io.ReadFull(c, said); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Only the client of a pseudonym completes a handshake (R4).
func TestOnlyTheClientOfThePseudonym(t *testing.T) {
	c := newCloud(t)
	_, at := c.serve(t, 10)
	alice, bob := c.register(t, time.Hour), c.register(t, time.Hour)
	conn, err := greeted(at, alice.config)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	with := func(edit func(*tls.Config)) *tls.Config {
		config := alice.config.Clone()
		edit(config)
		return config
	}
	for name, config := range map[string]*tls.Config{
		"without a certificate": with(func(c *tls.Config) { c.Certificates = nil }),
		"another client":        with(func(c *tls.Config) { c.Certificates = bob.config.Certificates }),
		"another client, insists": with(func(c *tls.Config) {
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &bob.config.Certificates[0], nil }
		}),
		"no pseudonym":          with(func(c *tls.Config) { c.ServerName = zone.Name(pseudonym.NewLabel()) }),
		"the zone":              with(func(c *tls.Config) { c.ServerName = string(zone) }),
		"no name":               with(func(c *tls.Config) { c.ServerName = ""; c.InsecureSkipVerify = true }),
		"an old version of TLS": with(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }),
	} {
		if conn, err := greeted(at, config); err == nil {
			conn.Close()
			t.Errorf("%s: admitted", name)
		}
	}
}

// A session that is resumed shows no certificate again, and is checked all the same.
func TestResumedSessionsAreChecked(t *testing.T) {
	c := newCloud(t)
	s, at := c.serve(t, 10)
	alice := c.register(t, time.Hour)
	alice.config.ClientSessionCache = tls.NewLRUClientSessionCache(4)
	resumed := func() bool {
		conn, err := greeted(at, alice.config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().DidResume
	}
	polltest.Await(t, "a resumed session", resumed)
	// The pseudonym gets another client, and the server keeps its tickets.
	c.mu.Lock()
	c.entries[alice.label].Client[0]++
	c.mu.Unlock()
	if conn, err := greeted(at, alice.config); err == nil {
		conn.Close()
		t.Error("a session was resumed for another client")
	}
	s.Forget(t.Context(), alice.label)
}

func TestRevocationEndsConnections(t *testing.T) {
	c := newCloud(t)
	s, at := c.serve(t, 10)
	for name, forget := range map[string]func(pseudonym.Label) pseudonym.Label{
		"by its label":    func(l pseudonym.Label) pseudonym.Label { return l },
		"some are missed": func(pseudonym.Label) pseudonym.Label { return "" },
	} {
		alice, bob := c.register(t, time.Hour), c.register(t, time.Hour)
		conn, err := greeted(at, alice.config)
		if err != nil {
			t.Fatal(err)
		}
		other, err := greeted(at, bob.config)
		if err != nil {
			t.Fatal(err)
		}
		c.remove(alice.label)
		s.Forget(t.Context(), forget(alice.label))
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: the connection goes on", name)
		}
		if conn, err := greeted(at, alice.config); err == nil {
			conn.Close()
			t.Errorf("%s: a new connection is admitted", name)
		}
		if _, err := other.Write([]byte("x")); err != nil {
			t.Errorf("%s: another client: %v", name, err)
		}
		if _, err := io.ReadFull(other, make([]byte, 1)); err != nil {
			t.Errorf("%s: another client: %v", name, err)
		}
		other.Close()
	}
	polltest.Await(t, "no connections are left", func() bool { return s.Live() == 0 })
}

// A certificate that was renewed is served from then on.
func TestRenewedCertificate(t *testing.T) {
	c := newCloud(t)
	s, at := c.serve(t, 10)
	alice := c.register(t, time.Hour)
	served := func() string {
		conn, err := greeted(at, alice.config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return string(conn.ConnectionState().PeerCertificates[0].Raw)
	}
	served()
	next := c.register(t, time.Hour)
	c.mu.Lock()
	renewed, keyOfNext := *c.entries[alice.label], c.entries[next.label].Key
	c.mu.Unlock()
	key, err := x509.ParsePKCS8PrivateKey(keyOfNext)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := c.issuer.Server(zone.Name(alice.label), key.(crypto.Signer).Public(), time.Now(), time.Now().Add(2*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	renewed.Chain, renewed.Key = append([][]byte{cert.Raw}, c.issuer.Chain()...), keyOfNext
	c.mu.Lock()
	c.entries[alice.label] = &renewed
	c.mu.Unlock()
	s.Forget(t.Context(), alice.label)
	if served() != string(cert.Raw) {
		t.Error("the old certificate is served")
	}
}

// While the source is away, known pseudonyms work, and their connections stay.
func TestSourceIsAway(t *testing.T) {
	c := newCloud(t)
	s, at := c.serve(t, 10)
	alice, bob := c.register(t, time.Hour), c.register(t, time.Hour)
	conn, err := greeted(at, alice.config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c.mu.Lock()
	c.gone = errors.New("the database is away")
	c.mu.Unlock()
	if again, err := greeted(at, alice.config); err != nil {
		t.Error(err)
	} else {
		again.Close()
	}
	if conn, err := greeted(at, bob.config); err == nil {
		conn.Close()
		t.Error("an unknown pseudonym is admitted")
	}
	s.Forget(t.Context(), "")
	conn.Write([]byte("x"))
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Errorf("a connection ended because the source is away: %v", err)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	c := newCloud(t)
	s, at := c.serve(t, 2)
	for range 5 {
		conn, err := greeted(at, c.register(t, time.Hour).config)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	if n := s.cache.Len(); n != 2 {
		t.Errorf("%d are kept", n)
	}
}

func TestExpired(t *testing.T) {
	c := newCloud(t)
	_, at := c.serve(t, 2)
	if conn, err := greeted(at, c.register(t, -time.Second).config); err == nil {
		conn.Close()
		t.Error("admitted")
	}
}

// A connection ends when its pseudonym does, and not before if that was renewed, even if nobody told the server of that.
func TestEndOfAPseudonymEndsConnections(t *testing.T) {
	c := newCloud(t)
	_, at := c.serve(t, 10)
	var u user
	var conn *tls.Conn
	polltest.Again(t, func(try int) (err error) { // the handshake has to be faster than the pseudonym ends
		life := 500 * time.Millisecond << try
		u = c.register(t, life)
		c.renewOnceAsked(u.label, 2*life)
		conn, err = greeted(at, u.config)
		return err
	})
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection goes on")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.asked[u.label]; n != 3 {
		t.Errorf("the source was asked %d times: for the handshake, at the first end, and at the second", n)
	}
}

// An HTTP server on top, with HTTP/2.
func TestHTTP(t *testing.T) {
	c := newCloud(t)
	s, err := NewServer(zone, c, 10, "h2", "http/1.1")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{TLSConfig: s.Config(), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e, err := s.Pseudonym(r.Context(), *r.TLS)
		if err != nil {
			t.Error(err)
			return
		}
		io.WriteString(w, r.Proto+" "+string(e.Label))
	})}
	web.TLSConfig.NextProtos = []string{"h2", "http/1.1"}
	go web.Serve(s.Listener(t.Context(), l, connlimit.NewPlaces(connlimit.Guests)))
	defer web.Close()
	alice := c.register(t, time.Hour)
	for proto, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		by := &http.Transport{TLSClientConfig: alice.config.Clone(), ForceAttemptHTTP2: h2, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, l.Addr().String())
		}}
		r, err := (&http.Client{Transport: by}).Get("https://" + zone.Name(alice.label))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || string(text) != proto+" "+string(alice.label) {
			t.Errorf("%s: %q, %v", proto, text, err)
		}
		by.CloseIdleConnections()
	}
	polltest.Await(t, "no connections are left", func() bool { return s.Live() == 0 })
}
