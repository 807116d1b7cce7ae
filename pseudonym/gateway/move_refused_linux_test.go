package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"heddle/internal/netutil"
	"heddle/internal/polltest"
)

// Without an agent that takes it, a connection stays at the gateway, which relays it.
func TestNoMove(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*moving)
	}{
		{"the agent has ended", func(m *moving) { m.agent.kill() }},
		{"somebody else is there", func(m *moving) {
			m.agent.kill()
			m.stranger(ofNobody, func(c net.Conn) {})
		}},
		{"it dies in the middle", func(m *moving) {
			m.agent.kill()
			m.stranger(ofTenant, func(c net.Conn) { _, _ = io.ReadFull(c, make([]byte, 100)) })
		}},
		{"its kernel refuses", func(m *moving) {
			m.agent.kill()
			file, _ := listenSidecar(m.t)
			m.agent = m.start(m.tenant, role{Listen: m.agentAt(), Sidecar: file, Bare: true})
		}},
		{"its sidecar has ended", func(m *moving) {
			m.agent.kill()
			m.agent = m.start(m.tenant, role{Listen: m.agentAt(), Sidecar: filepath.Join(m.t.TempDir(), "none")})
		}},
		{"its server has ended", func(m *moving) {
			m.agent.kill()
			m.agent = m.start(m.tenant, role{Listen: m.agentAt(), Server: "127.0.0.1:1"})
		}},
		{"it refuses", func(m *moving) {
			m.agent.kill()
			m.stranger(ofTenant, func(c net.Conn) {
				for {
					if _, err := readMove(c); err != nil {
						return
					}
					_, _ = c.Write([]byte{moveRefused})
				}
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMoving(t, places4, true)
			c.spoil(m)
			for range 2 {
				conn, from := m.visit(m.config)
				if from != conn.LocalAddr().String() {
					t.Errorf("the tenant sees %s, and the client is %v", from, conn.LocalAddr())
				}
				m.echo(conn, much)
				conn.Close()
			}
			polltest.Until(t, func() error {
				if got := m.way.counts(t); got.Relayed != 2 || got.Moved != 0 || got.BytesUp < 2*much {
					return fmt.Errorf("it counts %+v", got)
				}
				return nil
			})
		})
	}
}

// stranger is at the agent's address, with a key.
func (m *moving) stranger(key byte, do func(net.Conn)) {
	m.t.Helper()
	var l net.Listener
	m.tenant.Do(m.t, func() (err error) {
		l, err = net.Listen("tcp", m.agentAt())
		return err
	})
	ctx, cancel := context.WithCancel(context.Background())
	m.t.Cleanup(cancel)
	go netutil.Serve(ctx, l, func(c net.Conn) {
		go func() {
			defer c.Close()
			t := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{identity(key)}, ClientAuth: tls.RequireAnyClientCert})
			if t.Handshake() == nil {
				do(t)
			}
		}()
	})
}

// An agent takes nothing from somebody without the gateways' key, nor what is none of its own connections.
func TestAgentRefuses(t *testing.T) {
	m := newMoving(t, places4, false)
	connect := func(key byte) *tls.Conn {
		var raw net.Conn
		m.gateway.Do(t, func() (err error) {
			raw, err = net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(at(m.site, 4444)))
			return err
		})
		t.Cleanup(func() { raw.Close() })
		_ = raw.SetDeadline(time.Now().Add(polltest.Patience))
		return tls.Client(raw, &tls.Config{InsecureSkipVerify: true, VerifyConnection: only(keyOf(ofTenant)), Certificates: []tls.Certificate{identity(key)}})
	}
	c := connect(ofNobody)
	if _, err := c.Read(make([]byte, 1)); err == nil { // TLS 1.3 tells a client afterwards
		t.Error("the agent takes another key")
	}
	for name, frame := range map[string][]byte{"long": {255, 255, 255, 255}, "no state": {0, 0, 0, 1, 1}} {
		c := connect(ofGateways)
		if _, err := c.Write(frame); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
