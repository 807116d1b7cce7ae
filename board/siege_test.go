package board

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"heddle/internal/crowdtest"
)

// Strangers do not keep a member out, however many connections they hold.
func TestMemberGetsPastStrangers(t *testing.T) { siege(t) }

// BenchmarkSiege counts the attempts within a second; docs/results.md has the figures.
func BenchmarkSiege(b *testing.B) {
	for range b.N {
		siege(b)
	}
}

func siege(t testing.TB) {
	t.Helper()
	board, who := serve(t, fresh(t), LocalOptions{}), fresh(t)
	at := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(board.Replicas[0].Address))
	crowdtest.Siege(t, at, net.Dialer{}, func(from netip.Addr) error {
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
		c, err := NewClient(ClientOptions{Reference: board.Reference, Identity: who, Dial: d.DialContext})
		if err != nil {
			return err
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err = c.remotes[0].status(ctx)
		return err
	})
}
