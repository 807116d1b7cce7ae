package tenant

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// bodyFor bounds how long a client may send nothing of an upload. Each one holds a connection to the site's server.
const bodyFor = idleFor

var errStopped = errors.New("the client stopped in the middle of its upload")

// uploadKey is where the context of a request has its [upload], which proxies wrap.
type uploadKey struct{}

// upload is the body of a request, whose client may not stop for long.
type upload struct {
	io.ReadCloser
	way *http.ResponseController

	mu      sync.Mutex
	ended   bool // the request was answered, and the connection may be the next one's
	stopped bool // the client sent nothing for too long
}

// Read implements [io.Reader]. Between reads there is no limit: the site's server may be slow.
func (u *upload) Read(b []byte) (int, error) {
	if !u.until(time.Now().Add(bodyFor)) {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := u.ReadCloser.Read(b)
	u.until(time.Time{})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		u.mu.Lock()
		u.stopped = true
		u.mu.Unlock()
		err = errStopped
	}
	return n, err
}

func (u *upload) hasStopped() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.stopped
}

func (u *upload) until(at time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.ended {
		_ = u.way.SetReadDeadline(at)
	}
	return !u.ended
}

func (u *upload) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = true
}
