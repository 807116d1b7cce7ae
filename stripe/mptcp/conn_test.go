package mptcp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"heddle/identity"
	"heddle/internal/netutil"
	"heddle/internal/nstest"
	"heddle/internal/polltest"
	"heddle/path"
	"heddle/stripe"
)

func fresh(t testing.TB) identity.Identity {
	t.Helper()
	id, err := identity.New()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// listen starts a listener in the server.
func (w *world) listen(o stripe.ListenOptions) (l *Listener) {
	w.t.Helper()
	w.server.Do(w.t, func() error {
		var config net.ListenConfig
		config.SetMultipathTCP(true)
		plain, err := config.Listen(w.t.Context(), "tcp", ":7000")
		if err != nil {
			return err
		}
		o.Log = slog.New(slog.NewTextHandler(newTestLog(w.t), nil))
		l, err = NewListener(plain, o)
		return err
	})
	w.t.Cleanup(func() { l.Close() })
	return l
}

// testLog shows what was logged with a test that fails.
type testLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func newTestLog(t *testing.T) *testLog {
	l := &testLog{}
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if t.Failed() {
			t.Log(l.text.String())
		}
	})
	return l
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// dial connects from the client, with a subflow to each of the server's addresses.
func (w *world) dial(o Options) (c *Conn, err error) {
	w.t.Helper()
	if o.Subflows == nil {
		o.Subflows = []Subflow{{Name: "a", To: serverAddr(1)}, {Name: "b", To: serverAddr(2)}}
	}
	for i, n := range []byte{1, 2} { // a subflow leaves from the address of its link
		if i < len(o.Subflows) && !o.Subflows[i].From.IsValid() {
			o.Subflows[i].From = serverAddr(int(n)).Addr().Next()
		}
	}
	o.SetPathManager, o.RunDir = true, w.runDir
	w.client.Do(w.t, func() error { c, err = Dial(w.t.Context(), o); return nil })
	return c, err
}

// pair is a connection that is up, seen from both sides. Where Patience is short, it may get as long as this machine needs to
// get there.
func (w *world) pair(o Options) (client, server *Conn) {
	w.t.Helper()
	for {
		client, server, err := w.tryPair(o)
		if err == nil {
			return client, server
		}
		if o.Patience == 0 || o.Patience > 20*time.Second {
			w.t.Fatal(err)
		}
		o.Patience *= 2
	}
}

func (w *world) tryPair(o Options) (client, server *Conn, err error) {
	w.t.Helper()
	id := fresh(w.t)
	l := w.listen(stripe.ListenOptions{Identity: id, Accept: func(identity.Key) error { return nil }, Patience: o.Patience})
	accepted := make(chan *Conn, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			accepted <- c
		}
	}()
	o.Identity, o.Peer = fresh(w.t), id.Key()
	if client, err = w.dial(o); err != nil {
		l.Close()
		return nil, nil, err
	}
	w.t.Cleanup(func() { netutil.Reset(client.tcp) })
	select {
	case server = <-accepted:
	case <-time.After(40 * time.Second):
		l.Close()
		return nil, nil, errors.New("the server does not let the connection in")
	}
	w.t.Cleanup(func() { netutil.Reset(server.tcp) })
	if server.Peer() != o.Identity.Key() || client.Peer() != id.Key() || server.Service() != o.Service {
		w.t.Errorf("the server sees %v, %q", server.Peer(), server.Service())
	}
	return client, server, nil
}

func TestStreamTakesBothSubflows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.pathManager()
	client, server := w.pair(Options{Service: "files"})
	if after := w.pathManager(); after != before {
		t.Errorf("net.mptcp.pm_type was %q and is %q", before, after)
	}
	const block, part = 32 << 20, 256 << 10
	sum, served := make(chan [32]byte, 1), make(chan struct{})
	go func() {
		defer close(served)
		h := sha256.New()
		_, err := io.Copy(h, server)
		if err != nil {
			t.Error(err)
		}
		sum <- [32]byte(h.Sum(nil))
		if _, err := server.Write([]byte("thanks")); err != nil {
			t.Error(err)
		}
		if err := server.Close(); err != nil {
			t.Errorf("the server's end: %v", err)
		}
	}()
	h, size := sha256.New(), uint64(0)
	random := io.TeeReader(rand.NewChaCha8([32]byte{}), h)
	var s stripe.Status
	// How much each gets is the kernel's choice: without limits, mostly the first one's.
	for size == 0 || size < 16*block && slices.ContainsFunc(s.Paths, func(p stripe.PathStatus) bool { return p.Up.Bytes < part }) {
		if n, err := io.CopyN(client, random, block); n != block || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		if err := client.drain(); err != nil {
			t.Fatal(err)
		}
		s = client.Status()
		size += block
	}
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(client); string(answer) != "thanks" || err != nil {
		t.Errorf("%q, %v", answer, err)
	}
	if got := <-sum; got != [32]byte(h.Sum(nil)) {
		t.Error("the stream was changed")
	}
	var total uint64
	for _, p := range s.Paths {
		if p.Joins != 1 || p.Up.Bytes < part {
			t.Errorf("path %s: %+v", p.Name, p)
		}
		total += p.Up.Bytes
	}
	if total < size || len(s.Paths) != 2 || s.MinPaths != 2 {
		t.Errorf("%+v", s)
	}
	if err := client.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if s := client.Status(); s.State != "closed" || s.Why != "" {
		t.Errorf("after the end: %+v", s)
	}
	<-served
	if _, err := client.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("written after the end: %v", err)
	}
}

// Without all subflows nothing is written, and the error names the one that is missing.
func TestNothingBelowTheRequiredSubflows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := fresh(t)
	accepted := make(chan *Conn, 1)
	l := w.listen(stripe.ListenOptions{Identity: id, Accept: func(identity.Key) error { return nil }})
	go func() {
		if c, err := l.Accept(); err == nil {
			accepted <- c
		}
	}()
	w.cut(2, false)
	o := Options{Identity: fresh(t), Peer: id.Key()}
	var err error
	polltest.Again(t, func(try int) error { // a busy machine is late with the first path, too
		o.Patience = 1500 * time.Millisecond << try
		if _, err = w.dial(o); err != nil && (strings.Contains(err.Error(), "no connection to") || strings.Contains(err.Error(), "does not prove its key")) {
			return err
		}
		return nil
	})
	if known, ok := errors.AsType[*path.Error](err); !ok || !strings.Contains(known.Why, "1 of 2 paths are up") || !strings.Contains(known.Why, "b (10.9.2.1:7000)") || known.Hint == "" {
		t.Fatalf("%v", err)
	}
	select {
	case c := <-accepted:
		t.Errorf("the server let it in: %+v", c.Status())
	default:
	}
	o.MinPaths, o.Patience = 1, 0
	c, err := w.dial(o)
	if err != nil {
		t.Fatalf("with one required: %v", err)
	}
	if s := (<-accepted).Status(); s.State != "running" || s.MinPaths != 1 {
		t.Errorf("%+v", s)
	}
	if _, err := c.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	netutil.Reset(c.tcp)
}

// When a required subflow dies, both sides stop writing, and end the connection where it does not come back.
func TestDeadSubflowEndsTheConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client, server := w.pair(Options{Patience: 2 * time.Second})
	go io.Copy(io.Discard, client)
	go io.Copy(io.Discard, server)
	w.cut(2, false)
	chunk := bytes.Repeat([]byte("x"), 16<<10)
	fill := func(c *Conn) error {
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
			if _, err := c.Write(chunk); err != nil {
				return err
			}
		}
		return nil
	}
	other := make(chan error, 1)
	go func() { other <- fill(server) }()
	err := fill(client)
	if err == nil {
		t.Fatal("written for a minute after a required path died")
	}
	// Whichever side gave up first told the other by a reset.
	serverErr := <-other
	named := func(err error) bool {
		known, ok := errors.AsType[*path.Error](err)
		return ok && strings.Contains(known.Why, "of 2 paths are up, and 2 are required")
	}
	if !named(err) && !named(serverErr) {
		t.Errorf("client: %v; server: %v", err, serverErr)
	}
	if s := client.Status(); s.State != "failed" && s.State != "stopped" {
		t.Errorf("%+v", s)
	}
}

func TestDegradeGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client, server := w.pair(Options{Patience: 4 * time.Second, Degrade: true})
	go io.Copy(io.Discard, client)
	w.cut(1, false) // the first one, which carried the handshake
	chunk := bytes.Repeat([]byte("x"), 16<<10)
	done := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(server, make([]byte, 200*len(chunk)))
		done <- err
	}()
	for range 200 {
		if _, err := client.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, func() error {
		s := client.Status()
		if s.State != "running" || s.Paths[0].State == stateUp || s.Paths[1].State != stateUp || !strings.Contains(s.Claim, "whatever is left") {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// A subflow leaves by its device, whatever the routes say.
func TestSubflowLeavesByItsDevice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.client.Do(w.t, func() error {
		return nstest.Route(serverAddr(2).Addr().String()+"/32", "c1", netlink.Route{Scope: netlink.SCOPE_LINK})
	})
	client, server := w.pair(Options{Subflows: []Subflow{{Name: "a", To: serverAddr(1), Device: "c1"}, {Name: "b", To: serverAddr(2), Device: "c2"}}})
	go io.Copy(io.Discard, server)
	var s stripe.Status
	for range 64 { // how much each subflow gets is the kernel's choice
		if _, err := client.Write(make([]byte, 8<<20)); err != nil {
			t.Fatal(err)
		}
		if err := client.drain(); err != nil {
			t.Fatal(err)
		}
		if s = client.Status(); s.Paths[1].Up.Bytes > 0 {
			break
		}
	}
	sent := w.sent("c2")
	if of := s.Paths[1].Up.Bytes; of == 0 || sent < of {
		t.Errorf("c2 sent %d bytes, the subflow %d", sent, of)
	}
	_, err := w.dial(Options{Subflows: []Subflow{{Name: "a", To: serverAddr(1), Device: "c9"}}, Identity: fresh(t), Peer: fresh(t).Key()})
	if err == nil {
		t.Error("a device that is not there was taken")
	}
}

func TestStrangersStayOutside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id, friend := fresh(t), fresh(t)
	w.listen(stripe.ListenOptions{Identity: id,
		Accept: func(k identity.Key) error {
			if k != friend.Key() {
				return errors.New("a stranger")
			}
			return nil
		},
		Service: func(_ identity.Key, service string) error {
			if service != "files" {
				return errors.New("no such service\x1b[2J")
			}
			return nil
		}})
	if _, err := w.dial(Options{Identity: fresh(t), Peer: id.Key(), Service: "files", Patience: 3 * time.Second}); err == nil {
		t.Error("a stranger came in")
	}
	_, err := w.dial(Options{Identity: friend, Peer: id.Key(), Service: "other"})
	if refusal, ok := errors.AsType[*Refusal](err); !ok || refusal.Why != "no such service?[2J" {
		t.Errorf("another service: %v", err)
	}
	_, err = w.dial(Options{Identity: friend, Peer: fresh(t).Key(), Service: "files"})
	if wrong, ok := errors.AsType[*identity.KeyError](err); !ok || wrong.Got != id.Key() {
		t.Errorf("another server: %v", err)
	}
	// Four paths are more than the server's kernel lets a connection have.
	four := []Subflow{{Name: "a", To: serverAddr(1)}, {Name: "b", To: serverAddr(2)}, {Name: "c", To: serverAddr(1), From: serverAddr(2).Addr().Next()}, {Name: "d", To: serverAddr(2), From: serverAddr(1).Addr().Next()}}
	_, err = w.dial(Options{Subflows: four, Identity: friend, Peer: id.Key(), Service: "files"})
	if refusal, ok := errors.AsType[*Refusal](err); !ok || !strings.Contains(refusal.Why, "ip mptcp limits") {
		t.Errorf("four paths: %v", err)
	}
}

func TestPlainTCPIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := fresh(t)
	w.server.Do(w.t, func() error {
		var config net.ListenConfig
		config.SetMultipathTCP(false)
		l, err := config.Listen(t.Context(), "tcp", ":7000")
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		return nil
	})
	_, err := w.dial(Options{Identity: fresh(t), Peer: id.Key()})
	if known, ok := errors.AsType[*path.Error](err); !ok || !strings.Contains(known.Why, "plain TCP") {
		t.Errorf("%v", err)
	}
}

func TestSettingIsNotChangedUnasked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.client.Do(w.t, func() error {
		_, err := Dial(context.Background(), Options{Subflows: []Subflow{{Name: "a", To: serverAddr(1)}}, Identity: fresh(t), Peer: fresh(t).Key()})
		if known, ok := errors.AsType[*path.Error](err); !ok || !strings.Contains(known.Hint, "net.mptcp.pm_type=1") {
			t.Errorf("%v", err)
		}
		return nil
	})
}
