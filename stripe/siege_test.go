package stripe

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"heddle/identity"
	"heddle/internal/crowdtest"
	"heddle/path"
)

// Strangers do not keep a user out, however many connections they hold.
func TestUserGetsPastStrangers(t *testing.T) { siege(t) }

// BenchmarkSiege counts the attempts within a second; docs/results.md has the figures.
func BenchmarkSiege(b *testing.B) {
	for range b.N {
		siege(b)
	}
}

func siege(t testing.TB) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	device, err := identity.New()
	if err != nil {
		t.Fatal(err)
	}
	sl := NewListener(l, ListenOptions{Identity: device, Accept: func(identity.Key) error { return nil }})
	defer sl.Close()
	crowdtest.Siege(t, l.Addr(), net.Dialer{}, func(from netip.Addr) error {
		way, err := path.New(path.Spec{Name: "way", Kind: "src", Arg: from.String()}, path.Options{})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		client, err := Dial(ctx, Options{To: path.At(l.Addr().(*net.TCPAddr).AddrPort()), Identity: device, Peer: device.Key(), Paths: []Path{{"way", way}}})
		if err != nil {
			return err
		}
		server, err := sl.Accept()
		if err != nil {
			return err
		}
		server.Abort("the user got in")
		client.Abort("the user got in")
		return nil
	})
}
