package handshake

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// ngtcp2 starts the server of ngtcp2's package. Without the package it skips the test.
func ngtcp2(t *testing.T, in *lab.Instance) *peer.QUIC {
	t.Helper()
	q, err := peer.QUICServer(t.Context(), in.Host("server"), "ngtcp2", peer.QUICConfig{Addr: server, Names: []string{serverName}, Work: t.TempDir()})
	if errors.Is(err, peer.ErrMissing) {
		t.Skip("typed skip:", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Stop)
	return q
}

// splitWays starts `heddle split` over all networks of threeways, each so far away. Nothing may leave by the bystander.
func splitWays(t *testing.T, in *lab.Instance, delay time.Duration, every string) {
	t.Helper()
	args := []string{"split", "--listen", relay.String(), "--to", server.String(), "--schedule", "round-robin", "--every", every}
	for _, way := range lab.Ways {
		if err := in.Link(way).Reshape(func(s *lab.Shape) { s.Delay = delay }); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--via", way+"=if:"+way)
	}
	t.Cleanup(labtest.Unchosen(t, in, "client/"+labtest.Bystander))
	p, err := peer.Start(t.Context(), in.Host("client"), labtest.Heddle, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	if err := p.AwaitLog(t.Context(), "listening on"); err != nil {
		t.Fatal(err)
	}
}

// ngtcp2 0.12.1 ends if a client comes back to an address while it validates another one: docs/quic.md. Units of half a round
// trip cause that in nearly every session. A session must end, or its status must say why it does not. Seldom the server violates
// the protocol before it ends: it retires a connection ID in a packet that it sends to that ID (RFC 9000, section 19.16).
func TestStatusNamesAServerThatEnds(t *testing.T) {
	t.Parallel()
	in := labtest.Up(t, labtest.WithBystander(lab.ThreeWays()))
	q := ngtcp2(t, in)
	splitWays(t, in, 10*time.Millisecond, "10ms")
	for n := range 8 {
		done := make(chan error, 1)
		go func() { done <- shortSession(t, in.Host("client"), q.Certificate) }()
		select {
		case err := <-done:
			var violation *quic.TransportError
			if errors.As(err, &violation) && !violation.Remote && strings.HasPrefix(violation.ErrorMessage, "retired connection ID") {
				t.Logf("session %d: the server is at fault: %v", n, err)
			} else if err != nil {
				t.Errorf("session %d: %v", n, err)
			}
		case <-q.Done():
			polltest.Await(t, "status says that the server does not answer", func() bool {
				out, _ := in.Host("client").Command(t.Context(), labtest.Heddle, "status", "--json").Output()
				return strings.Contains(string(out), "the server does not answer") && strings.Contains(string(out), "--every 500ms")
			})
			return
		}
	}
}

// At a round trip of 120 ms, units of 100 ms end the server. Those of "auto" leave it the time.
func TestAutoLeavesAServerTimeToFollow(t *testing.T) {
	t.Parallel()
	in := labtest.Up(t, labtest.WithBystander(lab.ThreeWays()))
	q := ngtcp2(t, in)
	splitWays(t, in, 60*time.Millisecond, "auto")
	for n := range 5 {
		if err := shortSession(t, in.Host("client"), q.Certificate); err != nil {
			t.Fatalf("session %d: %v\n%s", n, err, q.Log())
		}
	}
}
