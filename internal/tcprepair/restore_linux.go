package tcprepair

import (
	"errors"
	"fmt"
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"heddle/internal/netutil"
)

// leastMSS is TCP_MIN_MSS of net/tcp.h.
const leastMSS = 88

// Restore makes a socket for a connection, in the network namespace of the calling thread. It refers to the queues of s until [Held.Resume].
func Restore(s State, o Options) (*Held, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	family := unix.AF_INET
	if s.Local.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err = s.connect(fd, o); err == nil {
		err = s.fill(fd)
	}
	if err == nil {
		err = s.keepAlive(fd)
	}
	if err != nil {
		_ = unix.Close(fd) // silent while the socket is in repair
		return nil, err
	}
	return &Held{fd: fd, new: &s}, nil
}

// adopt is [Held.Resume] of a new side.
func (h *Held) adopt() (*net.TCPConn, error) {
	f := os.NewFile(uintptr(h.fd), "restored")
	defer f.Close()
	c, err := net.FileConn(f) // a duplicate, with the keep-alive of Go
	if err != nil {
		return nil, err
	}
	conn, ok := c.(*net.TCPConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("%T is no TCP connection", c)
	}
	err = h.new.keepAlive(h.fd)
	if err == nil {
		err = resume(h.fd, h.new)
	}
	if err != nil {
		netutil.Reset(conn)
		return nil, err
	}
	return conn, nil
}

// Descriptor returns the descriptor of a new side.
func (h *Held) Descriptor() int { return h.fd }

// ResumeDescriptor is [Held.Resume] of a new side that goes to another process. The caller closes the descriptor by [CloseDescriptor] or
// [ResetDescriptor].
func (h *Held) ResumeDescriptor() (fd int, err error) {
	if err := resume(h.fd, h.new); err != nil {
		ResetDescriptor(h.fd)
		return 0, err
	}
	return h.fd, nil
}

// CloseDescriptor closes this process's descriptor of a connection.
func CloseDescriptor(fd int) error { return unix.Close(fd) }

// ResetDescriptor closes a connection with a reset.
func ResetDescriptor(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	_ = unix.Close(fd)
}

// connect makes the socket one of the connection. The sequence numbers come before that, all else behind.
func (s State) connect(fd int, o Options) error {
	if err := set(fd, unix.TCP_REPAIR, unix.TCP_REPAIR_ON); err != nil {
		return refused(err)
	}
	if err := refuse(fd); err != nil {
		return err
	}
	if o.Foreign {
		level, option := unix.SOL_IP, unix.IP_TRANSPARENT
		if s.Local.Addr().Is6() {
			level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
		}
		if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
			return fmt.Errorf("IP_TRANSPARENT: %w", err)
		}
	}
	// From the connect on the kernel cuts segments by the peer's MSS that it knows then, 536 bytes without this, and looks at it no more.
	if err := set(fd, unix.TCP_MAXSEG, max(int(s.MSS), leastMSS)); err != nil {
		return fmt.Errorf("TCP_MAXSEG: %w", err)
	}
	if s.Congestion != "" { // an observer sees by it how packets follow each other
		if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, s.Congestion); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("TCP_CONGESTION: %w", err)
		}
	}
	if s.Local.Addr().Is4() { // whatever the machine does elsewhere (ip_no_pmtu_disc): an observer sees the flag
		if err := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_WANT); err != nil {
			return fmt.Errorf("IP_MTU_DISCOVER: %w", err)
		}
	}
	if err := resize(fd, unix.SO_RCVBUFFORCE, int(s.ReceiveBuffer)); err != nil { // the largest window follows from it
		return fmt.Errorf("SO_RCVBUFFORCE: %w", err)
	}
	for queue, first := range map[int]uint32{queueReceive: s.Received, queueSend: s.Sent} {
		if err := set(fd, unix.TCP_REPAIR_QUEUE, queue); err != nil {
			return err
		}
		if err := set(fd, unix.TCP_QUEUE_SEQ, int(int32(first))); err != nil {
			return fmt.Errorf("TCP_QUEUE_SEQ: %w", err)
		}
	}
	if err := unix.Bind(fd, sockaddr(s.Local)); err != nil {
		return fmt.Errorf("bind to %v: %w", s.Local, err)
	}
	if err := unix.Connect(fd, sockaddr(s.Remote)); err != nil {
		return fmt.Errorf("connect %v to %v: %w", s.Local, s.Remote, err)
	}
	return nil
}

// fill sets what the sides agreed on, and the queue of what was received.
func (s State) fill(fd int) error {
	options := []unix.TCPRepairOpt{{Code: unix.TCPOPT_WINDOW, Val: uint32(s.SendScale) | uint32(s.ReceiveScale)<<16}} // also none: a new socket has the machine's
	if s.SACK {
		options = append(options, unix.TCPRepairOpt{Code: unix.TCPOPT_SACK_PERMITTED})
	}
	if s.Timestamps {
		options = append(options, unix.TCPRepairOpt{Code: unix.TCPOPT_TIMESTAMP})
	}
	options = append(options, unix.TCPRepairOpt{Code: unix.TCPOPT_MAXSEG, Val: uint32(s.MSS)})
	if err := unix.SetsockoptTCPRepairOpt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR_OPTIONS, options); err != nil {
		return fmt.Errorf("TCP_REPAIR_OPTIONS: %w", err)
	}
	if s.Timestamps {
		if err := set(fd, unix.TCP_TIMESTAMP, int(int32(s.Timestamp))); err != nil {
			return fmt.Errorf("TCP_TIMESTAMP: %w", err)
		}
	}
	if len(s.Receive) == 0 {
		return nil
	}
	if err := resize(fd, unix.SO_RCVBUFFORCE, room(s.ReceiveBuffer, s.Receive)); err != nil {
		return err
	}
	if err := fillQueue(fd, queueReceive, s.Receive); err != nil {
		return err
	}
	return resize(fd, unix.SO_RCVBUFFORCE, int(s.ReceiveBuffer))
}

// fillLast sets the queue of what was sent, as the socket repeats that from then on, and the window last, as it depends on the queues.
func (s State) fillLast(fd int) error {
	if len(s.Send) > 0 {
		if err := resize(fd, unix.SO_SNDBUFFORCE, room(s.SendBuffer, s.Send)); err != nil {
			return err
		}
		if err := fillQueue(fd, queueSend, s.Send[:len(s.Send)-s.Unsent]); err != nil {
			return err
		}
	}
	window := unsafe.String(&bytesOf(&s.Window)[0], unsafe.Sizeof(s.Window))
	if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR_WINDOW, window); err != nil {
		return fmt.Errorf("TCP_REPAIR_WINDOW: %w", err)
	}
	return nil
}

// room is what a buffer needs for a queue, in bytes, with the kernel's own structures.
func room(size uint32, queue []byte) int { return int(size) + 4*len(queue) + 64<<10 }

func fillQueue(fd, queue int, b []byte) error {
	if err := set(fd, unix.TCP_REPAIR_QUEUE, queue); err != nil {
		return err
	}
	if err := write(fd, b); err != nil {
		return fmt.Errorf("queue %d: %w", queue, err)
	}
	return nil
}

func (s State) keepAlive(fd int) error {
	flag := func(is bool) int {
		if is {
			return 1
		}
		return 0
	}
	k := s.KeepAlive
	for _, o := range []struct{ level, option, value int }{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, flag(s.NoDelay)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(k.Idle)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(k.Interval)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, int(k.Probes)},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, flag(k.On)},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.option, o.value); err != nil {
			return err
		}
	}
	return nil
}
