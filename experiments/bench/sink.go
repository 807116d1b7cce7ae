package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/netutil"
	"heddle/lab"
)

// sink is a TCP server that reads as many bytes as the first eight announce, answers with one, and records times.
type sink struct {
	mu sync.Mutex
	// stall is the longest time without a byte, arrived when the last transfer was complete, ended when its client had
	// closed.
	stall   time.Duration
	arrived time.Time
	ended   chan time.Time
}

const sinkBuffer = 256 << 10

// newSink serves on a host until ctx ends.
func newSink(ctx context.Context, host *lab.Host, at netip.AddrPort) (*sink, error) {
	s := &sink{ended: make(chan time.Time, 16)}
	return s, servePlain(ctx, host, at, func(conn net.Conn) { go s.take(conn) })
}

// servePlain accepts plain TCP connections on a host until ctx ends.
func servePlain(ctx context.Context, host *lab.Host, at netip.AddrPort, take func(net.Conn)) error {
	var listener net.Listener
	err := host.Do(func() (err error) {
		config := net.ListenConfig{}
		config.SetMultipathTCP(false) // the baseline must not use MPTCP
		listener, err = config.Listen(ctx, "tcp", at.String())
		return err
	})
	if err != nil {
		return err
	}
	go netutil.Serve(ctx, listener, take)
	return nil
}

func (s *sink) take(conn net.Conn) {
	defer conn.Close()
	var head [8]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return // an unused session that was dialled ahead
	}
	buffer, left := make([]byte, sinkBuffer), int64(binary.BigEndian.Uint64(head[:]))
	var stall time.Duration
	for last := time.Now(); left > 0; {
		n, err := conn.Read(buffer)
		now := time.Now()
		stall = max(stall, now.Sub(last))
		last, left = now, left-int64(n)
		if err != nil && left > 0 {
			return
		}
	}
	s.mu.Lock()
	s.stall, s.arrived = stall, time.Now()
	s.mu.Unlock()
	if _, err := conn.Write([]byte{1}); err != nil {
		return
	}
	if _, err := io.Copy(io.Discard, conn); err == nil {
		select {
		case s.ended <- time.Now():
		default:
		}
	}
}

func (s *sink) longestStall() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stall
}

// delivery has the times of a transfer: from before the dial until the server had all data and until the answer, and
// from the client's close until the server saw it.
type delivery struct{ arrived, answered, closed time.Duration }

// deliver sends size bytes to the sink behind to, from a device of the client if named, and reads the answer. It calls
// during, if not nil, once a third has been sent.
func (s *sink) deliver(ctx context.Context, from *lab.Host, device string, to netip.AddrPort, size int64, during func() error) (d delivery, err error) {
	ctx, cancel := context.WithTimeout(ctx, deliverPatience+time.Duration(size/leastRate)*time.Second)
	defer cancel()
	begin := time.Now()
	conn, err := dialFrom(ctx, from, device, to)
	if err != nil {
		return d, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	first := size / 3
	if size <= sinkBuffer {
		first = size // write a small message at once
	}
	if err := announce(conn, size, first); err != nil {
		return d, err
	}
	if during != nil {
		if err := during(); err != nil {
			return d, err
		}
	}
	if err := pour(conn, size-first); err != nil {
		return d, err
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		return d, fmt.Errorf("no answer to %d bytes: %w", size, err)
	}
	d.answered = time.Since(begin)
	s.mu.Lock()
	d.arrived = s.arrived.Sub(begin)
	s.mu.Unlock()
	for len(s.ended) > 0 {
		<-s.ended
	}
	closing := time.Now()
	if err := conn.Close(); err != nil {
		return d, err
	}
	select {
	case at := <-s.ended:
		d.closed = at.Sub(closing)
		return d, nil
	case <-ctx.Done():
		return d, errors.New("the server does not learn that the client is done")
	}
}

// A delivery may take this long plus its time at leastRate bytes a second.
const (
	deliverPatience = 60 * time.Second
	leastRate       = 4 * mega
)

// announce writes the header and the first bytes in one call, like a program that has all data.
func announce(conn net.Conn, size, first int64) error {
	head := binary.BigEndian.AppendUint64(nil, uint64(size))
	head = append(head, make([]byte, min(first, sinkBuffer))...)
	if _, err := conn.Write(head); err != nil {
		return err
	}
	return pour(conn, max(first-sinkBuffer, 0))
}

func pour(conn net.Conn, n int64) error {
	buffer := make([]byte, sinkBuffer)
	for n > 0 {
		wrote, err := conn.Write(buffer[:min(n, sinkBuffer)])
		if err != nil {
			return err
		}
		n -= int64(wrote)
	}
	return nil
}

// dialFrom connects from a host with plain TCP, through a device if named.
func dialFrom(ctx context.Context, host *lab.Host, device string, to netip.AddrPort) (conn net.Conn, err error) {
	dialer := net.Dialer{}
	dialer.SetMultipathTCP(false)
	if device != "" {
		dialer.Control = func(_, _ string, raw syscall.RawConn) error {
			var err error
			if controlErr := raw.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), device) }); controlErr != nil {
				return controlErr
			}
			return err
		}
	}
	err = host.Do(func() error {
		conn, err = dialer.DialContext(ctx, "tcp", to.String())
		return err
	})
	return conn, err
}
