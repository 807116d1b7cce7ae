package tenant

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
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

func (way) Ended(context.Context, []pseudonym.Label) ([]pseudonym.Label, error) { return nil, nil }

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

// streamed is a server that speaks something else than HTTP, and no TLS, behind a gateway and a sidecar; and the files of the holder of its
// pseudonym, and of another client.
type streamed struct {
	keys
	at, port string // of the gateway
	dir      string
}

func newStreamed(t *testing.T, to string) *streamed {
	t.Helper()
	s := &streamed{keys: newKeys(t), dir: t.TempDir()}
	otherKey := catest.NewKey(t)
	other, err := ca.Client(s.name, otherKey, time.Now(), s.Expires)
	if err != nil {
		t.Fatal(err)
	}
	names, err := mutual.NewServer(zone, known{s.Entry}, 10, streamProtocols...)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	sidecar := &Sidecar{names: names, o: Options{Zone: zone, Stream: to, Gateways: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Log: log}}
	g := gateway.New(gateway.Options{Zone: zone, Router: way(run(t, sidecar.serveStream)), Log: log})
	s.at = run(t, g.Serve)
	if _, s.port, err = net.SplitHostPort(s.at); err != nil {
		t.Fatal(err)
	}
	for name, der := range map[string][]byte{"root.pem": s.root.Raw, "cert.pem": s.client.Certificate[0], "other.pem": other.Raw} {
		if err := os.WriteFile(s.file(name), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := keyfile.Create(s.file("key.pem"), s.client.PrivateKey); err != nil {
		t.Fatal(err)
	}
	if err := keyfile.Create(s.file("other-key.pem"), otherKey); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *streamed) file(name string) string { return filepath.Join(s.dir, name) }

// refusesBrowsers checks that a browser cannot be made to talk to the server.
func (s *streamed) refusesBrowsers(t *testing.T) {
	t.Helper()
	config := &tls.Config{ServerName: s.name, RootCAs: s.roots, NextProtos: []string{"h2", "http/1.1"}, Certificates: []tls.Certificate{s.client}}
	if c, err := tls.Dial("tcp", s.at, config); err == nil {
		c.Close()
		t.Error("a browser is let in")
	}
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
	s := newStreamed(t, "unix:"+filepath.Join(database.Query().Get("host"), ".s.PGSQL.5432"))
	psql := func(cert, key string) (string, error) {
		settings := []string{"host=" + s.name, "hostaddr=127.0.0.1", "port=" + s.port, "user=heddle", "dbname=" + strings.TrimPrefix(database.Path, "/"), "sslmode=verify-full",
			"sslrootcert=" + s.file("root.pem"), "sslcert=" + s.file(cert), "sslkey=" + s.file(key), "gssencmode=disable", "connect_timeout=60"}
		out, err := exec.CommandContext(t.Context(), "psql", "--no-psqlrc", "--tuples-only", "--no-align", "--command", "SELECT 6 * 7", strings.Join(settings, " ")).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	if out, err := psql("cert.pem", "key.pem"); err != nil || out != "42" {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := psql("other.pem", "other-key.pem"); err == nil {
		t.Errorf("another client: %q", out)
	}
	s.refusesBrowsers(t)
}

// dovecotConfig is of version 2.3. Mail belongs to a user who is not root, which Dovecot refuses.
const dovecotConfig = `base_dir = %[1]s/run
state_dir = %[1]s/state
log_path = /dev/stderr
protocols = imap
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
default_internal_user = %[3]s
default_login_user = %[3]s
default_internal_group = %[4]s
first_valid_uid = 1
mail_location = maildir:%[1]s/mail/%%u
passdb {
  driver = static
  args = password=secret
}
userdb {
  driver = static
  args = uid=%[3]s gid=%[4]s home=%[1]s/mail/%%u
}
service imap-login {
  chroot =
  inet_listener imap {
    port = %[2]s
  }
  inet_listener imaps {
    port = 0
  }
}
service anvil {
  chroot =
}
`

// dovecot starts Dovecot without TLS, and returns where it listens.
func dovecot(t *testing.T) (at string) {
	t.Helper()
	program, err := exec.LookPath("/usr/sbin/dovecot")
	if err != nil {
		t.Skip("typed skip: no dovecot: apt-get install dovecot-imapd")
	}
	if version, err := exec.Command(program, "--version").Output(); err != nil || !strings.HasPrefix(string(version), "2.3.") {
		t.Skipf("typed skip: the configuration is for dovecot 2.3, and this is %s (%v)", version, err)
	}
	as, err := user.Current()
	if err == nil && as.Uid == "0" {
		as, err = user.Lookup("nobody")
	}
	if err != nil {
		t.Fatal(err)
	}
	group, err := user.LookupGroupId(as.Gid)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "heddle-imap-") // t.TempDir belongs to root alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	mail := filepath.Join(dir, "mail")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(mail, 0o700)); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		uid, _ := strconv.Atoi(as.Uid)
		gid, _ := strconv.Atoi(as.Gid)
		if err := os.Chown(mail, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	port := freePort(t)
	file := filepath.Join(dir, "dovecot.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, dovecotConfig, dir, port, as.Username, group.Name), 0o644); err != nil {
		t.Fatal(err)
	}
	start(t, "", program, "-F", "-c", file)
	listens(t, port)
	return "127.0.0.1:" + port
}

// curl, which knows nothing of pseudonyms, puts a message into a mailbox of Dovecot, and reads it. Others do not.
func TestIMAP(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("typed skip: no curl: apt-get install curl")
	}
	s := newStreamed(t, dovecot(t))
	const message = "From: alice@example.com\r\nSubject: a test\r\n\r\nHello by a pseudonym.\r\n"
	if err := os.WriteFile(s.file("message"), []byte(message), 0o600); err != nil {
		t.Fatal(err)
	}
	curl := func(cert, key, path string, more ...string) (string, error) {
		args := append([]string{"--silent", "--show-error", "--max-time", "60", "--resolve", s.name + ":" + s.port + ":127.0.0.1", "--cacert", s.file("root.pem"),
			"--cert", s.file(cert), "--key", s.file(key), "--user", "alice:secret", "imaps://" + s.name + ":" + s.port + path}, more...)
		cmd := exec.CommandContext(t.Context(), "curl", args...)
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, said.String())
		}
		return string(out), err
	}
	if out, err := curl("cert.pem", "key.pem", "/INBOX", "--upload-file", s.file("message")); err != nil {
		t.Fatalf("%q, %v", out, err)
	}
	if out, err := curl("cert.pem", "key.pem", "/INBOX;MAILINDEX=1"); err != nil || out != message {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := curl("other.pem", "other-key.pem", "/INBOX;MAILINDEX=1"); err == nil || out != "" {
		t.Errorf("another client: %q", out)
	}
	s.refusesBrowsers(t)
}
