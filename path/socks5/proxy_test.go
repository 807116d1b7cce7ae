package socks5

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
)

// The numbers of RFC 1928 and RFC 1929, written apart from the code under test.
const (
	version            = 5
	authVersion        = 1
	methodNone         = 0x00
	methodPassword     = 0x02
	methodUnacceptable = 0xff
	commandConnect     = 1
	connectionRefused  = 5
	addressIPv4        = 1
	addressName        = 3
	addressIPv6        = 4
)

// testProxy is a strict SOCKS5 proxy on loopback, which can be told to misbehave.
type testProxy struct {
	user, password string        // wanted where user is not empty
	reply          byte          // REP to every request
	named          bool          // sends sources as names
	fragments      bool          // sends a fragment, and rubbish, before each answer
	silent         bool          // accepts connections and says nothing
	spokenTo       chan struct{} // closed by a silent one that was spoken to
	bound          netip.Addr

	listener *net.TCPListener
	relay    *net.UDPConn
	mu       sync.Mutex
	controls []net.Conn
	names    []string // that were asked for, with the port
}

func (p *testProxy) start(t *testing.T) string {
	t.Helper()
	var err error
	if p.listener, err = net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
		t.Fatal(err)
	}
	if p.relay, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.listener.Close(); p.relay.Close(); p.vanish() })
	go func() {
		for {
			c, err := p.listener.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.controls = append(p.controls, c)
			p.mu.Unlock()
			go p.serve(c)
		}
	}()
	go p.carry()
	return p.listener.Addr().String()
}

// vanish closes all connections.
func (p *testProxy) vanish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.controls {
		c.Close()
	}
}

func (p *testProxy) serve(c net.Conn) {
	if p.silent {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			close(p.spokenTo)
		}
	}
	if p.silent || !p.letIn(c) {
		return
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(c, head); err != nil {
		return
	}
	if head[3] == addressName {
		name := make([]byte, 1)
		io.ReadFull(c, name)
		name = make([]byte, int(name[0])+2)
		io.ReadFull(c, name)
		p.mu.Lock()
		p.names = append(p.names, string(name))
		p.mu.Unlock()
		p.answer(c, p.reply, netip.AddrPort{})
		c.Close()
		return
	}
	size := map[byte]int{addressIPv4: 4, addressIPv6: 16}[head[3]]
	rest := make([]byte, size+2)
	if _, err := io.ReadFull(c, rest); err != nil {
		return
	}
	bound := p.relay.LocalAddr().(*net.UDPAddr).AddrPort()
	if p.bound.IsValid() {
		bound = netip.AddrPortFrom(p.bound, bound.Port())
	}
	var to *net.TCPConn
	if head[1] == commandConnect && p.reply == 0 {
		conn, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: rest[:size], Port: int(binary.BigEndian.Uint16(rest[size:]))})
		if err != nil {
			p.answer(c, connectionRefused, bound)
			return
		}
		to = conn
	}
	p.answer(c, p.reply, bound)
	if to != nil {
		go func() { io.Copy(to, c); to.CloseWrite() }()
		io.Copy(c, to)
		c.Close()
		to.Close()
	}
}

func (p *testProxy) answer(c net.Conn, code byte, bound netip.AddrPort) {
	c.Write(append([]byte{version, code, 0}, headerTo(bound)[3:]...))
}

func (p *testProxy) letIn(c net.Conn) bool {
	head := make([]byte, 2)
	if _, err := io.ReadFull(c, head); err != nil || head[0] != version {
		return false
	}
	methods := make([]byte, head[1])
	if _, err := io.ReadFull(c, methods); err != nil {
		return false
	}
	want := byte(methodNone)
	if p.user != "" {
		want = methodPassword
	}
	offered := false
	for _, m := range methods {
		offered = offered || m == want
	}
	if !offered {
		want = methodUnacceptable
	}
	c.Write([]byte{version, want})
	if want != methodPassword {
		return offered
	}
	read := func() string {
		n := make([]byte, 1)
		io.ReadFull(c, n)
		text := make([]byte, n[0])
		io.ReadFull(c, text)
		return string(text)
	}
	c.Read(head[:1])
	user, password := read(), read()
	if head[0] != authVersion || user != p.user || password != p.password {
		c.Write([]byte{authVersion, 1})
		c.Close()
		return false
	}
	c.Write([]byte{authVersion, 0})
	return true
}

// carry sends what clients send to its target by a socket of its own, and one answer per datagram back.
func (p *testProxy) carry() {
	buf := make([]byte, 1<<16)
	var outs sync.Map // client to socket
	for {
		n, client, err := p.relay.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		to, length, err := parseHeader(buf[:n])
		if err != nil {
			continue
		}
		out, known := outs.Load(client)
		if !known {
			socket, err := net.ListenUDP("udp", nil)
			if err != nil {
				return
			}
			out = socket
			outs.Store(client, out)
			go p.back(socket, client)
		}
		out.(*net.UDPConn).WriteToUDPAddrPort(buf[length:n], to)
	}
}

func (p *testProxy) back(socket *net.UDPConn, client netip.AddrPort) {
	defer socket.Close()
	buf := make([]byte, 1<<16)
	for {
		n, from, err := socket.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		header := headerTo(from)
		if p.named {
			name := from.Addr().String()
			header = append([]byte{0, 0, 0, addressName, byte(len(name))}, name...)
			header = binary.BigEndian.AppendUint16(header, from.Port())
		}
		if p.fragments {
			fragment := append(headerTo(from), "fragment"...)
			fragment[2] = 1
			p.relay.WriteToUDPAddrPort(fragment, client)
			p.relay.WriteToUDPAddrPort([]byte{0, 0, 0, addressIPv6, 1}, client)
		}
		if _, err := p.relay.WriteToUDPAddrPort(append(header, buf[:n]...), client); err != nil {
			return
		}
	}
}
