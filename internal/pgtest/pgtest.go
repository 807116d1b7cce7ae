// Package pgtest runs a private PostgreSQL for tests. Do not import it outside tests.
package pgtest

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // registers the driver "pgx"

	"heddle/internal/polltest"
)

// account is the user that the server runs as if the test is root, as PostgreSQL refuses that one.
const account = "nobody"

// Server is a running PostgreSQL that listens on a socket of its directory only.
type Server struct {
	dir      string
	as       *syscall.SysProcAttr
	run      *exec.Cmd
	database atomic.Int32
}

// Start starts a server that ends with the test. Without PostgreSQL it skips the test.
func Start(t testing.TB) *Server {
	t.Helper()
	initdb, err := program("initdb")
	if err != nil {
		t.Skip("typed skip:", err)
	}
	// The path of a socket has 107 bytes at most, and t.TempDir belongs to root alone.
	dir, err := os.MkdirTemp("", "heddle-pg-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &Server{dir: dir}
	if os.Getuid() == 0 {
		u, err := user.Lookup(account)
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
		s.as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	create := s.command(initdb, "--pgdata", filepath.Join(dir, "data"), "--username", "heddle", "--auth", "trust", "--no-sync", "--no-instructions")
	if out, err := create.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	s.Restart(t)
	t.Cleanup(func() { s.Stop(t) })
	return s
}

// program finds one of PostgreSQL's, which Debian keeps out of PATH.
func program(name string) (string, error) {
	if file, err := exec.LookPath(name); err == nil {
		return filepath.EvalSymlinks(file)
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		return "", fmt.Errorf("%s is missing: apt-get install postgresql", name)
	}
	return found[len(found)-1], nil
}

func (s *Server) command(file string, args ...string) *exec.Cmd {
	cmd := exec.Command(file, args...)
	cmd.Dir, cmd.SysProcAttr, cmd.Env = s.dir, s.as, append(os.Environ(), "LC_ALL=C.UTF-8")
	return cmd
}

// Restart starts the server again after [Server.Stop].
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	file, err := program("postgres")
	if err != nil {
		t.Fatal(err)
	}
	s.run = s.command(file, "-D", filepath.Join(s.dir, "data"), "-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=16MB")
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s.run.Stdout, s.run.Stderr = log, log
	if err := s.run.Start(); err != nil {
		t.Fatal(err)
	}
	polltest.Await(t, "PostgreSQL answers", func() bool { return s.do("SELECT 1") == nil })
}

// Stop ends the server at once, with all connections.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if s.run == nil {
		return
	}
	if err := s.run.Process.Signal(syscall.SIGQUIT); err != nil {
		t.Error(err)
	}
	_ = s.run.Wait() // it ends with a status that says so
	s.run = nil
}

func (s *Server) url(database string) string {
	q := url.Values{"host": {s.dir}, "user": {"heddle"}, "sslmode": {"disable"}}
	return (&url.URL{Scheme: "postgres", Path: "/" + database, RawQuery: q.Encode()}).String()
}

func (s *Server) do(statement string) error {
	db, err := sql.Open("pgx", s.url("postgres"))
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(context.Background(), statement)
	return err
}

// Database returns the URL of a new, empty database.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprint("test", s.database.Add(1))
	if err := s.do("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	return s.url(name)
}
