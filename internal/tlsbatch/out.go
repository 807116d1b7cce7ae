package tlsbatch

import (
	"cmp"
	"net"
	"sync"
)

// wireOut is how many bytes one system call may write: 160 KiB as records.
const wireOut = 160<<10 + 8<<10

var wireOuts = sync.Pool{New: func() any { return new([wireOut]byte) }}

// Out is a connection below TLS whose records leave by one system call where they are written together. It is for a [crypto/tls.Conn] that has to stay one, such as that of
// a web server.
type Out struct {
	net.Conn

	mu      sync.Mutex
	holding bool
	out     []byte
	failed  error
}

// Together sends what write writes in as few system calls as possible. The handshake must be complete. Nothing waits beyond the end of write, which must not wait for an
// answer of the peer. While it runs, another one does no more than to call its write.
func (o *Out) Together(write func() error) (err error) {
	if !o.hold() {
		return write()
	}
	defer func() { err = cmp.Or(err, o.flush()) }()
	return write()
}

// hold buffers writes until flush. It reports false if they are buffered already.
func (o *Out) hold() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.holding {
		return false
	}
	o.holding = true
	o.out = wireOuts.Get().(*[wireOut]byte)[:0]
	return true
}

func (o *Out) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed != nil {
		return 0, o.failed
	}
	if len(o.out)+len(p) > cap(o.out) {
		if err := o.drain(); err != nil {
			return 0, err
		}
	}
	if o.holding && len(p) <= cap(o.out) {
		o.out = append(o.out, p...)
		return len(p), nil
	}
	return o.Conn.Write(p)
}

// drain sends the buffered writes. mu is held.
func (o *Out) drain() error {
	if len(o.out) == 0 {
		return o.failed
	}
	_, o.failed = o.Conn.Write(o.out) // after a partial record the connection is unusable
	o.out = o.out[:0]
	return o.failed
}

// flush sends the buffered writes and stops buffering.
func (o *Out) flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	err := o.drain()
	wireOuts.Put((*[wireOut]byte)(o.out[:wireOut]))
	o.out, o.holding = nil, false
	return err
}
