package bridge

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"path/filepath"
	"testing"
	"time"

	"heddle/disguise/client"
	"heddle/disguise/cover"
	"heddle/disguise/cover/web"
	"heddle/disguise/cover/web/webtest"
	"heddle/disguise/handshake"
	"heddle/internal/netutil"
	"heddle/internal/polltest"
	"heddle/internal/tcptest"
	"heddle/path"
)

// startBoth is a bridge that is the website of the tests twice: inside TLS at its own port, and over plain HTTP at another one. Its client has both
// covers, and twice as many connections of the second one. sealed and plain are what the network sees of them.
func startBoth(t *testing.T) (s *setup, o client.Options, sealed, plain *wire) {
	t.Helper()
	dir := t.TempDir()
	args := map[string]string{"site": filepath.Join(dir, "site.db")}
	if err := webtest.Site().Write(args["site"]); err != nil {
		t.Fatal(err)
	}
	theirs, inside := maps.Clone(args), maps.Clone(args)
	theirs["certificate"], theirs["key"], inside["pin"] = certified(t, dir)
	made := func(name string, o cover.Options) cover.Factory {
		f, err := cover.New(name, o)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	id, err := handshake.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	s = startAs(t, id, "127.0.0.1:0", func(o *Options) {
		o.Target = to(tcptest.Serve(t, tcptest.Echo))
		o.Covers = map[byte]cover.Factory{web.NumberTLS: made(web.NameTLS, cover.Options{Seed: o.Key[:], Bridge: true, Args: theirs})}
	}, func(b *Bridge) net.Listener {
		own, err := b.Apart(l, map[byte]cover.Factory{web.Number: made(web.Name, cover.Options{Seed: b.o.Key[:], Bridge: true, Args: args})})
		if err != nil {
			t.Fatal(err)
		}
		return own
	})
	// The cover that carries more has the longer way, so that the other one carries much too.
	sealed, plain = startWire(t, s.at, 50*time.Millisecond), startWire(t, netutil.AddrPort(l.Addr()), 0)
	o, s.line.Address = s.options(), sealed.at
	o.Line.Address, o.Connections = sealed.at, 3
	o.Covers = []client.Cover{
		{Name: web.NameTLS, Factory: made(web.NameTLS, cover.Options{Seed: s.line.Key[:], Args: inside}), Share: cover.Share{Weight: 1}},
		{Name: web.Name, Factory: made(web.Name, cover.Options{Seed: s.line.Key[:], Args: args}), Share: cover.Share{Weight: 2, Port: plain.at.Port()}},
	}
	return s, o, sealed, plain
}

// Connections of two covers carry one stream, each of them a part, and as many connections have each cover as their weights say.
func TestCoversShareALink(t *testing.T) {
	t.Parallel()
	const size = 3_000_000
	s, o, sealed, plain := startBoth(t)
	c := opened(t, o)
	polltest.Await(t, "all connections are there", func() bool { return c.Status().Connections == o.Connections })
	for i, want := range []int{1, 2} {
		if got := c.Status().Paths[0].Covers[i]; got.Connections != want || got.Name != o.Covers[i].Name {
			t.Errorf("%+v, want %d connections", got, want)
		}
	}
	out := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(out)
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(out)
		sent <- err
	}()
	in := make([]byte, size)
	if _, err := io.ReadFull(c, in); errors.Join(err, <-sent) != nil || !bytes.Equal(in, out) {
		t.Error("the stream is another one", err)
	}
	if n := s.Status().LinksEver; n != 1 {
		t.Errorf("%d links", n)
	}
	up, down := uint64(0), uint64(0)
	for i, w := range []*wire{sealed, plain} {
		of := c.Status().Paths[0].Covers[i]
		up, down = up+of.Up, down+of.Down
		if wireUp, wireDown := w.seen(); of.Up == 0 || of.Down < size/50 || uint64(wireDown) < of.Down || uint64(wireUp) < of.Up {
			t.Errorf("by %s go %d bytes of the stream up and %d down, and the network sees %d and %d", of.Name, of.Up, of.Down, wireUp, wireDown)
		}
	}
	if up < size || down != size {
		t.Errorf("%d bytes go up, and %d come down, of %d", up, down, size)
	}
	if err := c.CloseWrite(); err != nil {
		t.Error(err)
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Error(err)
	}
	<-c.Done()
}

// A filter that stops one of the covers stops neither the link nor its path, and shows in the status.
func TestOneCoverIsBlocked(t *testing.T) {
	t.Parallel()
	for i, name := range []string{web.NameTLS, web.Name} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, o, _, _ := startBoth(t)
			if i == 0 {
				o.Covers[0].Port = tcptest.Nobody(t).Port()
			} else {
				o.Covers[1].Port = tcptest.Nobody(t).Port()
			}
			c := opened(t, o)
			exchange(t, c, 100_000)
			polltest.Await(t, "the status says it", func() bool {
				of := c.Status().Paths[0]
				return of.Covers[i].State == path.Down && of.Covers[i].Why != "" && of.State != path.Down && of.Covers[1-i].Opened > 0
			})
			<-c.Done()
		})
	}
}

// A bridge behind another web server has no listener of its own.
func TestNoCoverApartBehindAWebServer(t *testing.T) {
	b := startBehind(t, fronts["nginx"], cover.Front{}, func(*Options) {})
	if l, err := b.Apart(nil, nil); err == nil {
		t.Error(l)
	}
}
