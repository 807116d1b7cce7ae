package stripe

import (
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"heddle/internal/reliable"
	"heddle/internal/segment"
	"heddle/internal/tlsbatch"
)

const (
	// recordSize is the most that one TLS record holds (RFC 8446, section 5.1).
	recordSize = 16 << 10
	// What the kernel may hold of a member that it has not sent: about unsentTime of what the path carries, so that it does
	// not run dry while this process waits for its turn, and a slow path cannot hide how slow it is.
	unsentTime  = 100 * time.Millisecond
	firstUnsent = 256 << 10
	leastUnsent = 32 << 10
	mostUnsent  = 1 << 20
)

// link is one connection of a member.
type link struct {
	raw    net.Conn
	tcp    syscall.RawConn // nil where none is to be found
	unsent int
	tls    *tlsbatch.Conn
	reader *segment.Reader
	small  []byte        // frames that share a record
	took   time.Duration // of the handshake
	close  sync.Once
}

// newLink wraps a connection; the caller then makes the handshake.
func newLink(raw net.Conn, secure *tlsbatch.Conn) *link {
	k := &link{raw: raw, tcp: tcpUnder(raw), tls: secure, small: make([]byte, 0, recordSize)}
	k.limitUnsent(firstUnsent)
	k.reader = segment.NewReader(k.tls.Conn)
	return k
}

// write sends control frames and then data frames in as few records and system calls as it can.
func (k *link) write(control []byte, frames []reliable.Unit) error {
	k.small = append(k.small[:0], control...)
	return k.tls.WriteBatch(func(to io.Writer) error {
		for i := range frames {
			b := frames[i].Buf
			large := len(b) >= recordSize/2
			if large || len(b)+len(k.small) > recordSize {
				if err := k.writeSmall(to); err != nil {
					return err
				}
			}
			if !large {
				k.small = append(k.small, b...)
			} else if _, err := to.Write(b); err != nil {
				return err
			}
		}
		return k.writeSmall(to)
	})
}

func (k *link) writeSmall(to io.Writer) error {
	if len(k.small) == 0 {
		return nil
	}
	_, err := to.Write(k.small)
	k.small = k.small[:0]
	return err
}

// shut ends the connection at once.
func (k *link) shut() { k.close.Do(func() { k.raw.Close() }) }

// tcpUnder finds the TCP connection under raw, which may be wrapped.
func tcpUnder(raw net.Conn) syscall.RawConn {
	for range 8 {
		if tcp, ok := raw.(*net.TCPConn); ok {
			c, err := tcp.SyscallConn()
			if err != nil {
				return nil
			}
			return c
		}
		inner, ok := raw.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		raw = inner.NetConn()
	}
	return nil
}

// fit lets the kernel hold what suits a path that carries so many bytes a second.
func (k *link) fit(rate float64) {
	n := int(min(max(rate*unsentTime.Seconds(), leastUnsent), mostUnsent))
	if n > k.unsent*3/2 || n < k.unsent*2/3 {
		k.limitUnsent(n)
	}
}

// limitUnsent sets TCP_NOTSENT_LOWAT. Without it, or on an old kernel, a member only reacts later to a path that slows down.
func (k *link) limitUnsent(n int) {
	k.unsent = n
	if k.tcp != nil {
		_ = k.tcp.Control(func(fd uintptr) { setUnsent(fd, n) })
	}
}

// handshake makes the TLS handshake within a time.
func (k *link) handshake(limit time.Duration) error {
	if err := k.raw.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	begin := time.Now()
	err := k.tls.Handshake()
	k.took = time.Since(begin)
	return err
}
