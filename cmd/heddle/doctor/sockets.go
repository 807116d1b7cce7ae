package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/errhint"
)

// bindToDevice tests what paths of kind if: need. Root is not needed since Linux 5.7.
func bindToDevice() Result {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return no(err.Error(), "no UDP socket can be opened at all: look at limits and seccomp")
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, "lo"); err != nil {
		return no("sockets cannot be bound to an interface: "+err.Error(),
			errhint.Rights("CAP_NET_RAW")+", or use Linux 5.7 or later; src: paths need neither")
	}
	return yes("sockets can be bound to an interface (if: and ports: paths)")
}

// Three datagrams: a joined run then differs from one datagram and from two.
const segments, segmentSize = 3, 100

// udpGSO sends a run of datagrams in one call over loopback, and counts them.
func udpGSO() Result {
	const hint = "Linux 4.18 or later has it; without it Heddle sends one datagram a call, at a fraction of the speed"
	sizes, err := sendRun(false)
	if err != nil {
		return no("many datagrams in one call (UDP_SEGMENT): "+err.Error(), hint)
	}
	if len(sizes) != segments {
		return no(fmt.Sprintf("%d datagrams went out in one call, %d arrived", segments, len(sizes)), hint)
	}
	return yes("many datagrams go out in one call (UDP_SEGMENT)")
}

// udpGRO receives the same run joined.
func udpGRO() Result {
	const hint = "Linux 5.0 or later has it; without it Heddle receives one datagram a call, at a fraction of the speed"
	sizes, err := sendRun(true)
	if err != nil {
		return no("many datagrams in one receive (UDP_GRO): "+err.Error(), hint)
	}
	if len(sizes) != 1 || sizes[0] != segments*segmentSize {
		return partly(fmt.Sprintf("UDP_GRO is known, but a run arrived as %d datagrams", len(sizes)), hint)
	}
	return yes("many datagrams arrive in one receive (UDP_GRO)")
}

// sendRun sends the run over loopback, with receive offload if offload, and returns the sizes that arrive.
func sendRun(offload bool) (sizes []int, err error) {
	loopback := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}
	receiver, err := net.ListenUDP("udp4", loopback)
	if err != nil {
		return nil, err
	}
	defer receiver.Close()
	if offload {
		if err := setInt(receiver, unix.UDP_GRO, 1); err != nil {
			return nil, err
		}
	}
	sender, err := net.ListenUDP("udp4", loopback)
	if err != nil {
		return nil, err
	}
	defer sender.Close()
	control := make([]byte, unix.CmsgSpace(2))
	header := unix.Cmsghdr{Level: unix.IPPROTO_UDP, Type: unix.UDP_SEGMENT}
	header.SetLen(unix.CmsgLen(2))
	if _, err := binary.Encode(control, binary.NativeEndian, header); err != nil {
		return nil, err
	}
	binary.NativeEndian.PutUint16(control[unix.CmsgLen(0):], segmentSize)
	if _, _, err := sender.WriteMsgUDP(make([]byte, segments*segmentSize), control, receiver.LocalAddr().(*net.UDPAddr)); err != nil {
		return nil, err
	}
	// Over loopback the data is in the receiver's queue when the send returns.
	if err := receiver.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return nil, err
	}
	buffer := make([]byte, segments*segmentSize+1)
	for total := 0; total < segments*segmentSize; {
		n, err := receiver.Read(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return nil, err
		}
		sizes, total = append(sizes, n), total+n
	}
	return sizes, nil
}

func setInt(c *net.UDPConn, option, value int) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, option, value)
	}); err != nil {
		return err
	}
	return failed
}

func ipv6() Result {
	if readInt("/proc/sys/net/ipv6/conf/all/disable_ipv6") == 1 {
		return no("IPv6 is switched off", "sysctl -w net.ipv6.conf.all.disable_ipv6=0, if a network here has it")
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return no("the kernel has no IPv6", "paths go over IPv4; nothing need be done")
	}
	unix.Close(fd)
	return yes("the kernel speaks IPv6")
}

// IPPROTO_MPTCP of Linux 5.6 and later.
const protoMPTCP = 262

func mptcp() Result {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, protoMPTCP)
	if err != nil {
		return no("no Multipath TCP: "+err.Error(), "sysctl -w net.mptcp.enabled=1, or a kernel that has it; Heddle itself does not need it")
	}
	unix.Close(fd)
	return yes("Multipath TCP sockets open")
}
