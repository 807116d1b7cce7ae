package mutual

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"heddle/internal/tlsbatch"
)

// slowly sends one byte each second, after so many at once.
type slowly struct {
	net.Conn
	atOnce int
}

func (s *slowly) Write(b []byte) (n int, err error) {
	for n < len(b) {
		if s.atOnce--; s.atOnce < 0 {
			time.Sleep(time.Second)
		}
		if _, err := s.Conn.Write(b[n : n+1]); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// A client whose handshake takes too long is dropped: one that says nothing, one that says its hello slowly, and one that goes on slowly after it.
func TestSlowHandshake(t *testing.T) {
	for name, atOnce := range map[string]int{"silent": -1, "slow": 0, "slow after its hello": 2000} {
		synctest.Test(t, func(t *testing.T) {
			c := newCloud(t)
			alice := c.register(t, time.Hour)
			s, err := NewServer(zone, c, 10)
			if err != nil {
				t.Fatal(err)
			}
			near, far := net.Pipe()
			defer near.Close()
			client := make(chan error, 1)
			go func() {
				if atOnce < 0 {
					_, err := io.ReadAll(near)
					client <- err
					return
				}
				client <- tls.Client(&slowly{near, atOnce}, alice.config).Handshake()
			}()
			begin := time.Now()
			h := &held{Out: tlsbatch.Out{Conn: far}, from: s, ended: func() {}}
			conn := tls.Server(h, s.Config())
			if _, err := s.admit(t.Context(), conn, h); err == nil || time.Since(begin) != handshakeFor {
				t.Errorf("%s: %v after %v", name, err, time.Since(begin))
			}
			conn.Close()
			<-client
		})
	}
}
