package handshake

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// How long a load by HTTP/3 waits for the server's next packet: long where there will be one, and some fifty round
// trips where there will be none.
const (
	patience  = 30 * time.Second
	inVain    = time.Second
	loadLimit = time.Minute
)

// load3 loads the page by HTTP/3 on a connection of its own, from one of the client's addresses and to the server or the
// relay.
func (w *world) load3(version quic.Version, from netip.Addr, to netip.AddrPort, name string, wait time.Duration) error {
	var socket *net.UDPConn
	err := w.Host("client").Do(func() (err error) {
		socket, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)))
		return err
	})
	if err != nil {
		return err
	}
	defer socket.Close()
	conn := &quic.Transport{Conn: socket}
	defer conn.Close()
	trust, err := w.trust()
	if err != nil {
		return err
	}
	h3 := &http3.Transport{TLSClientConfig: trust,
		QUICConfig: &quic.Config{Versions: []quic.Version{version}, HandshakeIdleTimeout: wait},
		Dial: func(ctx context.Context, _ string, t *tls.Config, q *quic.Config) (*quic.Conn, error) {
			return conn.DialEarly(ctx, net.UDPAddrFromAddrPort(to), t, q)
		}}
	defer h3.Close()
	return w.load(h3, name)
}

// loadTLS loads the page by HTTP over TLS over TCP, by home.
func (w *world) loadTLS(name string) error {
	trust, err := w.trust()
	if err != nil {
		return err
	}
	h1 := &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (conn net.Conn, err error) {
			err = w.Host("client").Do(func() error {
				dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: home.AsSlice()}}
				conn, err = dialer.DialContext(ctx, network, server.String())
				return err
			})
			return conn, err
		}}
	return w.load(h1, name)
}

func (w *world) trust() (*tls.Config, error) {
	text, err := os.ReadFile(w.certificate)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return &tls.Config{RootCAs: roots}, nil
}

func (w *world) load(by http.RoundTripper, name string) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), loadLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+name+"/large.bin", nil)
	if err != nil {
		return err
	}
	response, err := by.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK || !bytes.Equal(body, w.page) {
		return fmt.Errorf("%s and %d bytes, which are not the page", response.Status, len(body))
	}
	return nil
}
