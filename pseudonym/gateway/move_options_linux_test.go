package gateway

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"heddle/internal/netns"
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
	m.opensFast()
	m.client.Do(t, func() error { return nstest.Set("ipv4/tcp_ecn", "1") })
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

// opensFast lets the client's next sockets send data with their first packet.
func (m *moving) opensFast() {
	m.t.Helper()
	m.client.Do(m.t, func() error { return nstest.Set("ipv4/tcp_fastopen", "1") })
	m.control = func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, 1) }), err)
	}
}

// A site's machine may take smaller or larger packets than the networks before it. No packet is lost for ever for its size, in neither direction, and the
// answer to a client's first packet tells of the gateway's own network alone.
func TestMoveBetweenNetworksOfOtherSizes(t *testing.T) {
	type sizes struct{ client, site int }
	kinds := []struct {
		name string
		in   places
		by   int
	}{{"bpf", places4, byBPF}, {"bpf, IPv6", places6, byBPF}, {"nft", places4, byGateway}, {"nft, IPv6", places6, byGateway}}
	all := []sizes{{1500, 1280}, {1500, 9000}, {1280, 1500}, {9000, 1500}}
	if !nstest.OwnMounts(t, "-test.parallel=4") {
		return
	}
	for _, k := range kinds {
		for _, size := range all {
			t.Run(fmt.Sprintf("%s, %d and %d", k.name, size.client, size.site), func(t *testing.T) {
				t.Parallel()
				m := newMovingBy(t, k.in, false, k.by, nil)
				for _, end := range []struct {
					in     nstest.Namespace
					device string
					bytes  int
				}{{m.client, "net", size.client}, {m.gateway, "net", size.client}, {m.gateway, "site", size.site}, {m.tenant, "net", size.site}} {
					end.in.Do(t, func() error { return nstest.Resize(end.device, end.bytes) })
				}
				m.tenant.Do(t, func() error { return netns.ChecksumsInSoftware("net") })
				var mu sync.Mutex
				segment, largest := 0, 0
				tap := m.client.Tap(t, func(p nstest.Passed) {
					mu.Lock()
					defer mu.Unlock()
					if !p.Outgoing {
						largest = max(largest, len(p.Bytes))
					}
					if _, tcp := m.tcp(p); tcp != nil && tcp.SYN && !p.Outgoing {
						segment = offered(tcp)
					}
				}, "net")
				conn, _ := m.visit(m.config)
				m.echo(conn, 10<<20)
				tap.Drain()
				m.expect(moved(1, false))
				mu.Lock()
				defer mu.Unlock()
				headers := 40
				if k.in == places6 {
					headers = 60
				}
				if segment != size.client-headers {
					t.Errorf("the answer to the client's first packet offers segments of %d bytes", segment)
				}
				if least := min(size.client, size.site); largest != least {
					t.Errorf("the client gets packets of %d bytes, and not of %d", largest, least)
				}
			})
		}
	}
}

// offered is the largest segment that a first packet asks for, or 0 (RFC 9293, section 3.7.1).
func offered(tcp *layers.TCP) int {
	for _, o := range tcp.Options {
		if o.OptionType == layers.TCPOptionKindMSS && len(o.OptionData) == 2 {
			return int(binary.BigEndian.Uint16(o.OptionData))
		}
	}
	return 0
}
