package pathkinds

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
)

const alpn = "heddle-lab"

// quicEcho is a QUIC server on a host that sends back what each stream brings. Its packets begin with size bytes.
func (w *world) quicEcho(host string, at netip.AddrPort, size uint16) {
	w.t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		w.t.Fatal(err)
	}
	socket := w.udp(host, at)
	l, err := quic.Listen(socket, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{alpn}},
		&quic.Config{InitialPacketSize: size})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			go func() {
				for {
					s, err := c.AcceptStream(context.Background())
					if err != nil {
						return
					}
					go func() {
						io.Copy(s, s)
						s.Close()
					}()
				}
			}()
		}
	}()
}

// udp opens a socket in a host.
func (w *world) udp(host string, at netip.AddrPort) *net.UDPConn {
	w.t.Helper()
	var socket *net.UDPConn
	err := w.Host(host).Do(func() (err error) {
		socket, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { socket.Close() })
	return socket
}

// udpEcho is a server on a host that sends back each datagram, and gives what asks it from the client: so many
// datagrams one after the other by a relay there, each of which must come back.
func (w *world) udpEcho(host string, at, relay netip.AddrPort) (ask func(n int)) {
	w.t.Helper()
	server, client := w.udp(host, at), w.udp("client", netip.MustParseAddrPort("127.0.0.1:0"))
	go func() {
		buffer := make([]byte, 2000)
		for {
			n, from, err := server.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			server.WriteToUDPAddrPort(buffer[:n], from)
		}
	}()
	buffer, count := make([]byte, 2000), 0
	return func(n int) {
		w.t.Helper()
		for range n {
			count++
			question := fmt.Sprint("question ", count)
			client.SetReadDeadline(time.Now().Add(30 * time.Second))
			if _, err := client.WriteToUDPAddrPort([]byte(question), relay); err != nil {
				w.t.Fatal(err)
			}
			if got, err := client.Read(buffer); err != nil || string(buffer[:got]) != question {
				w.t.Fatalf("%s: %q, %v", question, buffer[:got], err)
			}
		}
	}
}

// quicDial connects from the client to a relay there, with packets that begin with size bytes.
func (w *world) quicDial(to netip.AddrPort, size uint16) *quic.Conn {
	w.t.Helper()
	return w.quicDialFrom(netip.MustParseAddrPort("127.0.0.1:0"), to, &quic.Config{InitialPacketSize: size})
}

func (w *world) quicDialFrom(at, to netip.AddrPort, config *quic.Config) *quic.Conn {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	config.HandshakeIdleTimeout = time.Minute
	socket := w.udp("client", at)
	c, err := quic.Dial(ctx, socket, net.UDPAddrFromAddrPort(to), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{alpn}}, config)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.CloseWithError(0, "") })
	return c
}

// echoed sends bytes on a new stream and wants them back.
func echoed(t *testing.T, c *quic.Conn, size int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	s, err := c.OpenStreamSync(ctx)
	if err != nil {
		t.Fatal(err)
	}
	deadline, _ := ctx.Deadline()
	s.SetDeadline(deadline)
	data := make([]byte, size)
	rand.Read(data)
	go func() {
		s.Write(data)
		s.Close()
	}()
	back, err := io.ReadAll(s)
	if err != nil || !bytes.Equal(back, data) {
		t.Fatalf("%d of %d bytes came back, %v", len(back), size, err)
	}
}
