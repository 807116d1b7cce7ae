package quicprobe

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"golang.org/x/crypto/cryptobyte"

	"heddle/path"
)

const serverName = "server.example"

// certified makes a certificate for a name, and the pool that trusts it.
func certified(t *testing.T, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// server is a quic-go server with HTTP/3 on loopback.
type server struct {
	addr  netip.AddrPort
	roots *x509.CertPool
	*mood
}

// mood is what the network before a server does to what arrives there: it lets pass the first so many addresses and
// ports of a connection, or those of one IP address, or nothing.
type mood struct {
	*net.UDPConn

	mu     sync.Mutex
	known  map[netip.AddrPort]bool // where the newest connection came from; there is one at a time
	past   map[netip.AddrPort]bool // where the others came from, of which something may be under way yet
	ids    map[string]bool         // the clients' ids so far
	count  int                     // connections so far
	most   int                     // addresses and ports that each may come from; 0 for any number
	only   netip.Addr
	dead   bool
	busy   int             // of so many of the next connections nothing passes
	stuck  map[string]bool // their ids
	loses  int             // the number of the connection that is treated as with mute
	mute   bool            // lets nothing more pass of a connection that came from a second address or port
	closes bool            // closes it then
	conn   *quic.Conn
}

func (m *mood) ReadFrom(p []byte) (int, net.Addr, error) {
	for {
		n, from, err := m.UDPConn.ReadFromUDPAddrPort(p)
		if err != nil {
			return n, nil, err
		}
		if m.passes(p[:n], from) {
			return n, net.UDPAddrFromAddrPort(from), nil
		}
	}
}

func (m *mood) passes(data []byte, from netip.AddrPort) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead || m.only.IsValid() && m.only != from.Addr() {
		return false
	}
	rest := cryptobyte.String(data[min(5, len(data)):])
	var to, id cryptobyte.String
	if rest.ReadUint8LengthPrefixed(&to) && rest.ReadUint8LengthPrefixed(&id) && data[0]&0x80 != 0 && !m.ids[string(id)] { // a long header of another connection
		maps.Copy(m.past, m.known)
		delete(m.past, from)
		m.ids[string(id)], m.known = true, map[netip.AddrPort]bool{}
		m.count++
		if m.busy > 0 {
			m.busy--
			m.stuck[string(id)] = true
		}
	}
	if m.stuck[string(id)] {
		return false
	}
	if m.past[from] {
		return true
	}
	if m.most > 0 && !m.known[from] && len(m.known) >= m.most {
		return false
	}
	m.known[from] = true
	if m.closes && len(m.known) > 1 && m.conn != nil {
		go m.conn.CloseWithError(7, "too many paths")
	}
	return !m.mute && m.loses != m.count || len(m.known) < 2
}

func (m *mood) connections() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count
}

func (m *mood) die() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
}

// start serves /big, which never ends, /small, and / which is not there, until the test ends.
func start(t *testing.T, change func(*mood, *quic.Config)) *server {
	t.Helper()
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	certificate, roots := certified(t, serverName)
	m := &mood{UDPConn: socket, known: map[netip.AddrPort]bool{}, past: map[netip.AddrPort]bool{}, ids: map[string]bool{}, stuck: map[string]bool{}}
	config := &quic.Config{}
	if change != nil {
		change(m, config)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /big", func(w http.ResponseWriter, r *http.Request) {
		block := make([]byte, 1<<16)
		for r.Context().Err() == nil {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("GET /small", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "small") })
	h := &http3.Server{Handler: mux, TLSConfig: http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{certificate}}), QUICConfig: config,
		ConnContext: func(ctx context.Context, c *quic.Conn) context.Context {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.conn = c
			return ctx
		}}
	done := make(chan struct{})
	go func() {
		h.Serve(plain{m})
		close(done)
	}()
	t.Cleanup(func() {
		h.Close()
		socket.Close()
		<-done
	})
	return &server{addr: socket.LocalAddr().(*net.UDPAddr).AddrPort(), roots: roots, mood: m}
}

// plain hides what makes quic-go read from the socket itself.
type plain struct{ m *mood }

func (p plain) ReadFrom(b []byte) (int, net.Addr, error)   { return p.m.ReadFrom(b) }
func (p plain) WriteTo(b []byte, to net.Addr) (int, error) { return p.m.UDPConn.WriteTo(b, to) }
func (p plain) Close() error                               { return nil }
func (p plain) LocalAddr() net.Addr                        { return p.m.UDPConn.LocalAddr() }
func (p plain) SetDeadline(t time.Time) error              { return p.m.UDPConn.SetDeadline(t) }
func (p plain) SetReadDeadline(t time.Time) error          { return p.m.UDPConn.SetReadDeadline(t) }
func (p plain) SetWriteDeadline(t time.Time) error         { return p.m.UDPConn.SetWriteDeadline(t) }
func (p plain) SetReadBuffer(n int) error                  { return p.m.UDPConn.SetReadBuffer(n) }
func (p plain) SetWriteBuffer(n int) error                 { return p.m.UDPConn.SetWriteBuffer(n) }

// quick is the pace of tests: nobody has to be spared. A machine that is busy may be late with answers that do come.
var quick = pace{question: 2 * time.Second, handshake: 10 * time.Second, answer: 6 * time.Second, dwell: time.Millisecond,
	ramp: 10 * time.Millisecond, window: 60 * time.Millisecond, most: 4, early: 2, stun: 20 * time.Millisecond,
	periods: []time.Duration{40 * time.Millisecond, 20 * time.Millisecond, 10 * time.Millisecond, 5 * time.Millisecond}}

func (s *server) options(paths int) Options {
	o := Options{Server: s.addr.String(), SNI: serverName, Roots: s.roots, Get: "/big", For: 5 * time.Minute, MaxBytes: 1 << 30, pace: quick}
	for i := range paths {
		o.Via = append(o.Via, path.Spec{Name: string(rune('a' + i)), Kind: "src", Arg: fmt.Sprintf("127.0.0.%d", 2+i)})
	}
	return o
}

func probed(t *testing.T, o Options) *Report {
	t.Helper()
	var talk strings.Builder
	o.Talk = &talk
	r, err := Run(context.Background(), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, &talk)
	}
	return r
}

// The tests wait more than they work.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
