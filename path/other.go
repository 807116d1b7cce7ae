//go:build !linux

package path

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"heddle/internal/errhint"
)

// Paths on systems other than Linux. Sockets cannot be bound to a device there, so if: and ports: are refused. A src: path
// binds its address, and the system's routes choose the device. Each call sends or receives one datagram.

func init() {
	for _, scheme := range []string{"if", "ports"} {
		Register(Kind{Scheme: scheme, Argument: "device", Carries: Datagrams | Streams, New: func(s Spec, _ Options) (Path, error) {
			return nil, errhint.NeedsLinux("path "+s.Name, "use src:, with routes of its own for the address")
		}})
	}
}

const tiesToDevices = false

// receiveBuffer exceeds the largest UDP payload in bytes.
const receiveBuffer = 1 << 16

type Socket struct {
	udpSocket
	in [receiveBuffer]byte

	sending sync.Mutex
}

func openSocket(ctx context.Context, b binding) (*Socket, error) {
	made, err := bindUDP(ctx, b, b.tie)
	if err != nil {
		return nil, err
	}
	return &Socket{udpSocket: made}, nil
}

// tie refuses bindings that need Linux.
func (b binding) tie(int) error {
	if b.device != "" || b.mark != 0 {
		return errhint.NeedsLinux("socket", "leave out the device and the mark")
	}
	return nil
}

// SendTo sends each element of datagrams to one address, in order, and returns how many were sent. It is safe for concurrent
// use. It skips a datagram that is too large for the path, and returns an error after the others.
func (s *Socket) SendTo(to netip.AddrPort, datagrams [][]byte) (sent int, last error) {
	s.sending.Lock()
	defer s.sending.Unlock()
	for _, d := range datagrams {
		_, err := s.conn.WriteToUDPAddrPort(d, to)
		switch err = explain(err); {
		case err == nil:
			sent++
		case errors.Is(err, syscall.EMSGSIZE), errors.Is(err, syscall.ENOBUFS):
			last = err
		default:
			return sent, err
		}
	}
	return sent, last
}

// Receive blocks until a datagram arrives; see [Flow]. Only one goroutine may receive.
func (s *Socket) Receive(into []Inbound) (int, error) {
	n, from, err := s.conn.ReadFromUDPAddrPort(s.in[:])
	if err != nil {
		return 0, explain(err)
	}
	into[0] = Inbound{Data: s.in[:n], Size: max(n, 1), From: netip.AddrPortFrom(from.Addr().Unmap(), from.Port())}
	return 1, nil
}

// winsock maps error numbers of Windows sockets (Winsock2.h), which no other system has, to POSIX.
var winsock = map[syscall.Errno]syscall.Errno{10013: syscall.EACCES, 10040: syscall.EMSGSIZE, 10051: syscall.ENETUNREACH,
	10054: syscall.ECONNREFUSED, 10055: syscall.ENOBUFS, 10061: syscall.ECONNREFUSED, 10065: syscall.EHOSTUNREACH}

// explain returns the error for the errno of a send or receive.
func explain(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return net.ErrClosed
	}
	errno, ok := errors.AsType[syscall.Errno](err)
	if !ok {
		return err
	}
	if known, ok := winsock[errno]; ok {
		errno = known
	}
	return &Unreachable{Errno: errno}
}

// egress is how the system would send to one address.
type egress struct {
	device string
	source netip.Addr
}

// lookup returns the source address that the system uses to reach dst, and the device that has this address. It connects a
// socket, which sends nothing. A given source is returned as it is, although routes may lead by another device.
func lookup(dst netip.Addr, _ string, source netip.Addr, _ uint32) (egress, error) {
	var from *net.UDPAddr
	if source.IsValid() {
		from = net.UDPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
	}
	c, err := net.DialUDP("udp", from, net.UDPAddrFromAddrPort(netip.AddrPortFrom(dst, 9)))
	if err != nil {
		return egress{}, err
	}
	defer c.Close()
	out := egress{source: c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()}
	out.device, err = deviceWith(out.source)
	return out, err
}

func noRoute(what string, dst netip.Addr, err error) error {
	return &Error{What: what, Why: fmt.Sprintf("no way to %v", dst), Err: err, Hint: "`heddle doctor` lists the addresses"}
}

func mtuOf(device string) int {
	i, err := net.InterfaceByName(device)
	if err != nil {
		return 0
	}
	return i.MTU
}

// Watch reports changes of this machine's devices, addresses and routes. On this system it always reports a change.
type Watch struct{}

func NewWatch() (*Watch, error) { return nil, nil }

func (*Watch) Changed() bool { return true }

func (*Watch) Close() error { return nil }

// Ask calls ask; nothing is cached on this system.
func Ask[T any](_ any, ask func() (T, error)) (T, error) { return ask() }

// Settle does nothing, as no socket lingers on this system.
func Settle() {}

// GuardProcess does nothing, as no socket is tied to a device on this system.
func GuardProcess() {}

// Leftovers lists nothing, as there is no guard on this system.
func Leftovers(time.Time, bool) []Leftover { return nil }

// RemoveGuard does nothing, as there is no guard on this system.
func RemoveGuard() error { return nil }

func guard(netip.Addr) {}

func remember(io.Closer) {}

func forget(io.Closer) {}

// heldID is always 0, as there is no keeper on this system.
type heldID uint64

func hold(int, bool) heldID { return 0 }

func release(heldID, bool) bool { return false }

func stayBound(int) {}

func (b binding) letGo(syscall.RawConn, heldID, netip.Addr, bool) {}
