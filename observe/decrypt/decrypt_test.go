package decrypt_test

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"heddle/identity"
	"heddle/observe/decrypt"
)

// tap writes down what is written to a connection.
type tap struct {
	net.Conn
	written bytes.Buffer
}

func (t *tap) Write(b []byte) (int, error) {
	t.written.Write(b)
	return t.Conn.Write(b)
}

// talk runs a TLS 1.3 connection in which each side says its text, and gives what passed and the key log.
func talk(t *testing.T, suiteOf func(*tls.Config), up, down []byte) (client, server, log []byte) {
	t.Helper()
	var keyLog bytes.Buffer
	a, b := net.Pipe()
	left, right := &tap{Conn: a}, &tap{Conn: b}
	id, err := identity.New()
	if err != nil {
		t.Fatal(err)
	}
	clientConfig, err := id.Client(id.Key(), "test/1")
	if err != nil {
		t.Fatal(err)
	}
	serverConfig, err := id.Server(func(identity.Key) error { return nil }, "test/1")
	if err != nil {
		t.Fatal(err)
	}
	clientConfig.KeyLogWriter = &keyLog
	suiteOf(serverConfig)
	var wait sync.WaitGroup
	wait.Go(func() {
		defer right.Close()
		c := tls.Server(right, serverConfig)
		if _, err := io.ReadFull(c, make([]byte, len(up))); err != nil {
			t.Error(err)
		}
		if _, err := c.Write(down); err != nil {
			t.Error(err)
		}
	})
	c := tls.Client(left, clientConfig)
	if _, err := c.Write(up); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(c, make([]byte, len(down))); err != nil {
		t.Error(err)
	}
	wait.Wait()
	return left.written.Bytes(), right.written.Bytes(), keyLog.Bytes()
}

func random(t *testing.T, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOpensWhatWasSaid(t *testing.T) {
	up, down := random(t, 100_000), random(t, 50_000)
	client, server, log := talk(t, func(*tls.Config) {}, up, down)
	keys, err := decrypt.ReadKeys(bytes.NewReader(append([]byte("# a comment\n\nEXPORTER_SECRET 00 00\n"), log...)))
	if err != nil {
		t.Fatal(err)
	}
	gotUp, gotDown, err := decrypt.Open(client, server, keys)
	if err != nil || !bytes.Equal(gotUp, up) || !bytes.Equal(gotDown, down) {
		t.Errorf("up %d of %d bytes, down %d of %d: %v", len(gotUp), len(up), len(gotDown), len(down), err)
	}
	if !decrypt.IsTLS(client) || decrypt.IsTLS(server) || decrypt.IsTLS(up) {
		t.Error("who begins TLS is told wrong")
	}

	short, _, err := decrypt.Open(client[:len(client)-70_000], server, keys)
	if err != nil || len(short) == 0 || !bytes.HasPrefix(up, short) {
		t.Errorf("cut short: %d bytes, %v", len(short), err)
	}
	changed := bytes.Clone(client)
	changed[len(changed)/2] ^= 1
	if got, _, err := decrypt.Open(changed, server, keys); err == nil || !bytes.HasPrefix(up, got) || len(got) == len(up) {
		t.Errorf("changed: %d bytes, %v", len(got), err)
	}
	if _, _, err := decrypt.Open(client, server, decrypt.Keys{}); !errors.Is(err, decrypt.ErrNoKeys) {
		t.Errorf("without keys: %v", err)
	}
	if _, _, err := decrypt.Open([]byte("GET / HTTP/1.1\r\n"), server, keys); !errors.Is(err, decrypt.ErrNoTLS) {
		t.Errorf("no TLS: %v", err)
	}
}

func TestBadKeyLogsDoNotRepeatThem(t *testing.T) {
	for _, bad := range []string{
		"CLIENT_TRAFFIC_SECRET_0 xyzzy",
		"CLIENT_TRAFFIC_SECRET_0 xyzzy xyzzy",
		"CLIENT_TRAFFIC_SECRET_0 " + strings.Repeat("ab", 32) + " " + strings.Repeat("cd", 20),
		strings.Repeat("xyzzy", 1000),
	} {
		if _, err := decrypt.ReadKeys(strings.NewReader(bad)); err == nil || strings.Contains(err.Error(), "xyzzy") || strings.Contains(err.Error(), "cdcd") {
			t.Errorf("%.40q: %v", bad, err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	secret := strings.Repeat("ab", 32)
	log := ""
	for _, label := range []string{"CLIENT_HANDSHAKE_TRAFFIC_SECRET", "SERVER_HANDSHAKE_TRAFFIC_SECRET", "CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"} {
		log += label + " " + strings.Repeat("00", 32) + " " + secret + "\n"
	}
	keys, err := decrypt.ReadKeys(strings.NewReader(log))
	if err != nil {
		f.Fatal(err)
	}
	hello := func(kind byte) []byte {
		return append([]byte{22, 3, 3, 0, 42, kind, 0, 0, 38, 3, 3}, append(make([]byte, 33), 0x13, 0x01, 0)...)
	}
	f.Add(append(hello(1), 23, 3, 3, 0, 20), append(hello(2), 23, 3, 3, 0, 1, 0))
	f.Add([]byte{22, 3, 1, 0xff, 0xff, 1}, []byte{22, 3})
	f.Add([]byte{22, 3, 3, 0, 0, 1, 0, 0, 38}, []byte{22, 3}) // a record shorter than its message's header
	f.Fuzz(func(t *testing.T, up, down []byte) {
		client, server, _ := decrypt.Open(up, down, keys)
		if len(client) > len(up) || len(server) > len(down) {
			t.Errorf("%d and %d bytes from %d and %d", len(client), len(server), len(up), len(down))
		}
	})
}
