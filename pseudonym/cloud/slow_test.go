package cloud

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"heddle/pseudonym/ca/catest"
)

// pipes is a listener of connections in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// visitStore sends bytes to a server as the store has them, and returns what it answers until it closes, and after how long.
func visitStore(t *testing.T, send string) (answer string, after time.Duration) {
	t.Helper()
	issuer, _ := catest.NewIssuer(t, string(testZone))
	key := catest.NewKey(t)
	cert, err := issuer.Server(testZone.Store(), key.Public(), time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l, served := make(pipes), make(chan error, 1)
	go func() {
		served <- serveHTTP(ctx, l, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}},
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					panic(http.ErrAbortHandler)
				}
			}), slog.New(slog.DiscardHandler))
	}()
	mine, its := net.Pipe()
	l <- its
	c := tls.Client(mine, &tls.Config{InsecureSkipVerify: true})
	defer c.Close()
	began := time.Now()
	go io.WriteString(c, send)
	text, err := io.ReadAll(bufio.NewReader(c))
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.ErrClosedPipe) {
		t.Log(err)
	}
	after = time.Since(began)
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	return string(text), after
}

// Clients that send slowly, or too much, do not hold the store.
func TestStoreBoundsClients(t *testing.T) {
	const begin = "GET / HTTP/1.1\r\nHost: store.cloud.example\r\n"
	for name, c := range map[string]struct {
		send, answer string
		most         time.Duration
	}{
		"a header that does not end": {begin + "X-Slow: ", "", headerFor},
		"a body that does not come":  {strings.Replace(begin, "GET", "POST", 1) + "Content-Length: 10\r\n\r\n", "", headerFor},
		"silence":                    {"", "", headerFor},
		"a silent pause":             {begin + "\r\n", "HTTP/1.1 200 OK", idleFor},
		"a huge header":              {begin + fmt.Sprintf("X-Huge: %s\r\n\r\n", strings.Repeat("a", 64<<10)), "HTTP/1.1 431", headerFor},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answer, after := visitStore(t, c.send)
				if !strings.HasPrefix(answer, c.answer) || c.answer == "" && answer != "" || after > c.most+time.Second {
					t.Errorf("%.40q after %v", answer, after)
				}
			})
		})
	}
}
