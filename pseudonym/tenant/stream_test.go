package tenant

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/keyfile"
	"heddle/internal/pgtest"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/ca/catest"
	"heddle/pseudonym/gateway"
	"heddle/pseudonym/mutual"
)

// way leads all to one sidecar.
type way string

func (w way) Route(context.Context, pseudonym.Label) (gateway.Place, error) {
	return gateway.Place{Addresses: []string{string(w)}}, nil
}

// run serves on a port of its own until the test ends.
func run(t testing.TB, serve func(context.Context, net.Listener) error) (at string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// psql, which knows nothing of pseudonyms, reaches PostgreSQL, which speaks no TLS, through a gateway and a sidecar. Others do not.
func TestPostgreSQL(t *testing.T) {
	if _, err := exec.LookPath("psql"); err != nil {
		t.Skip("typed skip: no psql: apt-get install postgresql")
	}
	database, err := url.Parse(pgtest.Start(t).Database(t))
	if err != nil {
		t.Fatal(err)
	}
	k := newKeys(t)
	otherKey := catest.NewKey(t)
	other, err := ca.Client(k.name, otherKey, time.Now(), k.Expires)
	if err != nil {
		t.Fatal(err)
	}
	names, err := mutual.NewServer(zone, known{k.Entry}, 10, streamProtocols...)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	s := &Sidecar{names: names, o: Options{Zone: zone, Stream: "unix:" + filepath.Join(database.Query().Get("host"), ".s.PGSQL.5432"), Gateways: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Log: log}}
	g := gateway.New(gateway.Options{Zone: zone, Router: way(run(t, s.serveStream)), Log: log})
	at := run(t, g.Serve)

	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	for name, der := range map[string][]byte{"root.pem": k.root.Raw, "cert.pem": k.client.Certificate[0], "other.pem": other.Raw} {
		if err := os.WriteFile(file(name), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := keyfile.Create(file("key.pem"), k.client.PrivateKey); err != nil {
		t.Fatal(err)
	}
	if err := keyfile.Create(file("other-key.pem"), otherKey); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	psql := func(cert, key string) (string, error) {
		settings := []string{"host=" + k.name, "hostaddr=127.0.0.1", "port=" + port, "user=heddle", "dbname=" + strings.TrimPrefix(database.Path, "/"), "sslmode=verify-full",
			"sslrootcert=" + file("root.pem"), "sslcert=" + file(cert), "sslkey=" + file(key), "gssencmode=disable", "connect_timeout=60"}
		out, err := exec.CommandContext(t.Context(), "psql", "--no-psqlrc", "--tuples-only", "--no-align", "--command", "SELECT 6 * 7", strings.Join(settings, " ")).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	if out, err := psql("cert.pem", "key.pem"); err != nil || out != "42" {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := psql("other.pem", "other-key.pem"); err == nil {
		t.Errorf("another client: %q", out)
	}
	// A browser cannot be made to talk to it.
	config := &tls.Config{ServerName: k.name, RootCAs: k.roots, NextProtos: []string{"h2", "http/1.1"}, Certificates: []tls.Certificate{k.client}}
	if c, err := tls.Dial("tcp", at, config); err == nil {
		c.Close()
		t.Error("a browser is let in")
	}
}
