package schedules

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

	"heddle/internal/polltest"
	"heddle/lab"
)

var (
	quicServer = netip.AddrPortFrom(serverAddr, 7201)
	quicRelay  = netip.MustParseAddrPort("127.0.0.1:7201")
)

func tlsConfig(t *testing.T) *tls.Config {
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
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{"echo"}}
}

// quicEcho sends a stream to a QUIC server by the relay, and wants it back. It returns how long the session took, since no answer took
// longer.
func (w *world) quicEcho() time.Duration {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), polltest.Patience)
	defer cancel()
	at, err := w.socket("server", quicServer)
	if err != nil {
		w.t.Fatal(err)
	}
	l, err := quic.Listen(at, tlsConfig(w.t), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept(ctx)
		if err != nil {
			return
		}
		if s, err := c.AcceptStream(ctx); err == nil {
			io.Copy(s, s)
			s.Close()
		}
	}()
	from, err := w.socket("client", netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		w.t.Fatal(err)
	}
	began := time.Now()
	c, err := quic.Dial(ctx, from, net.UDPAddrFromAddrPort(quicRelay), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"echo"}}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.CloseWithError(0, "")
	s, err := c.OpenStreamSync(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	deadline, _ := ctx.Deadline()
	s.SetDeadline(deadline)
	data := make([]byte, 300_000)
	rand.Read(data)
	go func() {
		s.Write(data)
		s.Close()
	}()
	if back, err := io.ReadAll(s); err != nil || !bytes.Equal(back, data) {
		w.t.Fatalf("%d of %d bytes came back, %v", len(back), len(data), err)
	}
	return time.Since(began)
}

// wantHandshake wants the long headers, and ten datagrams up at least, on the rule's path, and the rest on the others.
func wantHandshake(seen map[string][]packet) error {
	for _, way := range lab.Ways {
		long, up := 0, 0
		for _, p := range seen[way] {
			toServer := p.up(quicServer.Port())
			if !toServer && !p.down(quicServer.Port()) {
				continue
			}
			if p.long() {
				long++
			}
			if toServer {
				up++
			}
		}
		if way == "office" && (long == 0 || up < 10) || way != "office" && (long > 0 || up < 20) {
			return fmt.Errorf("%s saw %d long headers of QUIC, and %d datagrams up", way, long, up)
		}
	}
	return nil
}
