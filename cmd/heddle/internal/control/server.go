// Package control lets one heddle query or stop another: HTTP and JSON over a unix socket that only the owner can open.
// A running heddle holds NAME.lock in [Dir] and answers on NAME.sock. The lock is what counts, so a socket left by a
// crash is never mistaken for a running heddle.
//
// Do not use it over a network: the socket's mode is its only access control.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"heddle/config"
	"heddle/path"
)

// Server answers for one running heddle.
type Server struct {
	name     string
	lock     *os.File
	listener *net.UnixListener
	closing  sync.Once
}

// sockaddr_un.sun_path holds 108 bytes with the final zero (unix(7)).
const maxSocketPath = 107

// Listen claims the name and opens its socket. It fails with a [RunningError] if a heddle with that name runs.
func Listen(name string) (*Server, error) {
	if err := config.CheckSessionName(name); err != nil {
		return nil, err
	}
	dir := Dir()
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	socket := socketFile(dir, name)
	if len(socket) > maxSocketPath {
		return nil, dirError(dir, fmt.Errorf("its path is too long for a socket (%d bytes, at most %d)", len(socket), maxSocketPath))
	}
	held, err := lock(name, lockFile(dir, name))
	if err != nil {
		if _, running := errors.AsType[*RunningError](err); running {
			return nil, err
		}
		return nil, dirError(dir, err)
	}
	// We hold the lock, so an existing socket was left by a crash.
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		held.Close()
		return nil, dirError(dir, err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err == nil {
		err = os.Chmod(socket, 0o600)
	}
	if err != nil {
		if listener != nil {
			listener.Close()
		}
		held.Close()
		return nil, dirError(dir, err)
	}
	return &Server{name: name, lock: held, listener: listener}, nil
}

// Serve answers until ctx ends or the server is closed, and then returns nil. status must be safe to call at any time.
// stop is called at most once, on request; it should end ctx and return at once. The name is held until [Server.Close].
func (s *Server) Serve(ctx context.Context, status func() Status, stop func()) error {
	var once sync.Once
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(status())
	})
	mux.HandleFunc("POST /stop", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		_ = http.NewResponseController(w).Flush()
		once.Do(stop)
	})
	server := &http.Server{Handler: mux, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second,
		IdleTimeout: 30 * time.Second, MaxHeaderBytes: 1 << 13}
	done := context.AfterFunc(ctx, func() { server.Close() })
	defer done()
	err := server.Serve(s.listener)
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Close removes the socket and releases the name. Call it last, when the session is cleaned up: [Stop] waits for it.
func (s *Server) Close() error {
	var err error
	s.closing.Do(func() {
		err = s.listener.Close()
		if errors.Is(err, net.ErrClosed) {
			err = nil
		}
		err = errors.Join(err, os.Remove(s.lock.Name()), s.lock.Close())
	})
	return err
}

func socketFile(dir, name string) string { return filepath.Join(dir, name+".sock") }
func lockFile(dir, name string) string   { return filepath.Join(dir, name+".lock") }

// NotRunningError says that no heddle with this name runs.
type NotRunningError struct{ Name string }

func (e *NotRunningError) Error() string { return fmt.Sprintf("%s is not running", e.Name) }

// HintText says how to find what runs.
func (e *NotRunningError) HintText() string {
	return "`heddle status` lists what runs in " + Dir() + "; another user's heddle has another run directory (HEDDLE_RUN_DIR)"
}

func unanswered(name string, err error) error {
	return &path.Error{What: name, Why: "it runs but does not answer", Err: err,
		Hint: "look at its log; stop its process by hand if it hangs"}
}
