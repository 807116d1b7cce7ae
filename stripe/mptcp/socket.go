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

// maxSubflows is above any kernel's limit of 8 and the first.
const maxSubflows = 32

type subflow struct {
	local, remote netip.AddrPort
	tcp           unix.TCPInfo
}

// up reports whether it carries data in both directions.
func (s subflow) up() bool { return s.tcp.State == unix.BPF_TCP_ESTABLISHED }

type socket struct{ raw syscall.RawConn }

func (s socket) do(f func(fd int) error) error {
	var err error
	if controlErr := s.raw.Control(func(fd uintptr) { err = f(int(fd)) }); controlErr != nil {
		return controlErr
	}
	return err
}

// get reads an option into buf and returns the number of bytes read.
func get(fd, option int, buf []byte) (int, error) {
	length := uint32(len(buf))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_MPTCP, uintptr(option),
		uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return 0, errno
	}
	return min(int(length), len(buf)), nil
}

// info holds the needed fields of struct mptcp_info.
type info struct {
	token          uint32 // identifies the connection to the path manager
	fallback       bool   // to plain TCP: a middlebox removed the option, or the peer has no MPTCP
	unacknowledged uint64 // bytes of the stream, and its end, that the peer's kernel has not acknowledged
}

func (s socket) info() (i info, err error) {
	buf := make([]byte, 256)
	err = s.do(func(fd int) error { _, err := get(fd, optionInfo, buf); return err })
	return info{fallback: binary.NativeEndian.Uint32(buf[8:])&1 != 0, token: binary.NativeEndian.Uint32(buf[12:]),
		unacknowledged: binary.NativeEndian.Uint64(buf[16:]) - binary.NativeEndian.Uint64(buf[24:])}, err
}

// Sizes of struct mptcp_subflow_data and of an address, which is a sockaddr_storage.
const (
	sizeHeader  = 16
	sizeAddress = 128
)

// list reads an option that has one element per subflow.
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

// subflows lists the current subflows. The kernel returns addresses and counters separately, in the same order, so subflows
// reads again if one came or went in between.
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

// join returns nil if the lists are not from one moment.
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

// ended reports whether the peer ended its stream. Subflows that end after that ended in order.
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
