package node

import (
	"net"
	"net/netip"
	"testing"

	"heddle/internal/crowdtest"
	"heddle/internal/tcptest"
	"heddle/overlay/client"
	"heddle/path"
)

// Strangers do not keep a holder out, however many connections they hold.
func TestHolderGetsPastStrangers(t *testing.T) { siege(t) }

// BenchmarkSiege counts the attempts within a second; docs/results.md has the figures.
func BenchmarkSiege(b *testing.B) {
	for range b.N {
		siege(b)
	}
}

func siege(t testing.TB) {
	t.Helper()
	s := start(t, patiently)
	grant, to := s.grant(t, nil), path.At(tcptest.Serve(t, tcptest.Echo))
	crowdtest.Siege(t, s.listener.Addr(), net.Dialer{}, func(from netip.Addr) error {
		way, err := path.New(path.Spec{Name: "way", Kind: "src", Arg: from.String()}, path.Options{})
		if err != nil {
			return err
		}
		node, err := client.Through(s.pass(grant), s.holder, way)
		if err != nil {
			return err
		}
		c, err := path.Dial(t.Context(), node, to)
		if err != nil {
			return err
		}
		return c.Close()
	})
}
