package bridge

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"

	"heddle/disguise/client"
	"heddle/disguise/cover"
	"heddle/disguise/cover/random"
	"heddle/disguise/handshake"
	"heddle/internal/netutil"
	"heddle/internal/polltest"
	"heddle/proxy/targets"
)

// setup is a bridge on loopback.
type setup struct {
	*Bridge
	t    testing.TB
	at   netip.AddrPort
	line handshake.Line
	stop func()
}

func start(t testing.TB, edit func(*Options)) *setup {
	t.Helper()
	id, err := handshake.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return startAs(t, id, "127.0.0.1:0", edit)
}

// startAs starts a bridge with listeners beside its own one.
func startAs(t testing.TB, id handshake.Identity, at string, edit func(*Options), beside ...func(*Bridge) net.Listener) *setup {
	t.Helper()
	server, err := handshake.NewServer(id, &handshake.Replays{})
	if err != nil {
		t.Fatal(err)
	}
	rules, err := targets.New([]string{"127.0.0.1"}, []string{"127.0.0.1:7"})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Key: id.Public(), Server: server, Covers: map[byte]cover.Factory{random.Number: factory(t, id.Public(), 0)}, Targets: rules,
		Log: slog.New(slog.DiscardHandler)}
	if edit != nil {
		edit(&o)
	}
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	all := []net.Listener{l}
	for _, open := range beside {
		all = append(all, open(b))
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Serve(ctx, all...) }()
	s := &setup{Bridge: b, t: t, at: netutil.AddrPort(l.Addr()), stop: sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})}
	t.Cleanup(s.stop)
	s.line = handshake.Line{Address: s.at, Args: handshake.Args{Key: id.Public()}}
	return s
}

func factory(t testing.TB, key handshake.PublicKey, bytes int64) cover.Factory {
	t.Helper()
	f, err := cover.New(random.Name, cover.Options{Seed: key[:], Life: cover.Life{Bytes: bytes}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// only are the covers of a client that has one.
func only(f cover.Factory) []client.Cover { return []client.Cover{{Factory: f}} }

// options are those of a client, by the path system.
func (s *setup) options() client.Options {
	return client.Options{Line: s.line, Covers: only(factory(s.t, s.line.Key, 0)), Log: slog.New(slog.DiscardHandler)}
}

// openLink opens a link, and gives a busy machine more time than users have.
func openLink(t testing.TB, o client.Options) (*client.Session, error) {
	ctx, cancel := context.WithTimeout(t.Context(), polltest.Patience)
	defer cancel()
	return client.Dial(ctx, o)
}

// opened is openLink for tests that need a link.
func opened(t testing.TB, o client.Options) *client.Session {
	t.Helper()
	c, err := openLink(t, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (s *setup) many(edit func(*client.Options)) *client.Many {
	s.t.Helper()
	o := s.options()
	if edit != nil {
		edit(&o)
	}
	m, err := client.NewMany(o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { m.Close() })
	return m
}

func to(at netip.AddrPort) func(context.Context, net.Addr) (net.Conn, error) {
	return func(ctx context.Context, _ net.Addr) (net.Conn, error) { return dialTCP(ctx, at) }
}
