package tcprepair

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"heddle/internal/errhint"
	"heddle/internal/nstest"
	"heddle/internal/polltest"
)

func TestMove(t *testing.T) {
	for _, c := range []struct {
		name        string
		v6, foreign bool
		without     string // a setting of the client
	}{
		{name: "IPv4"}, {name: "IPv6", v6: true},
		{name: "foreign IPv4", foreign: true}, {name: "foreign IPv6", v6: true, foreign: true},
		{name: "no SACK", without: "sack"}, {name: "no timestamps", without: "timestamps"}, {name: "no window scale", without: "window_scaling"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.v6, c.foreign)
			if c.without != "" {
				w.client.Do(t, func() error { return nstest.Set("ipv4/tcp_"+c.without, "0") })
			}
			s := w.moveQueued(Options{Foreign: c.foreign})
			if s.SACK != (c.without != "sack") || s.Timestamps != (c.without != "timestamps") || s.Scaling != (c.without != "window_scaling") {
				t.Errorf("without %q the state says SACK %v, timestamps %v, window scale %v", c.without, s.SACK, s.Timestamps, s.Scaling)
			}
		})
	}
}

// moveQueued moves a connection whose queues and network are full of bytes both ways, and finds that all arrive.
func (w *world) moveQueued(o Options) State {
	t := w.t
	t.Helper()
	client, server := w.connect()
	keep := net.KeepAliveConfig{Enable: true, Idle: 77 * time.Second, Interval: 7 * time.Second, Count: 5}
	if err := errors.Join(server.SetKeepAliveConfig(keep), server.SetNoDelay(false), server.SetWriteBuffer(1<<20), client.SetWriteBuffer(1<<20)); err != nil {
		t.Fatal(err)
	}
	up, down := stream(1, 192<<10), stream(2, 192<<10)
	const early = 64 << 10
	send(t, client, up[:early])
	polltest.Until(t, func() error {
		if n, err := unread(server); err != nil || n < early {
			return fmt.Errorf("the server has %d bytes, %w", n, err)
		}
		return nil
	})
	w.lead("") // what is sent now is lost
	send(t, client, up[early:2*early])
	send(t, server, down[:2*early])

	moved, s := w.move(server, second, o)
	before := w.left(first)
	if err := differs("the receive queue", s.Receive, up[:early]); err != nil {
		t.Error(err)
	}
	if err := differs("the send queue", s.Send, down[:2*early]); err != nil {
		t.Error(err)
	}
	if s.Unsent == 0 || s.Unsent == len(s.Send) {
		t.Errorf("%d bytes of %d were not sent: it should be some of them", s.Unsent, len(s.Send))
	}
	send(t, client, up[2*early:])
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := moved.Write(down[2*early:])
		sent <- errors.Join(err, moved.CloseWrite())
	}()
	got, err := io.ReadAll(client)
	if err = errors.Join(err, differs("what the client got", got, down), <-sent); err != nil {
		t.Error(err)
	}
	got, err = io.ReadAll(moved)
	if err = errors.Join(err, differs("what the server got", got, up)); err != nil {
		t.Error(err)
	}
	if n := w.left(first) - before; n > 0 {
		t.Errorf("the old side sent %d packets after the move", n)
	}
	w.quiet()
	return s
}

func send(t testing.TB, c net.Conn, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

// hold begins a move, and returns the state of the connection.
func hold(t testing.TB, c *net.TCPConn) (*Held, State) {
	t.Helper()
	held, err := Hold(c)
	if err != nil {
		t.Fatal(err)
	}
	s, err := held.State()
	if err != nil {
		t.Fatal(err)
	}
	return held, s
}

// All that was agreed on and set is the same at the new side.
func TestOptionsMove(t *testing.T) {
	w := newWorld(t, false, false)
	_, server := w.connect()
	keep := net.KeepAliveConfig{Enable: true, Idle: 77 * time.Second, Interval: 7 * time.Second, Count: 5}
	if err := errors.Join(server.SetKeepAliveConfig(keep), server.SetNoDelay(false), server.SetReadBuffer(30_000)); err != nil {
		t.Fatal(err)
	}
	moved, before := w.move(server, second, Options{})
	_, after := hold(t, moved)
	if !before.Timestamps || int32(after.Timestamp-before.Timestamp) < 0 {
		t.Errorf("the clock of timestamps goes from %d to %d", before.Timestamp, after.Timestamp)
	}
	if want := (KeepAlive{true, 77, 7, 5}); before.KeepAlive != want || before.NoDelay {
		t.Errorf("it had %+v, no delay %v", before.KeepAlive, before.NoDelay)
	}
	after.Timestamp = before.Timestamp
	a, errA := before.MarshalBinary()
	b, errB := after.MarshalBinary()
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Errorf("it was\n%+v, %v; it is\n%+v, %v", before, errA, after, errB)
	}
}

// A connection goes to and fro while bytes pass both ways.
func TestMoveInFlight(t *testing.T) {
	w := newWorld(t, false, false)
	client, server := w.connect()
	all := stream(3, 4<<20)
	var got atomic.Int64
	sent, read := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := client.Write(all)
		sent <- err
	}()
	go func() {
		back := make([]byte, 0, len(all))
		for b := make([]byte, 16<<10); ; {
			n, err := client.Read(b)
			back = append(back, b[:n]...)
			got.Add(int64(n))
			if err != nil {
				if errors.Is(err, io.EOF) {
					err = nil
				}
				read <- errors.Join(err, differs("what came back", back, all))
				return
			}
		}
	}()
	const moves = 8
	e := &echo{conn: server}
	for i := range moves {
		e.begin()
		polltest.Await(t, "bytes that came back", func() bool { return got.Load() > int64((i+1)*len(all)/(moves+2)) })
		if ended, err := e.pause(); ended || err != nil {
			t.Fatalf("it ended early: %v", err)
		}
		e.conn, _ = w.move(e.conn, []string{second, first}[i%2], Options{})
	}
	e.begin()
	if err := errors.Join(<-sent, client.CloseWrite(), <-read); err != nil { // a side that has ended cannot move
		t.Error(err)
	}
	if ended, err := e.pause(); !ended || err != nil {
		t.Errorf("it ended: %v, %v", ended, err)
	}
	w.quiet()
}

// echo sends back what arrives, with pauses in which the connection may move.
type echo struct {
	conn    *net.TCPConn
	pending []byte // not sent back yet
	done    chan error
}

func (e *echo) begin() {
	e.done = make(chan error, 1)
	go func() { e.done <- e.run() }()
}

// run ends when a deadline has passed, or with io.EOF after the client has ended.
func (e *echo) run() error {
	for b := make([]byte, 64<<10); ; {
		n, err := e.conn.Write(e.pending)
		if e.pending = e.pending[n:]; err != nil {
			return err
		}
		if n, err = e.conn.Read(b); err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.Join(err, e.conn.CloseWrite())
			}
			return err
		}
		e.pending = slices.Clone(b[:n])
	}
}

// pause stops it, and reports whether the client had ended.
func (e *echo) pause() (ended bool, err error) {
	_ = e.conn.SetDeadline(time.Unix(1, 0))
	err = <-e.done
	switch {
	case errors.Is(err, io.EOF):
		return true, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return false, e.conn.SetDeadline(time.Time{})
	}
	return false, err
}

// An unmodified program sees one response, of which two machines sent a half each.
func TestMoveOfCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("typed skip: no curl")
	}
	w := newWorld(t, false, true)
	l := w.listen()
	defer l.Close()
	var out bytes.Buffer
	cmd := exec.Command(curl, "-sS", "--max-time", "60", "http://"+w.public.String()+"/page")
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	w.client.Do(t, cmd.Start)
	server, err := l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	patient(t, server)
	q := make([]byte, 0, 4096)
	for !bytes.Contains(q, []byte("\r\n\r\n")) {
		n, err := server.Read(q[len(q):cap(q)])
		if q = q[:len(q)+n]; err != nil {
			t.Fatal(err)
		}
	}
	if !strings.HasPrefix(string(q), http.MethodGet+" /page") {
		t.Fatalf("curl asks %q", q)
	}
	page := stream(4, 1<<20)
	send(t, server, fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", len(page)))
	send(t, server, page[:len(page)/2])
	moved, _ := w.move(server, second, Options{Foreign: true})
	send(t, moved, page[len(page)/2:])
	if err := moved.Close(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(cmd.Wait(), differs("what curl got", out.Bytes(), page)); err != nil {
		t.Error(err)
	}
	w.quiet()
}

// The new side ignores what arrives until it is told to begin, and the client repeats it then. A process that may load no program of BPF has
// another filter for that.
func TestSilentUntilResume(t *testing.T) {
	if refusing() == nil {
		t.Error("no program is loaded")
	}
	t.Run("one program", silentUntilResume)
	load := refusing
	defer func() { refusing = load }()
	refusing = func() *ebpf.Program { return nil }
	t.Run("a filter of its own", silentUntilResume)
}

func silentUntilResume(t *testing.T) {
	w := newWorld(t, false, false)
	client, server := w.connect()
	held, s := hold(t, server)
	twin, err := w.restore(w.second, s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	w.lead(second)
	send(t, client, []byte("hello"))
	polltest.Await(t, "it arrives", func() bool { return w.came[second].Load() > 0 })
	arrived(t)
	if n := w.left(second); n > 0 {
		t.Errorf("the new side sent %d packets before it was told to", n)
	}
	moved, err := twin.Resume()
	if err = errors.Join(err, held.Close()); err != nil {
		t.Fatal(err)
	}
	defer moved.Close()
	patient(t, moved)
	b := make([]byte, 5)
	if _, err := io.ReadFull(moved, b); err != nil || string(b) != "hello" {
		t.Errorf("the new side got %q, %v", b, err)
	}
	w.quiet()
}

// A move that does not happen leaves the connection as it was.
func TestResumeAtTheOldSide(t *testing.T) {
	w := newWorld(t, false, true)
	client, server := w.connect()
	send(t, client, []byte("before"))
	held, s := hold(t, server)
	send(t, client, []byte(" while"))
	if _, err := w.restore(w.second, s, Options{}); !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Errorf("the address of another machine: %v", err)
	}
	if _, err := w.restore(w.first, s, Options{}); err == nil {
		t.Error("one machine has the same connection twice")
	}
	if _, err := held.Resume(); err != nil {
		t.Fatal(err)
	}
	send(t, client, []byte(" after"))
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(server); err != nil || string(got) != "before while after" {
		t.Errorf("the server got %q, %v", got, err)
	}
	w.quiet()
}

func TestConnectionThatEnds(t *testing.T) {
	w := newWorld(t, false, false)
	client, server := w.connect()
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, func() (err error) {
		w.first.Do(t, func() error {
			state, errState := nstest.TCPState(w.public.Port())
			if errState == nil && state != unix.BPF_TCP_CLOSE_WAIT {
				err = fmt.Errorf("the state is %d", state)
			}
			return errState
		})
		return err
	})
	if _, err := Hold(server); !errors.Is(err, ErrNotEstablished) {
		t.Errorf("a connection that the client ended: %v", err)
	}
	send(t, server, []byte("bye"))
	server.Close()
	if got, err := io.ReadAll(client); err != nil || string(got) != "bye" {
		t.Errorf("the client got %q, %v", got, err)
	}
}

func TestNoRight(t *testing.T) {
	w := newWorld(t, false, false)
	client, server := w.connect()
	s := example()
	if err := Allowed(); err != nil {
		t.Fatal(err)
	}
	failed := make(chan [3]error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		header, none := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
		if err := unix.Capset(&header, &none[0]); err != nil {
			failed <- [3]error{err, err, err}
			return
		}
		_, hold := Hold(server)
		_, restore := Restore(s, Options{})
		failed <- [3]error{hold, restore, Allowed()}
	}()
	for _, err := range <-failed {
		if !errors.Is(err, unix.EPERM) || !strings.Contains(errhint.Of(err), "CAP_NET_ADMIN") {
			t.Errorf("without a right: %v; %s", err, errhint.Of(err))
		}
	}
	send(t, client, []byte("on"))
	b := make([]byte, 2)
	if _, err := io.ReadFull(server, b); err != nil || string(b) != "on" {
		t.Errorf("it goes on with %q, %v", b, err)
	}
}
