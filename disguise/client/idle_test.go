package client

import (
	"context"
	"encoding/base64"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"heddle/disguise/bridge"
	"heddle/disguise/cover"
	"heddle/disguise/cover/covertest"
	"heddle/disguise/cover/web"
	"heddle/disguise/cover/web/webtest"
	"heddle/disguise/handshake"
	"heddle/lab/peer"
	"heddle/path"
)

// memory is a path to a bridge without a network, and the bridge's listener.
type memory struct {
	path.Path
	arrived, done chan net.Conn
	once          sync.Once

	mu    sync.Mutex
	conns []*covertest.Conn // both ends of each
}

func (m *memory) Dial(context.Context, path.Target) (net.Conn, error) {
	near, far := covertest.Pipe()
	m.mu.Lock()
	m.conns = append(m.conns, near, far)
	m.mu.Unlock()
	m.arrived <- far
	return near, nil
}

// carried is how many bytes IPv4 carries of what was written so far: each write is one packet or more, and somebody acknowledges it.
func (m *memory) carried() (bytes int) {
	const headers, segment = 20 + 32, 1448
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.conns {
		for _, w := range c.Writes() {
			bytes += len(w.Data) + 2*headers*((len(w.Data)+segment-1)/segment)
		}
	}
	return bytes
}

// Accept, Close and Addr implement [net.Listener].
func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.arrived:
		return c, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error {
	m.once.Do(func() { close(m.done) })
	return nil
}

func (m *memory) Addr() net.Addr { return &net.TCPAddr{} }

// An idle link over the web looks like an idle tab: all its connections together take less than 100 bytes a second in ten minutes, with the headers of
// TCP and IP.
func TestIdleLink(t *testing.T) {
	dir := t.TempDir()
	site, certificate, key := filepath.Join(dir, "site.db"), filepath.Join(dir, "certificate.pem"), filepath.Join(dir, "key.pem")
	if err := webtest.Site().Write(site); err != nil {
		t.Fatal(err)
	}
	for name, number := range map[string]byte{web.Name: web.Number, web.NameTLS: web.NumberTLS} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				id, err := handshake.NewIdentity()
				if err != nil {
					t.Fatal(err)
				}
				server, err := handshake.NewServer(id, &handshake.Replays{})
				if err != nil {
					t.Fatal(err)
				}
				public, quiet := id.Public(), slog.New(slog.DiscardHandler)
				mine, theirs := map[string]string{"site": site}, map[string]string{"site": site}
				if name == web.NameTLS {
					if err := peer.SelfSigned(certificate, key, []string{"www.example"}, nil); err != nil { // in the bubble's time
						t.Fatal(err)
					}
					pin, err := peer.KeyHash(certificate)
					if err != nil {
						t.Fatal(err)
					}
					mine["pin"] = base64.RawURLEncoding.EncodeToString(pin)
					theirs["pin"], theirs["certificate"], theirs["key"] = mine["pin"], certificate, key
				}
				covers := func(bridge bool, args map[string]string) cover.Factory {
					f, err := cover.New(name, cover.Options{Seed: public[:], Bridge: bridge, Args: args})
					if err != nil {
						t.Fatal(err)
					}
					return f
				}
				b, err := bridge.New(bridge.Options{Key: public, Server: server, Covers: map[byte]cover.Factory{number: covers(true, theirs)}, Log: quiet,
					Target: func(context.Context, net.Addr) (net.Conn, error) {
						near, far := covertest.Pipe()
						go func() {
							_, _ = io.Copy(far, far)
							_ = far.CloseWrite()
						}()
						return near, nil
					}})
				if err != nil {
					t.Fatal(err)
				}
				m := &memory{Path: path.NewSystem(0), arrived: make(chan net.Conn), done: make(chan net.Conn)}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- b.Serve(ctx, m) }()
				s, err := Dial(t.Context(), Options{Line: handshake.Line{Address: netip.MustParseAddrPort("192.0.2.9:443"), Args: handshake.Args{Key: public}}, Log: quiet,
					Paths: []Path{{"home", m}}, Covers: covers(false, mine), Connections: cover.Connections(name)})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute) // a page is loaded
				before := m.carried()
				time.Sleep(10 * time.Minute)
				if n := m.carried() - before; n >= 60_000 || n == 0 || s.Status().Connections < cover.Connections(name) { // one that starved has more
					t.Errorf("%d bytes in ten minutes, by %d connections", n, s.Status().Connections)
				} else {
					t.Logf("%d bytes in ten minutes, by %d connections", n, s.Status().Connections)
				}
				s.Leave()
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
