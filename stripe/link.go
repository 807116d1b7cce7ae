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
	"heddle/internal/unsent"
)

const (
	recordSize = 16 << 10 // the largest TLS record (RFC 8446, section 5.1)
	// Limits of unsent data in the kernel: about unsentTime of what the path carries, so that the socket does not run dry
	// while this process waits for the CPU, and the buffer does not hide how slow a path is.
	unsentTime  = 100 * time.Millisecond
	firstUnsent = 256 << 10
	leastUnsent = 32 << 10
	mostUnsent  = 1 << 20
)

type link struct {
	raw    net.Conn
	tcp    syscall.RawConn // nil if raw wraps none
	unsent int
	tls    *tlsbatch.Conn
	reader *segment.Reader
	small  []byte        // buffer for frames that share a record
	took   time.Duration // duration of the handshake
	close  sync.Once
}

// newLink wraps a connection. The caller then does the handshake.
func newLink(raw net.Conn, secure *tlsbatch.Conn) *link {
	k := &link{raw: raw, tcp: unsent.Socket(raw), tls: secure, small: make([]byte, 0, recordSize)}
	k.limitUnsent(firstUnsent)
	k.reader = segment.NewReader(k.tls.Conn)
	return k
}

// write sends control frames and then data frames in as few records and system calls as possible.
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

func (k *link) shut() { k.close.Do(func() { k.raw.Close() }) }

// fit adapts the limit of unsent data to a path of rate bytes a second.
func (k *link) fit(rate float64) {
	n := int(min(max(rate*unsentTime.Seconds(), leastUnsent), mostUnsent))
	if n > k.unsent*3/2 || n < k.unsent*2/3 {
		k.limitUnsent(n)
	}
}

// limitUnsent sets TCP_NOTSENT_LOWAT. Without it, as on old kernels, a member only reacts later to a path that slows down.
func (k *link) limitUnsent(n int) {
	k.unsent = n
	if k.tcp != nil {
		_ = k.tcp.Control(func(fd uintptr) { _ = unsent.Set(fd, n) })
	}
}

func (k *link) handshake(limit time.Duration) error {
	if err := k.raw.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	begin := time.Now()
	err := k.tls.Handshake()
	k.took = time.Since(begin)
	return err
}
