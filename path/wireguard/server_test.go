package wireguard

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"

	"heddle/internal/polltest"
	"heddle/internal/wgqueue"
	"heddle/path"
)

// Where the services of a test's server are, inside its tunnel.
var (
	echo4 = netip.MustParseAddrPort("10.99.0.1:7")
	echo6 = netip.MustParseAddrPort("[fd99::1]:7")
)

// server is wireguard-go with its own socket and its own stack, on loopback, with an echo service for UDP and TCP.
type server struct {
	device   *device.Device
	inside   *inside
	endpoint netip.AddrPort
	own      *ecdh.PrivateKey
	peer     *ecdh.PrivateKey
}

func newKey(t testing.TB) *ecdh.PrivateKey {
	t.Helper()
	k, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newServer(t testing.TB) *server {
	t.Helper()
	s := &server{own: newKey(t), peer: newKey(t)}
	behind, err := newInside([]netip.Prefix{netip.PrefixFrom(echo4.Addr(), 32), netip.PrefixFrom(echo6.Addr(), 128)}, 1420)
	if err != nil {
		t.Fatal(err)
	}
	behind.up = wgqueue.New(math.MaxInt) // nobody tells what comes out of its bind
	s.inside = behind
	s.device = device.NewDevice(behind, conn.NewDefaultBind(), device.NewLogger(device.LogLevelSilent, ""))
	t.Cleanup(s.device.Close)
	err = s.device.IpcSet(fmt.Sprintf("private_key=%x\nlisten_port=0\npublic_key=%x\nallowed_ip=10.99.0.2/32\nallowed_ip=fd99::2/128\n", s.own.Bytes(), s.peer.PublicKey().Bytes()))
	if err == nil {
		err = s.device.Up()
	}
	if err != nil {
		t.Fatal(err)
	}
	state, err := s.device.IpcGet()
	if err != nil {
		t.Fatal(err)
	}
	port := 0
	for line := range strings.Lines(state) {
		fmt.Sscanf(line, "listen_port=%d", &port)
	}
	s.endpoint = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port))
	for _, at := range []netip.AddrPort{echo4, echo6} {
		here := fullAddress(at.Addr(), at.Port())
		datagrams, err := gonet.DialUDP(behind.stack, &here, nil, protocolOf(at.Addr()))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			buf := make([]byte, 1<<16)
			for {
				n, from, err := datagrams.ReadFrom(buf)
				if err != nil {
					return
				}
				datagrams.WriteTo(buf[:n], from)
			}
		}()
	}
	listener, err := gonet.ListenTCP(behind.stack, fullAddress(echo4.Addr(), echo4.Port()), protocolOf(echo4.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	return s
}

// file writes the client's file, with more in its [Interface] section.
func (s *server) file(t testing.TB, allowed string, more ...string) string {
	t.Helper()
	encode := base64.StdEncoding.EncodeToString
	text := fmt.Sprintf("[Interface]\nPrivateKey = %s\nAddress = 10.99.0.2/32, fd99::2/128\n%s\n[Peer]\nPublicKey = %s\nAllowedIPs = %s\nEndpoint = %s\n",
		encode(s.peer.Bytes()), strings.Join(more, "\n"), encode(s.own.PublicKey().Bytes()), allowed, s.endpoint)
	file := filepath.Join(t.TempDir(), "tunnel.conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const everything = "0.0.0.0/0, ::/0"

func newTunnelPath(t testing.TB, file string, base path.Path) *tunnelPath {
	t.Helper()
	p, err := path.New(path.Spec{Name: "office", Kind: "wireguard", Arg: file}, path.Options{Base: base})
	if err != nil {
		t.Fatal(err)
	}
	way := p.(*tunnelPath)
	way.linger = 0
	t.Cleanup(func() { polltest.Await(t, "the tunnel has ended", func() bool { return !way.running() }) })
	return way
}

// running reports whether the path has a tunnel.
func (p *tunnelPath) running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tunnel != nil
}

func open(t testing.TB, p path.Path, to netip.AddrPort) path.Flow {
	t.Helper()
	f, err := path.Open(t.Context(), p, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// exchange sends a datagram and wants it back from the server.
func exchange(t testing.TB, f path.Flow, from netip.AddrPort, text string) {
	t.Helper()
	if n, err := f.Send([][]byte{[]byte(text)}); n != 1 || err != nil {
		t.Fatalf("sent %d: %v", n, err)
	}
	into := make([]path.Inbound, 2)
	n, err := f.Receive(into)
	if err != nil {
		t.Fatal(err)
	}
	if n != 1 || string(into[0].Data) != text || into[0].From != from {
		t.Fatalf("%d received, the first %q from %v; want %q from %v", n, into[0].Data, into[0].From, text, from)
	}
}

// closedPort is a UDP port of loopback that nobody listens on.
func closedPort(t testing.TB) netip.AddrPort {
	t.Helper()
	s, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return s.LocalAddr().(*net.UDPAddr).AddrPort()
}
