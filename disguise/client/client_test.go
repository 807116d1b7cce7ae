package client

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"heddle/disguise/bridge"
	"heddle/disguise/cover"
	_ "heddle/disguise/cover/embed"
	"heddle/disguise/cover/random"
	"heddle/disguise/handshake"
	"heddle/internal/netutil"
	"heddle/internal/tcptest"
	"heddle/path"
)

// newServer makes the key of a bridge, and what reads hellos to it.
func newServer(t *testing.T) (handshake.PublicKey, *handshake.Server) {
	t.Helper()
	id, err := handshake.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	server, err := handshake.NewServer(id, &handshake.Replays{})
	if err != nil {
		t.Fatal(err)
	}
	return id.Public(), server
}

// echoBridge starts a bridge whose target sends back what it gets. It returns the options of a client.
func echoBridge(t *testing.T) Options {
	t.Helper()
	key, server := newServer(t)
	covers, err := cover.New(random.Name, cover.Options{Seed: key[:]})
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	b, err := bridge.New(bridge.Options{Key: key, Server: server, Covers: map[byte]cover.Factory{random.Number: covers}, Log: quiet,
		Target: func(ctx context.Context, _ net.Addr) (net.Conn, error) {
			return path.Dial(ctx, path.NewSystem(0), path.At(tcptest.Serve(t, tcptest.Echo)))
		}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return Options{Line: handshake.Line{Address: netutil.AddrPort(l.Addr()), Args: handshake.Args{Key: key}}, Covers: []Cover{{Factory: covers}}, Log: quiet}
}

// testLine is the line of a bridge that is not there.
func testLine(t *testing.T, covers ...string) string {
	t.Helper()
	id, err := handshake.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return handshake.Line{Address: netip.MustParseAddrPort("192.0.2.9:443"),
		Args: handshake.Args{Key: id.Public(), Token: []byte("a secret of 20 bytes"), Covers: covers}}.String()
}

// A bridge line that cannot be used is refused before anything is sent. The message says what is wrong, and never what the token is.
func TestUselessLines(t *testing.T) {
	whole := testLine(t)
	token := whole[strings.Index(whole, "token="):strings.Index(whole, " key=")]
	for name, c := range map[string]struct{ line, want string }{
		"none":             {"", "there is no bridge line"},
		"cut":              {whole[:len(whole)-9], "is cut"},
		"without its end":  {whole[:strings.Index(whole, " key=")], "no key="},
		"another token":    {strings.Replace(whole, token, "token=YQ", 1), "check of key= is wrong"},
		"another argument": {whole + " run=reboot", "unknown"},
		"a wrong address":  {strings.Replace(whole, "192.0.2.9:443", "0.0.0.0:443", 1), "cannot reach"},
		"an unknown cover": {testLine(t, "pigeon"), `no such cover`},
		"a wrong setting":  {testLine(t, "random:prefix=none:loud=yes"), `no setting "loud"`},
		"megabytes":        {strings.Repeat(whole+" ", 10_000), "at most"},
	} {
		_, err := Bridge{Line: c.line}.Options()
		e, ok := errors.AsType[*path.Error](err)
		if !ok || !strings.Contains(e.Error(), c.want) || e.Hint == "" {
			t.Errorf("%s: %v, %+v", name, err, e)
		}
		if err != nil && strings.Contains(err.Error()+e.Hint, strings.TrimPrefix(token, "token=")) {
			t.Errorf("%s: the message shows the token: %v", name, err)
		}
	}
}

// Whoever made a bridge line cannot make a client read a file of its choice.
func TestLineNamesNoFile(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile(filepath.Join(".", "mine.db"), []byte("this is no trace database"), 0o600); err != nil {
		t.Fatal(err)
	}
	const spec = "embed:traces=mine.db"
	if _, err := (Bridge{Line: testLine(t, spec)}).Options(); err != nil {
		t.Errorf("by the line: %v", err)
	}
	if _, err := (Bridge{Line: testLine(t, spec), Cover: cover.Specs{spec}}).Options(); err == nil {
		t.Error("the file that the user named was not read")
	}
}

// Over UDP no path shows that it works before something was sent, so several cannot be required.
func TestPathsOverUDPCannotBeRequired(t *testing.T) {
	o, err := Bridge{Line: testLine(t), Cover: cover.Specs{"embed:transport=udp"}}.Options()
	if err != nil {
		t.Fatal(err)
	}
	o.Paths = []Path{{"a", path.NewSystem(0)}, {"b", path.NewSystem(0)}}
	for _, c := range []struct {
		least   int
		degrade bool
		refused bool
	}{{0, false, true}, {2, false, true}, {1, false, false}, {2, true, false}} {
		o.MinPaths, o.Degrade = c.least, c.degrade
		if _, err := NewMany(o); (err != nil) != c.refused {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// silent is a path to a server that reads, and says nothing.
type silent struct{ path.Path }

func (silent) Dial(context.Context, path.Target) (net.Conn, error) {
	near, far := net.Pipe()
	go io.Copy(io.Discard, far)
	return near, nil
}

// A link to a server that is silent is given up at the caller's deadline, and after 20 s if there is none.
func TestPatienceIsTheCallers(t *testing.T) {
	for deadline, want := range map[time.Duration]time.Duration{0: answerPatience, 5 * time.Second: 5 * time.Second, time.Minute: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			o, err := Bridge{Line: testLine(t), Cover: cover.Specs{"random"}}.Options()
			if err != nil {
				t.Fatal(err)
			}
			o.Paths = []Path{{"silent", silent{path.NewSystem(0)}}}
			ctx := t.Context()
			if deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, deadline)
				defer cancel()
			}
			begun := time.Now()
			if c, err := Dial(ctx, o); err == nil || !strings.Contains(err.Error(), "does not answer") || time.Since(begun) != want {
				t.Errorf("with %v: %v, %v after %v", deadline, c, err, time.Since(begun))
			}
		})
	}
}

// A cover knows by which path each of its connections leaves.
func TestCoversKnowTheirPath(t *testing.T) {
	o := echoBridge(t)
	told := telling{o.Covers[0].Factory, make(chan string, 64)}
	o.Covers[0].Factory = told
	o.Paths = []Path{{"home", path.NewSystem(0)}}
	s, err := Dial(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := <-told.paths; got != "home" {
		t.Errorf("the first connection leaves by %q", got)
	}
}

// telling is a factory whose covers tell their paths.
type telling struct {
	cover.Factory
	paths chan string
}

func (f telling) Client() (cover.Cover, []byte, error) {
	c, parameters, err := f.Factory.Client()
	return tellingCover{c, f.paths}, parameters, err
}

type tellingCover struct {
	cover.Cover
	paths chan string
}

func (c tellingCover) Carry(ctx context.Context, conn net.Conn, f cover.Feed) error {
	c.paths <- f.(cover.Gauge).Path()
	return c.Cover.Carry(ctx, conn, f)
}
