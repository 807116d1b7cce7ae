package node

import (
	"context"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"testing"

	"heddle/internal/connlimit"
	"heddle/internal/tcptest"
	"heddle/overlay/client"
	"heddle/path"
)

// behind is a listener whose connections have no address, as one behind a disguise, and the path that leads to it.
type behind struct{ net.Listener }

func newBehind(t *testing.T) behind {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "node"))
	if err != nil {
		t.Fatal(err)
	}
	return behind{l}
}

func (b behind) Describe() path.Info { return path.Info{Name: "bridge", Kind: "unix", Ready: true} }

// Dial reaches the listener, whatever the address.
func (b behind) Dial(ctx context.Context, _ path.Target) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", b.Addr().String())
}

// A node serves what arrives at any listener. Strangers there do not lock out others, though none has an address.
func TestNodeBehindAnyListener(t *testing.T) {
	behind := newBehind(t)
	s := startAt(t, behind, nil, nil)
	pass := client.Pass{Name: "n", Key: s.Key(), Addresses: []string{"192.0.2.1:7443"}}
	for range 2 * connlimit.Strangers.Source { // more strangers than one address may bring
		if c, err := behind.Dial(t.Context(), path.Target{}); err != nil {
			t.Fatal(err)
		} else {
			defer c.Close()
		}
	}
	stranger, err := client.Through(pass, s.holder, behind)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 * connlimit.FailuresAtOnce { // more failures than one address may have
		if c, err := stranger.Dial(t.Context(), path.At(netip.MustParseAddrPort("127.0.0.1:9"))); err == nil {
			c.Close()
			t.Fatal("a stranger is let in")
		}
	}
	pass.Grant = s.grant(t, nil)
	way, err := client.Through(pass, s.holder, behind)
	if err != nil {
		t.Fatal(err)
	}
	c, err := way.Dial(t.Context(), path.At(tcptest.Serve(t, tcptest.Echo)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("through")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 7)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "through" {
		t.Errorf("%q, %v", got, err)
	}
	if at := s.Status().Listen; at != behind.Addr().String() {
		t.Errorf("it listens at %q", at)
	}
	if _, err := path.Open(t.Context(), way, netip.MustParseAddrPort("127.0.0.1:9")); err == nil {
		t.Error("UDP goes by a listener of streams")
	}
}
