package mptcp

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Options of a socket at the level SOL_MPTCP (linux/mptcp.h), since Linux 5.16.
const (
	optionInfo    = 1
	optionTCPInfo = 2
	optionAddrs   = 3
)

// maxSubflows is more than any kernel permits: it permits 8 and the first.
const maxSubflows = 32

// subflow is one TCP connection of an MPTCP connection.
type subflow struct {
	local, remote netip.AddrPort
	tcp           unix.TCPInfo
}

// up reports that it carries data in both directions.
func (s subflow) up() bool { return s.tcp.State == unix.BPF_TCP_ESTABLISHED }

// socket asks the kernel about an MPTCP connection.
type socket struct{ raw syscall.RawConn }

func (s socket) do(f func(fd int) error) error {
	var err error
	if controlErr := s.raw.Control(func(fd uintptr) { err = f(int(fd)) }); controlErr != nil {
		return controlErr
	}
	return err
}

// get reads an option into buf, and gives how much of it was filled.
func get(fd, option int, buf []byte) (int, error) {
	length := uint32(len(buf))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_MPTCP, uintptr(option),
		uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return 0, errno
	}
	return min(int(length), len(buf)), nil
}

// info is what matters of struct mptcp_info.
type info struct {
	token    uint32 // names the connection to the path manager
	fallback bool   // it became plain TCP: somebody on the way took the option out, or the peer speaks no MPTCP
	// unacknowledged counts the bytes of the stream, and its end, that the peer's kernel has not acknowledged.
	unacknowledged uint64
}

func (s socket) info() (i info, err error) {
	buf := make([]byte, 256)
	err = s.do(func(fd int) error { _, err := get(fd, optionInfo, buf); return err })
	return info{fallback: binary.NativeEndian.Uint32(buf[8:])&1 != 0, token: binary.NativeEndian.Uint32(buf[12:]),
		unacknowledged: binary.NativeEndian.Uint64(buf[16:]) - binary.NativeEndian.Uint64(buf[24:])}, err
}

// Sizes of struct mptcp_subflow_data and of the two addresses, each a sockaddr_storage.
const (
	sizeHeader  = 16
	sizeAddress = 128
)

// list reads an option that has an element for each subflow.
func list(fd, option, size int) ([][]byte, error) {
	buf := make([]byte, sizeHeader+maxSubflows*size)
	binary.NativeEndian.PutUint32(buf, sizeHeader)
	binary.NativeEndian.PutUint32(buf[12:], uint32(size))
	n, err := get(fd, option, buf)
	if err != nil {
		return nil, err
	}
	var all [][]byte
	for count := binary.NativeEndian.Uint32(buf[4:]); len(all) < int(count) && sizeHeader+(len(all)+1)*size <= n; {
		all = append(all, buf[sizeHeader+len(all)*size:][:size])
	}
	return all, nil
}

// subflows lists those that there are now. The kernel gives addresses and counters separately, each in the same order;
// where one came or went in between, they are asked for again.
func (s socket) subflows() (all []subflow, err error) {
	err = s.do(func(fd int) error {
		addrs, err := list(fd, optionAddrs, 2*sizeAddress)
		for err == nil {
			var infos, again [][]byte
			if infos, err = list(fd, optionTCPInfo, unix.SizeofTCPInfo); err != nil {
				break
			}
			if again, err = list(fd, optionAddrs, 2*sizeAddress); err != nil {
				break
			}
			if all = join(addrs, infos, again); all != nil || len(addrs) == 0 && len(infos) == 0 {
				break
			}
			addrs = again
		}
		return err
	})
	return all, err
}

// join gives nothing where the lists are not of one moment.
func join(addrs, infos, again [][]byte) []subflow {
	if len(addrs) != len(infos) || len(again) != len(addrs) {
		return nil
	}
	var all []subflow
	for i, a := range addrs {
		if string(a) != string(again[i]) {
			return nil
		}
		f := subflow{local: address(a[:sizeAddress]), remote: address(a[sizeAddress:])}
		copy((*[unix.SizeofTCPInfo]byte)(unsafe.Pointer(&f.tcp))[:], infos[i])
		all = append(all, f)
	}
	return all
}

// address reads a sockaddr_in or sockaddr_in6.
func address(raw []byte) netip.AddrPort {
	port := binary.BigEndian.Uint16(raw[2:])
	switch binary.NativeEndian.Uint16(raw) {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(raw[4:8])), port)
	case unix.AF_INET6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(raw[8:24])).Unmap(), port)
	}
	return netip.AddrPort{}
}

// ended reports that the peer ended its stream. Subflows that go after that went in order.
func (s socket) ended() bool {
	ended := false
	err := s.do(func(fd int) error {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		_, err := unix.Poll(fds, 0)
		ended = fds[0].Revents&unix.POLLRDHUP != 0
		return err
	})
	return err == nil && ended
}
