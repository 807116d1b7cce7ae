package path

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	maxSegments   = 64    // per UDP_SEGMENT message: the smallest UDP_MAX_SEGMENTS of all kernels
	maxGSOBytes   = 65000 // per UDP_SEGMENT message: below 65,535 less any IP and UDP header
	receiveBuffer = 1 << 16
	kernelBuffer  = 4 << 20
	controlLen    = 64
)

// Socket is a UDP socket that sends and receives in batches, with UDP_SEGMENT (Linux 4.18) and UDP_GRO (5.0) if available.
type Socket struct {
	udpSocket
	gso atomic.Bool
	in  *inbox

	sending struct {
		sync.Mutex
		out      *outbox
		messages []outgoing
		to       netip.AddrPort
		addr     sockaddr
		addrLen  int
	}
}

// outgoing is one message: a run of datagrams, and the control message that makes the kernel split it.
type outgoing struct {
	datagrams [][]byte
	control   []byte
}

func openSocket(ctx context.Context, b binding) (*Socket, error) {
	made, err := bindUDP(ctx, b, b.apply)
	if err != nil {
		return nil, err
	}
	s := &Socket{udpSocket: made}
	s.in, s.sending.out = newInbox(s.raw), newOutbox(s.raw)
	s.gso.Store(s.probeGSO())
	return s, nil
}

// apply ties a UDP socket and sets the options that all sockets have.
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
	for force, plain := range map[int]int{unix.SO_RCVBUFFORCE: unix.SO_RCVBUF, unix.SO_SNDBUFFORCE: unix.SO_SNDBUF} {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, kernelBuffer) != nil {
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, kernelBuffer)
		}
	}
	return nil
}

const tiesToDevices = true

// tie binds fd to the device and sets the mark.
func (b binding) tie(fd int) error {
	if b.device != "" {
		if err := unix.BindToDevice(fd, b.device); err != nil {
			return err
		}
	}
	if b.mark != 0 {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(b.mark))
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

// SendTo sends each element of datagrams to one address, in order, and returns how many were sent. It is safe for concurrent
// use. It skips a datagram that is too large for the path, and returns an error after the others.
func (s *Socket) SendTo(to netip.AddrPort, datagrams [][]byte) (int, error) {
	s.sending.Lock()
	defer s.sending.Unlock()
	if err := s.address(to); err != nil {
		return 0, s.explain(err)
	}
	s.plan(datagrams, s.gso.Load())
	sent, next, retried := 0, 0, false
	var last error
	for next < len(s.sending.messages) {
		n, err := s.sending.out.send(&s.sending.addr, s.sending.addrLen, s.sending.messages[next:])
		for _, m := range s.sending.messages[next : next+n] {
			sent += len(m.datagrams)
		}
		next += n
		if err == nil {
			continue
		}
		failed := len(s.sending.messages[next].datagrams)
		switch {
		case errors.Is(err, net.ErrClosed):
			return sent, net.ErrClosed
		case failed > 1 && refusesGSO(err):
			if errors.Is(err, unix.EIO) { // the device has no checksum offload, which does not change
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

// address prepares sending to an address. s.sending is locked.
func (s *Socket) address(to netip.AddrPort) (err error) {
	if s.sending.to == to {
		return nil
	}
	s.sending.to = netip.AddrPort{}
	if s.sending.addrLen, err = s.sending.addr.put(to, s.local.Addr().Is6()); err != nil {
		return err
	}
	s.sending.to = to
	return nil
}

// refusesGSO reports whether the kernel may accept the datagrams one by one.
func refusesGSO(err error) bool {
	return errors.Is(err, unix.EIO) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EMSGSIZE)
}

// isPending reports whether err may concern an earlier datagram: the kernel returns such errors at the next call.
func isPending(err error) bool {
	errno, _ := errors.AsType[syscall.Errno](err)
	return slices.Contains([]syscall.Errno{unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EACCES, unix.EPROTO}, errno)
}

// plan fills s.sending.messages with runs of datagrams of one length; the last of a run may be shorter.
func (s *Socket) plan(datagrams [][]byte, gso bool) {
	s.sending.messages = s.sending.messages[:0]
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
	m := outgoing{datagrams: datagrams}
	if len(datagrams) > 1 {
		m.control = segmentControl(len(datagrams[0]))
	}
	s.sending.messages = append(s.sending.messages, m)
}

// split replaces message i by one message per datagram.
func (s *Socket) split(i int) {
	rest := slices.Clone(s.sending.messages[i+1:])
	datagrams := s.sending.messages[i].datagrams
	s.sending.messages = s.sending.messages[:i]
	for k := range datagrams {
		s.addMessage(datagrams[k : k+1 : k+1])
	}
	s.sending.messages = append(s.sending.messages, rest...)
}

// runLength returns how many of the first datagrams fit one UDP_SEGMENT message.
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
	n, err := s.in.receive(len(into))
	if err != nil {
		if errors.Is(err, net.ErrClosed) {
			return 0, net.ErrClosed
		}
		return 0, s.explain(err)
	}
	for i := range n {
		data, from, control := s.in.message(i)
		into[i] = Inbound{Data: data, Size: max(len(data), 1), From: from}
		if size := segmentSize(control); size > 0 {
			into[i].Size = size
		}
	}
	return n, nil
}

// explain returns the details of the errno of a send or receive from the error queue.
func (s *Socket) explain(err error) error {
	var u *Unreachable
	s.raw.Control(func(fd uintptr) { u = drainErrors(int(fd)) })
	errno, ok := errors.AsType[syscall.Errno](err)
	// A packet filter of this machine may also queue an ICMP error, which looks as if it came from elsewhere.
	if u != nil && errno != syscall.EPERM {
		return u
	}
	if ok {
		return &Unreachable{Errno: errno}
	}
	return err
}
