package client

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"heddle/disguise/bridge"
	"heddle/disguise/cover"
	"heddle/disguise/cover/covertest"
	"heddle/disguise/cover/random"
	"heddle/disguise/cover/web"
	"heddle/disguise/cover/web/webtest"
	"heddle/disguise/handshake"
	"heddle/lab/peer"
	"heddle/path"
)

// Each cover of a link has as many of the connections as its weight says, whenever one opens.
func TestWeights(t *testing.T) {
	for _, c := range []struct {
		weights []int
		want    string // the covers of connections, in their order
	}{{[]int{1}, "aaaa"}, {[]int{1, 1}, "abab"}, {[]int{1, 2}, "babbab"}, {[]int{1, 0}, "abab"}, {[]int{6, 1}, "aaabaaa"}, {[]int{1, 1, 2}, "cabccabc"}} {
		o := Options{Paths: []Path{{"home", path.NewSystem(0)}, {"lte", path.NewSystem(0)}}, MinPaths: 1}
		for i, weight := range c.weights {
			o.Covers = append(o.Covers, Cover{Name: string(rune('a' + i)), Share: cover.Share{Weight: weight}})
		}
		m, err := newMembers(o)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for range c.want {
			w := m.draw(time.Now())
			m.opening(w, 1)
			got += w.cover.Name
		}
		if got != c.want {
			t.Errorf("weights %v: %s, want %s", c.weights, got, c.want)
		}
	}
}

// The covers of a link are those that the user chose, with what the bridge line says of them, or those of the line with a weight.
func TestCoversOfALine(t *testing.T) {
	pin := ":pin=" + strings.Repeat("A", 43)
	site := "site=../cover/web/testdata/site.db"
	for _, c := range []struct {
		offered, chosen []string
		want            string // names, ports and weights
		connections     int
	}{
		{nil, nil, "random 0 1", 4},
		{[]string{"random", "embed"}, nil, "random 0 1", 4},
		{[]string{"random:weight=1", "embed:weight=3:port=80"}, nil, "random 0 1, embed 80 3", 5},
		{[]string{"embed", "random:weight=1"}, nil, "random 0 1", 4},
		{[]string{"embed:transport=udp:weight=1", "random:port=80:weight=9"}, []string{"random"}, "random 80 9", 4},
		{[]string{"embed:port=81", "embed:transport=udp"}, []string{"embed:transport=udp"}, "embed 0 1", 4},
		{[]string{"https" + pin, "http:port=80"}, []string{"https:" + site, "http:weight=6:" + site}, "https 0 1, http 80 6", 7},
		{[]string{"https:weight=2" + pin, "http:port=80"}, []string{"https:" + site, "http:port=8080:" + site}, "https 0 2, http 8080 1", 2},
		{[]string{"random"}, []string{"random:weight=1000", "embed"}, "random 0 1000, embed 0 1", 4},
	} {
		o, err := Bridge{Line: testLine(t, c.offered...), Cover: c.chosen}.Options()
		if err != nil {
			t.Errorf("%q, %q: %v", c.offered, c.chosen, err)
			continue
		}
		var got []string
		for _, one := range o.Covers {
			got = append(got, fmt.Sprint(one.Name, " ", one.Port, " ", one.Weight))
		}
		if strings.Join(got, ", ") != c.want || o.Connections != c.connections {
			t.Errorf("%q, %q: %q with %d connections, want %s with %d", c.offered, c.chosen, got, o.Connections, c.want, c.connections)
		}
	}
	for want, chosen := range map[string][]string{
		"cannot share a link": {"random", "embed:transport=udp"}, "there twice": {"random", "random:weight=2"}, "no weight": {"random:weight=0"},
		"no port": {"random:port=0"}, "a cover can have": {"embed:transport=udp:port=80"}, "no setting": {"random:weights=2"},
	} {
		if _, err := (Bridge{Line: testLine(t), Cover: chosen}).Options(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", chosen, err, want)
		}
	}
}

// memory is a path to a bridge without a network. The first listener takes connections to port 1, and the second one those to port 2.
type memory struct {
	path.Path
	silent uint16 // a port at which nobody answers

	mu    sync.Mutex
	doors [2]*door
	conns []*covertest.Conn // both ends of each
}

type door struct {
	conns, done chan net.Conn
	once        sync.Once
}

func (m *memory) Dial(ctx context.Context, to path.Target) (net.Conn, error) {
	if to.Port == m.silent {
		return silent{}.Dial(ctx, to)
	}
	near, far := covertest.Pipe()
	m.mu.Lock()
	m.conns = append(m.conns, near, far)
	m.mu.Unlock()
	m.doors[to.Port-1].conns <- far
	return near, nil
}

// packets is how many bytes IPv4 carries of what was written so far: each write is one packet or more, and somebody acknowledges it.
func (m *memory) packets() (bytes, writes int) {
	const headers, segment = 20 + 32, 1448
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.conns {
		for _, w := range c.Writes() {
			writes++
			bytes += len(w.Data) + 2*headers*((len(w.Data)+segment-1)/segment)
		}
	}
	return bytes, writes
}

// Accept, Close and Addr implement [net.Listener].
func (d *door) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.done:
		return nil, net.ErrClosed
	}
}

func (d *door) Close() error {
	d.once.Do(func() { close(d.done) })
	return nil
}

func (d *door) Addr() net.Addr { return &net.TCPAddr{} }

// inMemory starts a bridge that echoes, with one cover at each of its ports. It returns the options of a client that has both, and what ends the bridge.
func inMemory(t *testing.T, factory func(port uint16, bridge bool, key handshake.PublicKey) (number byte, f cover.Factory)) (m *memory, o Options, stop func()) {
	t.Helper()
	key, server := newServer(t)
	quiet := slog.New(slog.DiscardHandler)
	covers := func(port uint16) map[byte]cover.Factory {
		number, f := factory(port, true, key)
		return map[byte]cover.Factory{number: f}
	}
	b, err := bridge.New(bridge.Options{Key: key, Server: server, Covers: covers(1), Log: quiet,
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
	m = &memory{Path: path.NewSystem(0)}
	for i := range m.doors {
		m.doors[i] = &door{conns: make(chan net.Conn), done: make(chan net.Conn)}
	}
	apart, err := b.Apart(m.doors[1], covers(2))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Serve(ctx, m.doors[0], apart) }()
	o = Options{Line: handshake.Line{Address: netip.MustParseAddrPort("192.0.2.9:1"), Args: handshake.Args{Key: key}}, Log: quiet, Paths: []Path{{"home", m}}}
	for port := range uint16(2) {
		_, f := factory(port+1, false, key)
		o.Covers = append(o.Covers, Cover{Name: fmt.Sprint(port + 1), Factory: f, Share: cover.Share{Port: port + 1, Weight: 1}})
	}
	return m, o, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A cover that a filter stops in silence holds nothing up for longer than its share of the time, and ends no link: neither at the beginning, nor later.
func TestSilentCover(t *testing.T) {
	for silent := range uint16(2) {
		synctest.Test(t, func(t *testing.T) {
			m, o, stop := inMemory(t, func(_ uint16, _ bool, key handshake.PublicKey) (byte, cover.Factory) {
				f, err := cover.New(random.Name, cover.Options{Seed: key[:]})
				if err != nil {
					t.Fatal(err)
				}
				return random.Number, f
			})
			m.silent, o.Connections = 1+silent, 4
			o.Paths[0].Name = "" // so that all connections carry the stream, the silent ones too
			begun := time.Now()
			s, err := Dial(t.Context(), o)
			if err != nil || time.Since(begun) > answerPatience/2+time.Second {
				t.Fatalf("after %v: %v", time.Since(begun), err)
			}
			said := make([]byte, 1000)
			for begun := time.Now(); time.Since(begun) < 10*time.Minute; time.Sleep(5 * time.Second) {
				_, err := s.Write(said)
				if err == nil {
					_, err = io.ReadFull(s, said)
				}
				if err != nil {
					t.Fatalf("after %v: %v", time.Since(begun), err)
				}
			}
			states := s.Status().Paths[0].Covers
			if n := states[1-silent].Connections; n < o.Connections || states[silent].Down > 0 || states[silent].Opened < 4 {
				t.Errorf("%+v", states)
			}
			s.Leave()
			stop()
		})
	}
}

// An idle link over the web looks like an idle tab: all its connections together take less than 100 bytes a second in ten minutes, with the headers of TCP and IP. Connections
// that end then are replaced when there is something to carry again.
func TestIdleLink(t *testing.T) {
	dir := t.TempDir()
	site, certificate, key := filepath.Join(dir, "site.db"), filepath.Join(dir, "certificate.pem"), filepath.Join(dir, "key.pem")
	if err := webtest.Site().Write(site); err != nil {
		t.Fatal(err)
	}
	for name, only := range map[string]int{web.NameTLS: 0, web.Name: 1, "both": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if err := peer.SelfSigned(certificate, key, []string{"www.example"}, nil); err != nil { // of the bubble's time
					t.Fatal(err)
				}
				pin, err := peer.KeyHash(certificate)
				if err != nil {
					t.Fatal(err)
				}
				m, o, stop := inMemory(t, func(port uint16, bridge bool, public handshake.PublicKey) (byte, cover.Factory) {
					args, name, number := map[string]string{"site": site}, web.Name, byte(web.Number)
					if port == 1 {
						name, number, args["pin"] = web.NameTLS, web.NumberTLS, base64.RawURLEncoding.EncodeToString(pin)
						if bridge {
							args["certificate"], args["key"] = certificate, key
						}
					}
					f, err := cover.New(name, cover.Options{Seed: public[:], Bridge: bridge, Args: args})
					if err != nil {
						t.Fatal(err)
					}
					return number, f
				})
				o.Connections = cover.Connections(web.NameTLS) + cover.Connections(web.Name)
				o.Covers[1].Weight = cover.Connections(web.Name)
				if only < 2 {
					o.Covers = o.Covers[only:][:1]
					o.Connections = cover.Connections(name)
				}
				s, err := Dial(t.Context(), o)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute) // pages are loaded
				before, _ := m.packets()
				time.Sleep(10 * time.Minute)
				after, writes := m.packets()
				if n := after - before; n >= 60_000 || n == 0 || s.Status().Connections == 0 {
					t.Errorf("%d bytes in ten minutes, by %d of %d connections", n, s.Status().Connections, o.Connections)
				} else {
					t.Logf("%d bytes in ten minutes, %d writes in all, %d connections", n, writes, s.Status().Connections)
				}
				time.Sleep(time.Hour)
				rests := s.Status().Connections
				if _, err := s.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(s, make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				if n := s.Status().Connections; n < o.Connections || rests > n || rests == n && name == web.Name {
					t.Errorf("of %d connections %d remain in an hour, and then there are %d", o.Connections, rests, n)
				}
				s.Leave()
				stop()
			})
		})
	}
}

// A link over several paths does not rest, since one path would have all that comes next.
func TestSeveralPathsDoNotRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, o, stop := inMemory(t, func(_ uint16, _ bool, key handshake.PublicKey) (byte, cover.Factory) {
			f, err := cover.New(random.Name, cover.Options{Seed: key[:], Life: cover.Life{Age: 5 * time.Minute}})
			if err != nil {
				t.Fatal(err)
			}
			return random.Number, f
		})
		o.Covers, o.Connections, o.Paths = o.Covers[:1], 6, append(o.Paths, Path{"lte", m})
		s, err := Dial(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		most := 0
		for range 60 { // while one is replaced there are fewer
			most = max(most, s.Status().Connections)
			time.Sleep(time.Second)
		}
		if most < o.Connections {
			t.Errorf("after an hour %d of %d connections are there", most, o.Connections)
		}
		s.Leave()
		stop()
	})
}
