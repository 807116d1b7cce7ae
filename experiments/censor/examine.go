package censor

import (
	"context"
	"net"
	"net/netip"
	"time"

	"heddle/internal/probe"
)

// hearing is how long the attack probe waits for an answer.
const hearing = 3 * time.Second

// examine sends a server probes of all kinds, from the censor's host. It cuts off a server that answers one.
func (c *Censor) examine(ctx context.Context, server netip.AddrPort, flight []byte) {
	for _, kind := range probe.Kinds {
		c.work.Go(func() {
			var conn net.Conn
			err := c.host.Do(func() (err error) {
				dialer := net.Dialer{Timeout: hearing}
				conn, err = dialer.DialContext(ctx, "tcp", server.String())
				return err
			})
			if err != nil {
				return
			}
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			r := probe.Send(conn.(*net.TCPConn), kind.Bytes(flight), false, hearing)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.judge.probed[server] = c.judge.probed[server] || r.Answer > 0
		})
	}
}
