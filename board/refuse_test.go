package board

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/board/space"
	"heddle/identity"
	"heddle/internal/connlimit"
	"heddle/internal/errhint"
	"heddle/internal/polltest"
)

func TestOthersTuplesStay(t *testing.T) {
	ctx := t.Context()
	board := serve(t, fresh(t), LocalOptions{})
	ann, bob := client(t, board.Reference, fresh(t)), client(t, board.Reference, fresh(t))
	id, err := ann.Out(ctx, space.Tuple{space.String("x")}, Put{Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	_, inp := bob.Inp(ctx, space.Template{space.String("x")})
	for what, err := range map[string]error{"remove": bob.Remove(ctx, id), "renew": bob.Renew(ctx, id, time.Hour), "inp": inp} {
		refused, ok := errors.AsType[*Refusal](err)
		if !ok || refused.Result.Status != space.Denied || errhint.Of(err) == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if e, err := bob.Rdp(ctx, nil); err != nil || e.ID() != id {
		t.Errorf("is it there? %v", err)
	}
	if err := ann.Remove(ctx, id); err != nil {
		t.Error(err)
	}
	if err := ann.Remove(ctx, id); !errors.Is(err, ErrNone) {
		t.Errorf("removed again: %v", err)
	}
}

// A device that signs well, and sends what it should not.
func TestBadRequests(t *testing.T) {
	who, other := fresh(t), fresh(t)
	board := serve(t, fresh(t), LocalOptions{})
	c := client(t, board.Reference, who)
	sign := func(by identity.Identity, s space.ID, size int, at time.Time) []byte {
		op := space.Op{Verb: space.Out, Space: s, Lease: time.Hour, Tuple: space.Tuple{space.Bytes(make([]byte, size))}}
		signed, err := op.Sign(by, at)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Clone(signed.Bytes())
	}
	good := sign(who, board.Space, 10, time.Now())
	unsigned := bytes.Clone(good)
	clear(unsigned[len(unsigned)-64:])
	for _, d := range []struct {
		name string
		body []byte
		want space.Status
	}{
		{"unsigned", unsigned, space.Unsigned},
		{"another's operation, brought by this device", sign(other, board.Space, 10, time.Now()), space.Unsigned},
		{"for another board", sign(who, space.ID{1}, 10, time.Now()), space.Malformed},
		{"too large a tuple", sign(who, board.Space, 70_000, time.Now()), space.TooLarge},
		{"of an hour ago", sign(who, board.Space, 10, time.Now().Add(-time.Hour)), space.Clock},
		{"of the next hour", sign(who, board.Space, 10, time.Now().Add(time.Hour)), space.Clock},
		{"cut", good[:40], space.Malformed},
		{"nothing", nil, space.Malformed},
		{"rubbish", []byte(strings.Repeat("rubbish", 100)), space.Malformed},
	} {
		raw, err := c.remotes[0].result(t.Context(), applyPath, 0, d.body)
		if err != nil {
			t.Errorf("%s: %v", d.name, err)
			continue
		}
		if r, err := space.DecodeResult(raw); err != nil || r.Status != d.want || r.Detail == "" {
			t.Errorf("%s: %v %q, %v", d.name, r.Status, r.Detail, err)
		}
	}
	if _, err := c.remotes[0].result(t.Context(), applyPath, 0, make([]byte, space.MaxOp+1)); !Permanent(err) || !strings.Contains(err.Error(), "more than") {
		t.Errorf("more than anybody may send: %v", err)
	}
	if _, err := c.remotes[0].result(t.Context(), readPath, 0, []byte{9}); err != nil {
		t.Errorf("a read of rubbish: %v", err)
	}
	if u, _ := board.Local.Status(t.Context()); u.Tuples != 0 {
		t.Errorf("%d tuples came in", u.Tuples)
	}
	if _, err := c.Out(t.Context(), space.Tuple{space.String("x")}, Put{Lease: time.Hour}); err != nil {
		t.Errorf("and then a good one: %v", err)
	}
}

func TestADeviceWhoseClockIsAnHourOff(t *testing.T) {
	for name, off := range map[string]time.Duration{"late": -time.Hour, "early": time.Hour} {
		board := serve(t, fresh(t), LocalOptions{})
		c, err := NewClient(ClientOptions{Reference: board.Reference, Identity: fresh(t), Clock: func() time.Time { return time.Now().Add(off) }})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := c.Out(t.Context(), space.Tuple{space.String("x")}, Put{Lease: time.Hour}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		all, err := c.List(t.Context(), nil)
		if err != nil || len(all) != 2 {
			t.Errorf("%s: %d tuples, %v", name, len(all), err)
		}
	}
}

func TestWhoIsNotLetIn(t *testing.T) {
	board := serve(t, fresh(t), LocalOptions{Members: []identity.Key{fresh(t).Key()}})
	c := client(t, board.Reference, fresh(t))
	_, err := c.Out(t.Context(), space.Tuple{space.String("x")}, Put{Lease: time.Hour})
	if !Permanent(err) || !strings.Contains(err.Error(), "does not let this device in") || errhint.Of(err) == "" {
		t.Errorf("put: %v", err)
	}
	if s := c.Status(t.Context())[0]; s.Status != nil || s.Error == "" {
		t.Errorf("status: %+v", s)
	}
}

func TestAnotherServerAtTheAddress(t *testing.T) {
	board := serve(t, fresh(t), LocalOptions{})
	r := board.Reference
	r.Replicas = []Replica{{fresh(t).Key(), r.Replicas[0].Address}}
	_, err := client(t, r, fresh(t)).Rdp(t.Context(), nil)
	if wrong, ok := errors.AsType[*identity.KeyError](err); !ok || !Permanent(err) || wrong.Got != board.Replicas[0].Key {
		t.Errorf("%v", err)
	}
}

// Whoever opens connections and says nothing, or rubbish, or another protocol, gets nothing, and holds up nobody.
func TestHostileConnections(t *testing.T) {
	board := serve(t, fresh(t), LocalOptions{})
	address := board.Replicas[0].Address
	for _, text := range []string{"", "GET / HTTP/1.1\r\n\r\n", strings.Repeat("\x16\x03\x01", 1000)} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{Protocol}}); err == nil {
		_, err = c.Write([]byte("GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n"))
		if answer, _ := io.ReadAll(c); err == nil && len(answer) > 0 {
			t.Errorf("without a key one is told %q", answer)
		}
		_ = c.Close()
	}
	who := client(t, board.Reference, fresh(t))
	for path, want := range map[string]int{"/v1/nothing": http.StatusNotFound, "/": http.StatusNotFound, applyPath: http.StatusMethodNotAllowed} {
		answer, err := who.remotes[0].http.Get("https://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %d", path, answer.StatusCode)
		}
	}
	if _, err := who.Out(t.Context(), space.Tuple{space.String("x")}, Put{Lease: time.Hour}); err != nil {
		t.Error(err)
	}
}

func TestOneKeyHasSoManyRequests(t *testing.T) {
	board := serve(t, fresh(t), LocalOptions{})
	greedy, other := client(t, board.Reference, fresh(t)), client(t, board.Reference, fresh(t))
	ctx, cancel := context.WithCancel(t.Context())
	for range maxRequests {
		go func() { _, _ = greedy.Rd(ctx, space.Template{space.String("never")}) }()
	}
	polltest.Await(t, "all wait", func() bool { return board.waits(t) == maxRequests })
	if _, err := greedy.remotes[0].status(ctx); err == nil || !strings.Contains(err.Error(), "at a time") {
		t.Errorf("one more: %v", err)
	}
	if _, err := other.remotes[0].status(ctx); err != nil {
		t.Errorf("another key: %v", err)
	}
	cancel()
}

func TestFilesOfBoards(t *testing.T) {
	dir := t.TempDir()
	id := fresh(t)
	open := func(file string, key identity.Key) error {
		l, err := Open(LocalOptions{File: filepath.Join(dir, file), Key: key, Limits: space.DefaultLimits(), Log: quiet})
		if err == nil {
			err = l.Close()
		}
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "rubbish"), []byte(strings.Repeat("rubbish ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open("rubbish", id.Key()); err == nil || !strings.Contains(err.Error(), "cannot be used") {
		t.Errorf("rubbish: %v", err)
	}
	l, err := Open(LocalOptions{File: filepath.Join(dir, "board.db"), Key: id.Key(), Limits: space.DefaultLimits(), Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if err := open("board.db", id.Key()); err == nil || errhint.Of(err) == "" {
		t.Errorf("open twice: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	op, err := space.Op{Verb: space.Out, Space: SpaceOf(id.Key()), Lease: time.Hour, Tuple: space.Tuple{space.Int(1)}}.Sign(id, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if r, err := l.Apply(ctx, op, 0); err != nil || r.Status != space.OK {
		t.Fatal(r, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := open("board.db", fresh(t).Key()); err == nil || !strings.Contains(err.Error(), "of the board") {
		t.Errorf("with another key: %v", err)
	}
	if err := open("board.db", id.Key()); err != nil {
		t.Errorf("with its own: %v", err)
	}
	if info, err := os.Stat(filepath.Join(dir, "board.db")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// A board whose disk fails shows nobody what is not on it, and stops.
func TestADiskThatFails(t *testing.T) {
	who := fresh(t)
	l, err := Open(LocalOptions{File: filepath.Join(t.TempDir(), "board.db"), Key: who.Key(), Limits: space.DefaultLimits(), Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- l.Run(t.Context()) }()
	waiting := make(chan error, 1)
	go func() {
		_, err := l.Read(t.Context(), who.Key(), space.Query{Limit: 1}, time.Minute)
		waiting <- err
	}()
	polltest.Await(t, "it waits", func() bool {
		s, err := l.Status(t.Context())
		return err == nil && s.Waiting > 0
	})
	if err := l.store.db.Close(); err != nil {
		t.Fatal(err)
	}
	op, err := space.Op{Verb: space.Out, Space: SpaceOf(who.Key()), Lease: time.Hour, Tuple: space.Tuple{space.Int(1)}}.Sign(who, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if r, err := l.Apply(t.Context(), op, 0); err == nil || errhint.Of(err) == "" {
		t.Errorf("put: %v, %v", r.Status, err)
	}
	if err := <-done; err == nil || !strings.Contains(err.Error(), "cannot write to its disk") {
		t.Errorf("the board: %v", err)
	}
	if r, err := l.Read(t.Context(), who.Key(), space.Query{Limit: 1}, 0); err == nil {
		t.Errorf("read: %v, with %d tuples", r.Status, len(r.Entries))
	}
	if err := <-waiting; err == nil {
		t.Error("who waited was told something")
	}
	if _, err := l.Apply(t.Context(), op, 0); err == nil {
		t.Error("and after that it still takes operations")
	}
}

func TestReferences(t *testing.T) {
	key := fresh(t).Key()
	r, err := ParseReference(fmt.Sprintf("%v@board.example:7300", key))
	if err != nil || r.Space != SpaceOf(key) || r.Replicas[0].Address != "board.example:7300" {
		t.Errorf("%+v, %v", r, err)
	}
	file := filepath.Join(t.TempDir(), "new", "board.json")
	if err := r.Save(file); err != nil {
		t.Fatal(err)
	}
	if again, err := LoadReference(file); err != nil || fmt.Sprint(again) != fmt.Sprint(r) {
		t.Errorf("%+v, %v", again, err)
	}
	for _, bad := range []string{"", "x", "ed25519:x@y:1", key.String(), key.String() + "@", key.String() + "@host", "/nowhere/board.json"} {
		if _, err := LoadReference(bad); err == nil || errhint.Of(err) == "" {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for name, change := range map[string]func(*Reference){
		"too few":  func(r *Reference) { r.Faults = 1 },
		"negative": func(r *Reference) { r.Faults = -1 },
		"twice":    func(r *Reference) { r.Replicas = append(r.Replicas, r.Replicas[0]) },
		"none":     func(r *Reference) { r.Replicas = nil },
		"no name":  func(r *Reference) { r.Space = space.ID{} },
	} {
		bad := r
		change(&bad)
		if _, err := NewClient(ClientOptions{Reference: bad, Identity: fresh(t)}); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// Strangers at an address do not keep out a member at that address, whose connection stays although they come and go.
func TestMemberAmongStrangersAtOneAddress(t *testing.T) {
	board := serve(t, fresh(t), LocalOptions{})
	open := func() net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
		c, err := d.DialContext(t.Context(), "tcp", board.Replicas[0].Address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	first := open()
	for range connlimit.Strangers.Source {
		open()
	}
	_ = first.SetReadDeadline(time.Now().Add(polltest.Patience))
	if _, err := first.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest stranger may stay: %v", err)
	}
	dials := 0
	c, err := NewClient(ClientOptions{Reference: board.Reference, Identity: fresh(t),
		Dial: func(context.Context, string, string) (net.Conn, error) { dials++; return open(), nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2 {
		if _, err := c.remotes[0].status(t.Context()); err != nil || dials != 1 {
			t.Errorf("a member from there: %v, connection %d", err, dials)
		}
		for range memberLimits.Source + 1 {
			open()
		}
	}
}
