package tcprepair

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"heddle/internal/errhint"
	"heddle/internal/netutil"
)

// The queues of TCP_REPAIR_QUEUE.
const (
	queueReceive = 1
	queueSend    = 2
)

// The bits of tcpi_options (linux/tcp.h).
const (
	infoTimestamps = 1 << iota
	infoSACK
	infoScaling
)

// membarrierGlobal is MEMBARRIER_CMD_GLOBAL of linux/membarrier.h. It waits until all RCU sections that run have ended.
const membarrierGlobal = 1

// looks is how often State reads a connection that packets change meanwhile.
const looks = 4

// Allowed returns why this process may not move connections, or nil.
func Allowed() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return refused(set(fd, unix.TCP_REPAIR, unix.TCP_REPAIR_ON))
}

// Hold begins a move: the socket ignores all packets from then on, and sends none. Nobody may use it meanwhile. If Hold fails, the connection
// goes on.
func Hold(c *net.TCPConn) (*Held, error) {
	err := control(c, func(fd int) error {
		if _, err := info(fd); err != nil {
			return err
		}
		if err := set(fd, unix.TCP_REPAIR, unix.TCP_REPAIR_ON); err != nil {
			return refused(err)
		}
		// A filter of the socket leaves no moment in which the kernel acknowledges data that State has not seen. A rule of the machine would, as
		// packets that have passed it are still on their way to the socket.
		if err := refuse(fd); err != nil {
			return errors.Join(err, set(fd, unix.TCP_REPAIR, unix.TCP_REPAIR_OFF_NO_WP))
		}
		// An acknowledgement that is due leaves now, and not when the new side has sent later timestamps.
		return set(fd, unix.TCP_QUICKACK, 1)
	})
	if err != nil {
		return nil, err
	}
	return &Held{conn: c}, nil
}

func acceptAll(fd int) error {
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
	if errors.Is(err, unix.ENOENT) { // there is none
		return nil
	}
	return err
}

// refused gives the kernel's answer a hint.
func refused(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.EPERM) {
		return &errhint.Error{What: "moving a TCP connection", Why: "this process may not (TCP_REPAIR)", Hint: errhint.Rights("CAP_NET_ADMIN"), Err: err}
	}
	return fmt.Errorf("TCP_REPAIR: %w", err)
}

// State returns the state of a connection that [Hold] holds.
func (h *Held) State() (State, error) { return StateOf(h.conn) }

// StateOf returns the state of a connection that is held, by this process or by another one that has the same socket. It needs no rights.
func StateOf(c *net.TCPConn) (s State, err error) {
	err = control(c, func(fd int) error {
		// Packets that passed the filter before it was set may still be on their way on another processor.
		for range looks {
			var before State
			err := before.readNumbers(fd)
			if err == nil {
				s, err = read(fd)
			}
			if err != nil {
				return err
			}
			if same(before, s) {
				return nil
			}
		}
		return ErrBusy
	})
	if err != nil {
		return State{}, err
	}
	s.Local, s.Remote = netutil.AddrPort(c.LocalAddr()), netutil.AddrPort(c.RemoteAddr())
	if !unicast(s.Local) || !unicast(s.Remote) {
		return State{}, fmt.Errorf("a connection of %v cannot move", s.Local)
	}
	return s, s.check()
}

// same reports whether two looks saw the same, but for the clock.
func same(a, b State) bool {
	return a.Received == b.Received && a.Sent == b.Sent && a.Unsent == b.Unsent && a.Window == b.Window && len(a.Receive) == len(b.Receive) && len(a.Send) == len(b.Send)
}

// info returns the beginning of struct tcp_info of an established connection: state, ..., options at 5, and both scales at 6.
func info(fd int) (b [8]byte, err error) {
	n, err := unix.GetsockoptUint64(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	copy(b[:], bytesOf(&n))
	if err == nil && b[0] != unix.BPF_TCP_ESTABLISHED {
		err = ErrNotEstablished
	}
	return b, err
}

// read reads all but the addresses.
func read(fd int) (s State, err error) {
	b, err := info(fd)
	if err != nil {
		return s, err
	}
	s.SACK, s.Timestamps, s.Scaling = b[5]&infoSACK != 0, b[5]&infoTimestamps != 0, b[5]&infoScaling != 0
	if s.Scaling { // bit fields, which follow the machine's byte order
		s.SendScale, s.ReceiveScale = b[6]&0xf, b[6]>>4
		if bigEndian() {
			s.SendScale, s.ReceiveScale = s.ReceiveScale, s.SendScale
		}
	}
	if err := s.readOptions(fd); err != nil {
		return s, err
	}
	return s, s.readNumbers(fd)
}

// readNumbers reads what packets change.
func (s *State) readNumbers(fd int) error {
	if err := s.readQueues(fd); err != nil {
		return err
	}
	return s.readWindow(fd)
}

func bytesOf[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

func bigEndian() bool {
	one := uint16(1)
	return bytesOf(&one)[0] == 0
}

func (s *State) readQueues(fd int) (err error) {
	for _, q := range []struct {
		number int
		size   uint
		first  *uint32
		bytes  *[]byte
	}{{queueReceive, unix.SIOCINQ, &s.Received, &s.Receive}, {queueSend, unix.SIOCOUTQ, &s.Sent, &s.Send}} {
		size, err := unix.IoctlGetInt(fd, q.size)
		if err != nil {
			return err
		}
		if size > MaxQueue {
			return ErrTooLarge
		}
		if err := set(fd, unix.TCP_REPAIR_QUEUE, q.number); err != nil {
			return err
		}
		end, err := get(fd, unix.TCP_QUEUE_SEQ)
		if err != nil {
			return err
		}
		if *q.bytes, err = peek(fd, size); err != nil {
			return fmt.Errorf("queue %d: %w", q.number, err)
		}
		*q.first = uint32(end) - uint32(size) // the kernel has the number after the last byte
	}
	s.Unsent, err = unix.IoctlGetInt(fd, unix.SIOCOUTQNSD)
	return err
}

// peek reads the chosen queue and leaves it as it is.
func peek(fd, size int) ([]byte, error) {
	if size == 0 {
		return nil, nil
	}
	b := make([]byte, size)
	n, _, err := unix.Recvfrom(fd, b, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if err != nil {
		return nil, err
	}
	if n != size {
		return nil, ErrBusy
	}
	return b, nil
}

func (s *State) readOptions(fd int) error {
	var failed error
	number := func(level, option int) int {
		n, err := unix.GetsockoptInt(fd, level, option)
		failed = errors.Join(failed, err)
		return n
	}
	s.MSS = uint16(number(unix.IPPROTO_TCP, unix.TCP_MAXSEG)) // in repair that of the peer
	if s.Timestamps {
		s.Timestamp = uint32(number(unix.IPPROTO_TCP, unix.TCP_TIMESTAMP))
	}
	s.SendBuffer = uint32(number(unix.SOL_SOCKET, unix.SO_SNDBUF))
	s.ReceiveBuffer = uint32(number(unix.SOL_SOCKET, unix.SO_RCVBUF))
	s.NoDelay = number(unix.IPPROTO_TCP, unix.TCP_NODELAY) != 0
	congestion, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	s.Congestion, failed = congestion, errors.Join(failed, err)
	s.KeepAlive = KeepAlive{number(unix.SOL_SOCKET, unix.SO_KEEPALIVE) != 0, uint16(number(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE)),
		uint16(number(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL)), uint16(number(unix.IPPROTO_TCP, unix.TCP_KEEPCNT))}
	return failed
}

func (s *State) readWindow(fd int) error {
	size := uint32(unsafe.Sizeof(s.Window))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR_WINDOW,
		uintptr(unsafe.Pointer(&s.Window)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return fmt.Errorf("TCP_REPAIR_WINDOW: %w", errno)
	}
	return nil
}

// Resume ends a move here: the connection goes on at this side. If it fails, the connection is lost.
func (h *Held) Resume() (*net.TCPConn, error) {
	if h.new != nil {
		return h.adopt()
	}
	if err := control(h.conn, func(fd int) error { return resume(fd, nil) }); err != nil {
		netutil.Reset(h.conn)
		return nil, err
	}
	return h.conn, nil
}

// resume ends the repair of a socket. A new one gets the rest of its state.
func resume(fd int, s *State) error {
	if s != nil {
		if err := s.fillLast(fd); err != nil {
			return err
		}
	}
	// A probe of the window would show the peer that something happened.
	if err := set(fd, unix.TCP_REPAIR, unix.TCP_REPAIR_OFF_NO_WP); err != nil {
		return err
	}
	// Repair ended with SO_REUSEADDR off, so that no program could listen at the port while the connection lasts.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return err
	}
	if err := acceptAll(fd); err != nil || s == nil {
		return err
	}
	if err := write(fd, s.Send[len(s.Send)-s.Unsent:]); err != nil {
		return fmt.Errorf("what was not sent: %w", err)
	}
	return resize(fd, unix.SO_SNDBUFFORCE, int(s.SendBuffer))
}

// handled waits until the kernel has handled all packets that came before, each of which it handles within one RCU section.
var handled = rounds{pause: 100 * time.Millisecond, do: func() { _, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0) }}

// Close closes the socket without a packet to the peer. Before, it waits some tenths of a second until the socket has ignored the packets that this
// machine had let pass when it began to lead them elsewhere: without a socket the kernel would answer them with a reset.
func (h *Held) Close() error {
	handled.wait()
	if h.new != nil {
		return unix.Close(h.fd) // it is still in repair
	}
	err := control(h.conn, func(fd int) error { return set(fd, unix.TCP_REPAIR, unix.TCP_REPAIR_ON) })
	return errors.Join(err, h.conn.Close())
}

// Reset ends the old side with a reset to the peer, also while another process has the same socket.
func (h *Held) Reset() error {
	err := control(h.conn, func(fd int) error {
		if err := set(fd, unix.TCP_REPAIR, unix.TCP_REPAIR_OFF_NO_WP); err != nil {
			return err
		}
		nobody := unix.RawSockaddr{Family: unix.AF_UNSPEC} // dissolves the connection
		if _, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&nobody)), unsafe.Sizeof(nobody)); errno != 0 {
			return fmt.Errorf("connect to nobody: %w", errno)
		}
		return nil
	})
	return errors.Join(err, h.conn.Close())
}

// control runs f with the descriptor of a connection.
func control(c *net.TCPConn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return failed
}

func set(fd, option, value int) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, option, value)
}

func get(fd, option int) (int, error) { return unix.GetsockoptInt(fd, unix.IPPROTO_TCP, option) }

// resize sets the size of a buffer, as SO_SNDBUF and SO_RCVBUF return it: the kernel doubles what it is told.
func resize(fd, option, size int) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, size/2); err != nil {
		return err
	}
	// The kernel may change the size again as the connection needs it. It cannot be told so before Linux 5.14.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUF_LOCK, 0); err != nil && !errors.Is(err, unix.ENOPROTOOPT) {
		return err
	}
	return nil
}

// write writes all at once, or fails.
func write(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		default:
			b = b[n:]
		}
	}
	return nil
}

// sockaddr returns an address as the kernel takes it.
func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}
