package gateway

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"heddle/internal/nstest"
)

// fastOpenAll lets each socket that listens take data with the first packet of a client (ip-sysctl.rst, tcp_fastopen).
const fastOpenAll = "1026" // 0x402

// Bits of tcpi_options (linux/tcp.h).
const (
	infoECN     = 8
	infoSYNData = 32
)

// A client moves that has ECN, and whose ClientHello comes with its first packet (RFC 7413).
func TestMoveWithFastOpenAndECN(t *testing.T) {
	m := newMoving(t, places4, false)
	m.client.Do(t, func() error {
		return errors.Join(nstest.Set("ipv4/tcp_fastopen", "1"), nstest.Set("ipv4/tcp_ecn", "1"))
	})
	m.control = func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, 1) }), err)
	}
	for i := range 3 { // the first one gets the client its cookie
		c, from := m.visit(m.config)
		if from != c.LocalAddr().String() {
			t.Errorf("the tenant sees %s, and the client is %v", from, c.LocalAddr())
		}
		raw, err := c.NetConn().(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var info *unix.TCPInfo
		if other := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); err != nil || other != nil {
			t.Fatal(err, other)
		}
		if info.Options&infoECN == 0 || i > 0 && info.Options&infoSYNData == 0 {
			t.Errorf("connection %d has options %#x", i+1, info.Options)
		}
		m.echo(c, much)
		m.expect(moved(i+1, false))
	}
}
