package board

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/board/space"
	"heddle/identity"
)

func fresh(t testing.TB) identity.Identity {
	t.Helper()
	id, err := identity.New()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// running is a board on loopback.
type running struct {
	Reference
	*Local
}

var anyone = []identity.Key{space.Anyone}

var quiet = slog.New(slog.DiscardHandler)

// serve runs a board until the test ends, or until it is stopped.
func serve(t testing.TB, id identity.Identity, o LocalOptions) *running {
	t.Helper()
	o.Key, o.Log = id.Key(), quiet
	if o.File == "" {
		o.File = filepath.Join(t.TempDir(), "board.db")
	}
	if o.Limits == (space.Limits{}) {
		o.Limits = space.DefaultLimits()
	}
	local, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return &running{served(t, id, local, local.Member, local.Run), local}
}

// served offers a backend on loopback while the test runs.
func served(t testing.TB, id identity.Identity, b Backend, member func(identity.Key) bool, run func(context.Context) error) Reference {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- run(ctx) }()
	go func() {
		done <- Serve(ctx, ServeOptions{Listener: listener, Identity: id, Backend: b, Member: member, Log: quiet})
	}()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	return Reference{Space: SpaceOf(id.Key()), Replicas: []Replica{{id.Key(), listener.Addr().String()}}}
}

func client(t testing.TB, r Reference, who identity.Identity) *Client {
	t.Helper()
	c, err := NewClient(ClientOptions{Reference: r, Identity: who})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestWhoIsLetInReads(t *testing.T) {
	ctx := t.Context()
	ann, bob := fresh(t), fresh(t)
	r := serve(t, fresh(t), LocalOptions{Members: []identity.Key{ann.Key(), bob.Key()}})
	a := client(t, r.Reference, ann)
	id, err := a.Out(ctx, space.Tuple{space.String("x"), space.Int(1)}, Put{Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	e, err := client(t, r.Reference, bob).Rdp(ctx, nil)
	if err != nil || e.ID() != id {
		t.Fatal(e, err)
	}
	_, err = client(t, r.Reference, fresh(t)).Rdp(ctx, nil)
	if err == nil || !strings.Contains(err.Error(), "let this device in") {
		t.Fatal(err)
	}
}
