package split

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"heddle/internal/polltest"
)

func quicLoopback(t *testing.T) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// quicEcho serves one stream of one connection, which it sends back.
func quicEcho(t *testing.T) *net.UDPConn {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	socket := quicLoopback(t)
	l, err := quic.Listen(socket, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{"echo"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept(context.Background())
		if err != nil {
			return
		}
		if s, err := c.AcceptStream(context.Background()); err == nil {
			io.Copy(s, s)
		}
	}()
	return socket
}

// The schedule begins after the handshake of a real client, with connection ids of its own and without. quic-go changes the
// server's id for its second flight.
func TestScheduleBeginsAfterTheHandshake(t *testing.T) {
	for _, length := range []int{0, 8} {
		t.Run(fmt.Sprintf("ids of %d bytes", length), func(t *testing.T) {
			polltest.Again(t, func(int) error { return splitsQUIC(t, length) })
		})
	}
}

// splitsQUIC returns why a session of QUIC does not take all paths within handshakeLimit: then the schedule begins anyway.
func splitsQUIC(t *testing.T, idLength int) error {
	t.Helper()
	server := quicEcho(t).LocalAddr().(*net.UDPAddr).AddrPort()
	r := startRelay(t, server, func(o *RelayOptions) { o.Schedule.Every.Packets = 1 })
	client := &quic.Transport{Conn: quicLoopback(t), ConnectionIDLength: idLength}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), handshakeLimit)
	defer cancel()
	c, err := client.Dial(ctx, net.UDPAddrFromAddrPort(r.Addr()), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"echo"}}, nil)
	if err != nil {
		return err
	}
	defer c.CloseWithError(0, "")
	s, err := c.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	deadline, _ := ctx.Deadline()
	s.SetDeadline(deadline)
	for buffer := make([]byte, 10); ; {
		if _, err := s.Write(buffer); err != nil {
			return fmt.Errorf("the session stays on one path: %w, %+v", err, r.Status()[0].Paths)
		}
		if _, err := io.ReadFull(s, buffer); err != nil {
			return fmt.Errorf("the session stays on one path: %w, %+v", err, r.Status()[0].Paths)
		}
		status := r.Status()[0]
		if strings.Contains(fmt.Sprint(status.Warnings), "not confirmed") {
			return fmt.Errorf("warnings %q", status.Warnings)
		}
		paths := status.Paths
		if paths[0].Up.Packets > 0 && paths[1].Up.Packets > 0 && paths[2].Up.Packets > 0 {
			return nil
		}
		time.Sleep(5 * time.Millisecond) // more datagrams would reach the bound before the longest round trip that is assumed
	}
}
