// Package tlsbatch is TLS with many records per system call; crypto/tls makes a call per record, and does not distinguish a
// clean end from a truncated connection. The kernel cannot splice what this program encrypts, so fewer calls are the only
// saving. Use [Conn] for bulk streams, and [Out] for the large answers of a web server; for a request and a small answer crypto/tls is as good.
package tlsbatch

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

const (
	recordHeader = 5                // bytes
	wireIn       = 128 << 10        // bytes that one system call may read
	recordPlain  = 16 << 10         // payload bytes of a record
	batchLeast   = recordPlain + 1  // bytes from which on a write makes several records
	batchMost    = 10 * recordPlain // bytes whose records fit wireOut
)

// Conn is TLS with many records per system call. It reports truncation.
type Conn struct {
	*tls.Conn
	wire    *wire
	batches sync.Mutex
}

func Client(c net.Conn, config *tls.Config) *Conn {
	w := &wire{Out: Out{Conn: c}}
	return &Conn{Conn: tls.Client(w, config), wire: w}
}

func Server(c net.Conn, config *tls.Config) *Conn {
	w := &wire{Out: Out{Conn: c}}
	return &Conn{Conn: tls.Server(w, config), wire: w}
}

// NetConn returns the connection below TLS.
func (c *Conn) NetConn() net.Conn { return c.wire.Conn }

// Read returns the available data of as many records as fit. Without a close_notify the end is [io.ErrUnexpectedEOF].
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for err == nil && n > 0 && len(p)-n >= recordPlain && c.wire.ready() {
		var more int
		more, err = c.Conn.Read(p[n:])
		n += more
	}
	if errors.Is(err, io.EOF) && c.wire.cut.Load() {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Write sends the records of a large p together.
func (c *Conn) Write(p []byte) (int, error) {
	if len(p) < batchLeast {
		return c.Conn.Write(p)
	}
	if err := c.Handshake(); err != nil { // while writes are held, it would wait for itself
		return 0, err
	}
	c.batches.Lock()
	defer c.batches.Unlock()
	sent := 0
	for sent < len(p) {
		n := min(len(p)-sent, batchMost)
		if err := c.wire.Together(func() error { _, err := c.Conn.Write(p[sent : sent+n]); return err }); err != nil {
			return sent, err
		}
		sent += n
	}
	return sent, nil
}

// WriteBatch sends what write writes, in as few system calls as possible. The handshake must be complete.
func (c *Conn) WriteBatch(write func(io.Writer) error) error {
	c.batches.Lock()
	defer c.batches.Unlock()
	return c.wire.Together(func() error { return write(c.Conn) })
}

type wire struct {
	Out
	cut atomic.Bool // the connection ended

	// For the reader. TLS gets one record's header and then its body, so that crypto/tls buffers nothing of the next record.
	in     *[wireIn]byte // nil if empty
	from   int
	to     int
	header [recordHeader]byte
	had    int // bytes of the header passed on
	left   int // bytes of the body not yet passed on
}

var wireIns = sync.Pool{New: func() any { return new([wireIn]byte) }}

// Read returns bytes of one record.
func (w *wire) Read(p []byte) (int, error) {
	if w.from == w.to {
		if err := w.fill(); err != nil {
			return 0, err
		}
	}
	have := w.in[w.from:w.to]
	var n int
	if w.left == 0 {
		n = copy(p, have[:min(len(have), recordHeader-w.had)])
		copy(w.header[w.had:], p[:n])
		if w.had += n; w.had == recordHeader {
			w.had, w.left = 0, int(binary.BigEndian.Uint16(w.header[3:]))
		}
	} else {
		n = copy(p, have[:min(len(have), w.left)])
		w.left -= n
	}
	if w.from += n; w.from == w.to {
		wireIns.Put(w.in)
		w.in = nil
	}
	return n, nil
}

func (w *wire) fill() error {
	w.in = wireIns.Get().(*[wireIn]byte)
	n, err := w.Conn.Read(w.in[:])
	w.from, w.to = 0, n
	if n > 0 {
		return nil // an error occurs again at the next read
	}
	wireIns.Put(w.in)
	w.in = nil
	if errors.Is(err, io.EOF) {
		w.cut.Store(true)
	}
	return err
}

// ready reports whether a complete record is buffered.
func (w *wire) ready() bool {
	have := w.to - w.from
	return w.left == 0 && w.had == 0 && have >= recordHeader &&
		have >= recordHeader+int(binary.BigEndian.Uint16(w.in[w.from+3:]))
}
