package path

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

const (
	maxSegments   = 64    // of one UDP_SEGMENT message, UDP_MAX_SEGMENTS of every kernel that has it
	maxGSOBytes   = 65000 // of one UDP_SEGMENT message, under 65,535 less any IP and UDP header
	receiveBuffer = 1 << 16
	kernelBuffer  = 4 << 20
	controlLen    = 64
)

// Socket is a UDP socket that sends and receives in batches: with UDP_SEGMENT and UDP_GRO where the kernel has them
// (Linux 4.18 and 5.0), one by one where not.
type Socket struct {
	conn  *net.UDPConn
	raw   syscall.RawConn
	batch batchConn
	local netip.AddrPort
	gso   atomic.Bool

	sending struct {
		sync.Mutex
		messages []ipv4.Message
		counts   []int // datagrams of each message
		to       netip.AddrPort
		addr     *net.UDPAddr
	}
	receiving []ipv4.Message
}

type batchConn interface {
	ReadBatch([]ipv4.Message, int) (int, error)
	WriteBatch([]ipv4.Message, int) (int, error)
}

// binding is what a socket is tied to.
type binding struct {
	local  netip.AddrPort
	device string
	mark   uint32
}

// Listen opens a socket for datagrams from anybody, bound to local.
func Listen(local netip.AddrPort) (*Socket, error) {
	return openSocket(context.Background(), binding{local: local})
}

func openSocket(ctx context.Context, b binding) (*Socket, error) {
	network := "udp4"
	if b.local.Addr().Is6() {
		network = "udp6"
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if controlErr := raw.Control(func(fd uintptr) { err = b.apply(int(fd)) }); controlErr != nil {
			return controlErr
		}
		return err
	}}
	packet, err := config.ListenPacket(ctx, network, b.local.String())
	if err != nil {
		return nil, err
	}
	conn := packet.(*net.UDPConn)
	s := &Socket{conn: conn, local: conn.LocalAddr().(*net.UDPAddr).AddrPort()}
	s.local = netip.AddrPortFrom(s.local.Addr().Unmap(), s.local.Port())
	if s.raw, err = conn.SyscallConn(); err != nil {
		conn.Close()
		return nil, err
	}
	if network == "udp4" {
		s.batch = ipv4.NewPacketConn(conn)
	} else {
		s.batch = ipv6.NewPacketConn(conn)
	}
	s.gso.Store(s.probeGSO())
	return s, nil
}

// apply ties a UDP socket and sets what all of them have.
func (b binding) apply(fd int) error {
	if err := b.tie(fd); err != nil {
		return err
	}
	if b.local.Addr().Is6() {
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
	} else {
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1)
	}
	unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1)
	for _, option := range []int{unix.SO_RCVBUFFORCE, unix.SO_SNDBUFFORCE} {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, kernelBuffer) != nil {
			plain := map[int]int{unix.SO_RCVBUFFORCE: unix.SO_RCVBUF, unix.SO_SNDBUFFORCE: unix.SO_SNDBUF}[option]
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, kernelBuffer)
		}
	}
	return nil
}

func (s *Socket) probeGSO() bool {
	ok := false
	s.raw.Control(func(fd uintptr) {
		_, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT)
		ok = err == nil
	})
	return ok
}

// SyscallConn gives the socket itself, for options that this package has no use for.
func (s *Socket) SyscallConn() (syscall.RawConn, error) { return s.raw, nil }

// LocalAddr is the address and port that the socket is bound to.
func (s *Socket) LocalAddr() netip.AddrPort { return s.local }

// Close closes the socket; a blocked Receive returns [net.ErrClosed].
func (s *Socket) Close() error { return s.conn.Close() }

// SendTo sends each element of datagrams to one address, in order, and returns how many went out. It may be called
// from several goroutines. A datagram that is too large for the path is left out, and err says so after the others.
func (s *Socket) SendTo(to netip.AddrPort, datagrams [][]byte) (int, error) {
	s.sending.Lock()
	defer s.sending.Unlock()
	if s.sending.to != to {
		s.sending.to, s.sending.addr = to, net.UDPAddrFromAddrPort(to)
	}
	s.plan(datagrams, s.gso.Load())
	sent, next, retried := 0, 0, false
	var last error
	for next < len(s.sending.messages) {
		n, err := s.batch.WriteBatch(s.sending.messages[next:], 0)
		n = max(n, 0)
		for _, count := range s.sending.counts[next : next+n] {
			sent += count
		}
		next += n
		if err == nil {
			continue
		}
		failed := s.sending.counts[next]
		switch {
		case errors.Is(err, net.ErrClosed):
			return sent, net.ErrClosed
		case failed > 1 && refusesGSO(err):
			if errors.Is(err, unix.EIO) { // the device has no checksum offload: it will not change its mind
				s.gso.Store(false)
			}
			s.split(next)
		case errors.Is(err, unix.EMSGSIZE), errors.Is(err, unix.ENOBUFS):
			last = s.explain(err)
			next++
		case !retried && isPending(err):
			last, retried = s.explain(err), true
		default:
			return sent, s.explain(err)
		}
	}
	return sent, last
}

// refusesGSO reports whether the kernel would rather have the datagrams one by one.
func refusesGSO(err error) bool {
	return errors.Is(err, unix.EIO) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EMSGSIZE)
}

// isPending reports whether err may be the answer to an earlier datagram, which the kernel hands to the next call.
func isPending(err error) bool {
	for _, errno := range []syscall.Errno{unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EACCES, unix.EPROTO} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// plan fills s.sending.messages: each a run of datagrams of one length, of which the last may be shorter.
func (s *Socket) plan(datagrams [][]byte, gso bool) {
	s.sending.messages, s.sending.counts = s.sending.messages[:0], s.sending.counts[:0]
	for len(datagrams) > 0 {
		n := 1
		if gso {
			n = runLength(datagrams)
		}
		s.addMessage(datagrams[:n:n])
		datagrams = datagrams[n:]
	}
}

func (s *Socket) addMessage(datagrams [][]byte) {
	m := ipv4.Message{Buffers: datagrams, Addr: s.sending.addr}
	if len(datagrams) > 1 {
		m.OOB = segmentControl(len(datagrams[0]))
	}
	s.sending.messages = append(s.sending.messages, m)
	s.sending.counts = append(s.sending.counts, len(datagrams))
}

// split replaces message i by one for each of its datagrams.
func (s *Socket) split(i int) {
	rest := append([]ipv4.Message(nil), s.sending.messages[i+1:]...)
	restCounts := append([]int(nil), s.sending.counts[i+1:]...)
	datagrams := s.sending.messages[i].Buffers
	s.sending.messages, s.sending.counts = s.sending.messages[:i], s.sending.counts[:i]
	for k := range datagrams {
		s.addMessage(datagrams[k : k+1 : k+1])
	}
	s.sending.messages = append(s.sending.messages, rest...)
	s.sending.counts = append(s.sending.counts, restCounts...)
}

// runLength is how many of the first datagrams fit one UDP_SEGMENT message.
func runLength(datagrams [][]byte) int {
	size, total := len(datagrams[0]), len(datagrams[0])
	if size == 0 {
		return 1
	}
	n := 1
	for n < len(datagrams) && n < maxSegments {
		next := len(datagrams[n])
		if next > size || next == 0 || total+next > maxGSOBytes {
			break
		}
		total += next
		n++
		if next < size {
			break
		}
	}
	return n
}

// Receive blocks until datagrams arrive; see [Flow]. Only one goroutine may receive.
func (s *Socket) Receive(into []Inbound) (int, error) {
	for len(s.receiving) < len(into) {
		s.receiving = append(s.receiving, ipv4.Message{
			Buffers: [][]byte{make([]byte, receiveBuffer)}, OOB: make([]byte, controlLen)})
	}
	n, err := s.batch.ReadBatch(s.receiving[:len(into)], 0)
	if err != nil {
		if errors.Is(err, net.ErrClosed) {
			return 0, net.ErrClosed
		}
		return 0, s.explain(err)
	}
	for i, m := range s.receiving[:n] {
		into[i] = Inbound{Data: m.Buffers[0][:m.N], Size: max(m.N, 1)}
		if size := segmentSize(m.OOB[:m.NN]); size > 0 {
			into[i].Size = size
		}
		if from, ok := m.Addr.(*net.UDPAddr); ok {
			a := from.AddrPort()
			into[i].From = netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
		}
	}
	return n, nil
}

// explain turns the errno of a send or receive into what the error queue tells of it.
func (s *Socket) explain(err error) error {
	var u *Unreachable
	s.raw.Control(func(fd uintptr) { u = drainErrors(int(fd)) })
	if u != nil {
		return u
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return &Unreachable{Errno: errno}
	}
	return err
}
