package tenant

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// evenBlock is in how many bytes answers leave: as much as one record of TLS may carry. By HTTP/2 that includes the header of a frame.
const (
	evenBlock   = 16 << 10
	frameHeader = 9
)

// lateFor is how long something that came may wait for more. It is longer than the pauses that servers make between headers and body, also on a busy machine.
const lateFor = 50 * time.Millisecond

// even lets an answer leave in blocks that depend on its headers and content alone. By how a site's server divides its answer, and by what of it comes together,
// an observer would tell the server. Only an answer whose length the server said is made even: of others nobody knows whether more is to come soon. Those leave at
// once, as [httputil.ReverseProxy] flushes what has no length.
type even struct {
	http.ResponseWriter

	mu    sync.Mutex
	block int              // the size of blocks
	alone bool             // each block has to be written by itself
	known bool             // the server said how long its answer is
	begun bool             // it has a status
	sent  bool             // the headers left
	left  int64            // until the length that the client is told, or -1 if it is told none
	at    int              // bytes of the last block that were written here
	held  *[evenBlock]byte // nil if none are
	size  int              // bytes that are held
	waits bool             // something is to leave in time
	timer *time.Timer
	err   error
}

var evenBlocks = sync.Pool{New: func() any { return new([evenBlock]byte) }}

// evenKey is the key of the context's value that has the [even] of a request.
type evenKey struct{}

func newEven(w http.ResponseWriter, r *http.Request) *even {
	e := &even{ResponseWriter: w, block: evenBlock, left: -1}
	if r.ProtoMajor > 1 {
		e.block, e.alone = evenBlock-frameHeader, true // net/http makes frames of what is written together that do not fit a record
	}
	return e
}

// wait lets what is held leave in time, or else the headers. The lock is held, as for all that follow.
func (e *even) wait() {
	if e.waits {
		return
	}
	e.waits = true
	if e.timer == nil {
		e.timer = time.AfterFunc(lateFor, e.now)
	} else {
		e.timer.Reset(lateFor)
	}
}

// stop says that nothing waits any more.
func (e *even) stop() {
	if e.waits {
		e.waits = false
		e.timer.Stop()
	}
}

// now lets what waits leave.
func (e *even) now() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waits {
		e.send()
	}
}

// Header implements [http.ResponseWriter]. net/http copies headers here that are not yet sent.
func (e *even) Header() http.Header {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ResponseWriter.Header()
}

// WriteHeader implements [http.ResponseWriter].
func (e *even) WriteHeader(status int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if status >= http.StatusOK {
		e.begin()
	}
	e.ResponseWriter.WriteHeader(status)
}

// begin reads what the client is told. Headers wait for the first block.
func (e *even) begin() {
	if e.begun {
		return
	}
	e.begun = true
	if n, err := strconv.ParseInt(e.ResponseWriter.Header().Get("Content-Length"), 10, 64); err == nil {
		e.known, e.left = true, n
	}
	if e.known && e.left != 0 {
		e.wait()
	}
}

// Write implements [http.ResponseWriter].
func (e *even) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begin()
	if !e.known {
		return e.ResponseWriter.Write(p)
	}
	n, all := len(p), e.left >= 0 && e.left <= int64(len(p))
	if e.left >= 0 {
		e.left -= int64(n)
	}
	for len(p) > 0 && e.err == nil {
		room := e.block - e.at
		n := min(len(p), room)
		switch {
		case e.size > 0 || n < room && !all:
			p = e.hold(p, n)
			continue
		case e.alone || !e.sent || e.left < 0: // it goes with the headers, or as a chunk
		case all:
			n = len(p)
		default: // many blocks together take fewer calls of the system
			n += (len(p) - n) / e.block * e.block
		}
		p = e.pass(p, n)
	}
	if all && e.size > 0 && e.err == nil {
		e.send()
	}
	if e.err != nil {
		return 0, e.err
	}
	return n, nil
}

// pass writes some of p, which holds whole blocks or the end, and returns the rest.
func (e *even) pass(p []byte, n int) []byte {
	e.stop()
	e.at = (e.at + n) % e.block
	_, e.err = e.ResponseWriter.Write(p[:n])
	e.flush()
	return p[n:]
}

// hold keeps some of p until its block is whole, and returns the rest.
func (e *even) hold(p []byte, n int) []byte {
	if e.held == nil {
		e.held = evenBlocks.Get().(*[evenBlock]byte)
	}
	copy(e.held[e.size:], p[:n])
	e.size += n
	if e.at += n; e.at == e.block {
		e.at = 0
		e.send()
	} else {
		e.wait()
	}
	return p[n:]
}

// send sends what is held, or only the headers.
func (e *even) send() {
	e.stop()
	e.write()
	e.flush()
}

func (e *even) flush() {
	if e.sent = true; e.err == nil {
		e.err = http.NewResponseController(e.ResponseWriter).Flush()
	}
}

// write writes what is held.
func (e *even) write() {
	if e.held == nil {
		return
	}
	_, e.err = e.ResponseWriter.Write(e.held[:e.size])
	evenBlocks.Put(e.held)
	e.held, e.size = nil, 0
}

// end writes the rest of an answer. net/http sends it when the handler returns.
func (e *even) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stop()
	e.write()
}

// FlushError is for [http.ResponseController].
func (e *even) FlushError() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known {
		return e.err
	}
	return http.NewResponseController(e.ResponseWriter).Flush()
}

// Unwrap is for [http.ResponseController].
func (e *even) Unwrap() http.ResponseWriter { return e.ResponseWriter }
