package identity

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func fresh(t *testing.T) Identity {
	t.Helper()
	id, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestFileIsKeptAndPrivate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "identity.pem")
	first, created, err := LoadOrCreate(file)
	if err != nil || !created {
		t.Fatalf("created %v, %v", created, err)
	}
	again, created, err := LoadOrCreate(file)
	if err != nil || created || again.Key() != first.Key() {
		t.Fatalf("the second time: created %v, %v, same key %v", created, err, again.Key() == first.Key())
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), "others may read it") {
		t.Errorf("a file that all may read: %v", err)
	}
}

func TestBadFilesAreRefusedWithoutShowingThem(t *testing.T) {
	for name, text := range map[string]string{
		"empty":   "",
		"words":   "xyzzy",
		"no key":  "-----BEGIN PRIVATE " + "KEY-----\neHl6enk=\n-----END PRIVATE KEY-----\n",
		"a chain": "-----BEGIN CERTIFICATE-----\neHl6enk=\n-----END CERTIFICATE-----\n",
	} {
		file := filepath.Join(t.TempDir(), "identity.pem")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(file); err == nil || strings.Contains(err.Error(), "xyzzy") || strings.Contains(err.Error(), "eHl6") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNothingPrintsThePrivateKey(t *testing.T) {
	id := fresh(t)
	asJSON, err := json.Marshal(map[string]any{"id": id})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprint(id), fmt.Sprintf("%v %+v %#v %x %s %q %d", id, id, id, id, id, id, id), string(asJSON)} {
		if strings.Contains(strings.ReplaceAll(text, "(identity)", ""), fmt.Sprintf("%x", id.private.Seed())) || !strings.Contains(text, "(identity)") {
			t.Errorf("printed as %q", text)
		}
	}
}

func TestSignatureIsForOnePurpose(t *testing.T) {
	id, message := fresh(t), []byte("message")
	signature, err := id.Sign("heddle test 1", message)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key     Key
		purpose string
		message string
		want    bool
	}{
		{id.Key(), "heddle test 1", "message", true},
		{id.Key(), "heddle test 2", "message", false},
		{id.Key(), "heddle test 1", "massage", false},
		{fresh(t).Key(), "heddle test 1", "message", false},
		{Key{}, "heddle test 1", "message", false},
	} {
		if got := c.key.Verify(c.purpose, []byte(c.message), signature); got != c.want {
			t.Errorf("%v %q %q: %v", c.key, c.purpose, c.message, got)
		}
	}
}

func TestKeyText(t *testing.T) {
	key := fresh(t).Key()
	if back, err := ParseKey(key.String()); err != nil || back != key {
		t.Errorf("%v: %v, %v", key, back, err)
	}
	for _, bad := range []string{"", "ed25519:", key.String() + "A", strings.TrimPrefix(key.String(), keyPrefix), key.String()[:20], strings.ToUpper(key.String()),
		key.String() + "\n", key.String()[:20] + "\r" + key.String()[20:]} {
		if got, err := ParseKey(bad); err == nil {
			t.Errorf("%q was read as %v", bad, got)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add("ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, text string) {
		if key, err := ParseKey(text); err == nil && !key.IsZero() && key.String() != text {
			t.Errorf("%q was read as %q", text, key)
		}
	})
}

// handshake gives the errors of client and server, and who each says the other is.
func handshake(t *testing.T, client, server *tls.Config) (seen Key, clientErr, serverErr error) {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	done := make(chan error, 1)
	s := tls.Server(b, server)
	go func() {
		err := s.Handshake()
		if err == nil {
			seen, err = PeerKey(s.ConnectionState())
		}
		b.Close()
		done <- err
	}()
	c := tls.Client(a, client)
	clientErr = c.Handshake()
	if clientErr == nil {
		_, _ = c.Read(make([]byte, 1)) // a server refuses a client's certificate only after the client is done
	}
	serverErr = <-done
	return seen, clientErr, serverErr
}

func TestBothSidesProveTheirKeys(t *testing.T) {
	client, server, other := fresh(t), fresh(t), fresh(t)
	accept := func(key Key) error {
		if key != client.Key() {
			return errors.New("not let in")
		}
		return nil
	}
	config := func(c *tls.Config, err error) *tls.Config {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	serving := config(server.Server(accept, "test/1"))
	seen, clientErr, serverErr := handshake(t, config(client.Client(server.Key(), "test/1")), serving)
	if clientErr != nil || serverErr != nil || seen != client.Key() {
		t.Errorf("both right: %v, %v, seen %v", clientErr, serverErr, seen)
	}
	_, clientErr, _ = handshake(t, config(client.Client(other.Key(), "test/1")), serving)
	if wrong, ok := errors.AsType[*KeyError](clientErr); !ok || wrong.Got != server.Key() {
		t.Errorf("another server: %v", clientErr)
	}
	if _, _, serverErr = handshake(t, config(other.Client(server.Key(), "test/1")), serving); serverErr == nil {
		t.Error("another client came in")
	}
	if _, clientErr, _ = handshake(t, config(client.Client(server.Key(), "test/2")), serving); clientErr == nil {
		t.Error("another protocol was spoken")
	}
	old := config(client.Client(server.Key(), "test/1"))
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if _, _, serverErr = handshake(t, old, serving); serverErr == nil {
		t.Error("TLS 1.2 was spoken")
	}
	anonymous := config(client.Client(server.Key(), "test/1"))
	anonymous.Certificates = nil
	if _, _, serverErr = handshake(t, anonymous, serving); serverErr == nil {
		t.Error("a client without a key came in")
	}
}
