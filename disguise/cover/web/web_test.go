package web

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"flag"
	mrand "math/rand/v2"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"

	"heddle/disguise/cover"
	"heddle/disguise/cover/covertest"
	"heddle/disguise/cover/web/webtest"
	"heddle/disguise/site"
)

// siteFile writes the site of the tests.
func siteFile(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "site.db")
	if err := webtest.Site().Write(file); err != nil {
		t.Fatal(err)
	}
	return file
}

var update = flag.Bool("update", false, "write testdata/site.db anew")

// World tests use the site as a file.
func TestSiteFile(t *testing.T) {
	s := webtest.Site()
	if *update {
		if err := s.Write("testdata/site.db"); err != nil {
			t.Fatal(err)
		}
	} else if err := s.Write(filepath.Join(t.TempDir(), "site.db")); err != nil {
		t.Fatal(err)
	}
	if got, err := site.Open("testdata/site.db"); err != nil || got.Fingerprint != s.Fingerprint {
		t.Errorf("it is another site than that of the tests: %v", err)
	}
}

func factoryOf(t testing.TB, o cover.Options) *factory {
	t.Helper()
	if o.Args == nil {
		o.Args = map[string]string{"site": siteFile(t)}
	}
	f, err := cover.New(Name, o)
	if err != nil {
		t.Fatal(err)
	}
	return f.(*factory)
}

// veiled is a feed whose blocks look random and differ from each other, as those of a link do.
type veiled struct {
	covertest.Feed
	out, in cipher.Stream
}

func newVeiled(out, in byte) *veiled {
	stream := func(n byte) cipher.Stream {
		block, err := aes.NewCipher(bytes.Repeat([]byte{n}, 16))
		if err != nil {
			panic(err)
		}
		return cipher.NewCTR(block, make([]byte, 16))
	}
	return &veiled{out: stream(out), in: stream(in)}
}

func (v *veiled) Fill(b []byte) (int, error) {
	n, err := v.Feed.Fill(b)
	if err == nil {
		v.out.XORKeyStream(b, b)
	}
	return n, err
}

func (v *veiled) Take(b []byte) error {
	v.in.XORKeyStream(b, b)
	return v.Feed.Take(b)
}

// session is both ends of one connection, without a hello.
type session struct {
	client, server         *veiled
	clientConn, serverConn *covertest.Conn
	ctx                    context.Context // ends with the first end that fails
	cancel                 context.CancelFunc
	ended                  chan error // of the client, then of the server, in any order
}

func start(t testing.TB, clients, bridge *factory) *session {
	t.Helper()
	client, server := covertest.Pipe()
	return startOver(t, clients, bridge, client, server, 1)
}

// startThrough is start with a man in the middle, and with a key, since no two links send the same blocks.
func startThrough(t testing.TB, clients, bridge *factory, key byte, attack func([]byte, func([]byte) *webtest.Answer) *webtest.Answer) *session {
	t.Helper()
	client, near := covertest.Pipe()
	far, server := covertest.Pipe()
	go func() {
		webtest.Middle(near, far, attack)
		near.Close()
		far.Close()
	}()
	return startOver(t, clients, bridge, client, server, key)
}

func startOver(t testing.TB, clients, bridge *factory, clientConn, serverConn *covertest.Conn, key byte) *session {
	t.Helper()
	s := &session{client: newVeiled(key, ^key), server: newVeiled(^key, key), ended: make(chan error, 2), clientConn: clientConn, serverConn: serverConn}
	running, cancel := context.WithCancel(t.Context()) // not s.ctx, so that each end says itself why it failed
	s.cancel = cancel
	ctx, over := context.WithCancel(running)
	s.ctx = ctx
	client, parameters, err := clients.Client()
	if err != nil {
		t.Fatal(err)
	}
	server, err := bridge.Server(parameters)
	if err != nil {
		t.Fatal(err)
	}
	carry := func(c cover.Cover, conn net.Conn, feed cover.Feed) {
		err := c.Carry(running, conn, feed)
		conn.Close()
		over()
		s.ended <- err
	}
	go carry(client, s.clientConn, s.client)
	go carry(server, s.serverConn, s.server)
	return s
}

// stop ends both ends, and expects that neither failed.
func (s *session) stop(t testing.TB) {
	t.Helper()
	s.cancel()
	for range 2 {
		if err := <-s.ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("an end failed: %v", err)
		}
	}
}

func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = mrand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

func TestDeliversBothWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, factoryOf(t, cover.Options{}), factoryOf(t, cover.Options{}))
		defer s.stop(t)
		up, down := noise(100_000), noise(3_000_000)
		s.client.Send(up)
		s.server.Send(down)
		if !s.server.Await(s.ctx, len(up)) || !s.client.Await(s.ctx, len(down)) {
			t.Errorf("%d bytes of %d arrived, and %d of %d", len(s.server.Received()), len(up), len(s.client.Received()), len(down))
		}
		if !bytes.Equal(s.server.Received(), up) || !bytes.Equal(s.client.Received(), down) {
			t.Error("other bytes arrived")
		}
		t.Logf("%d bytes on the wire up for %d, %d down for %d", len(s.clientConn.Sent()), len(up), len(s.serverConn.Sent()), len(down))
	})
}
