package netutil

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// pair gives both ends of a connection over loopback.
func pair(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// narrow has the methods that count, and no others.
type narrow struct{ c *net.TCPConn }

func (n narrow) Read(b []byte) (int, error)  { return n.c.Read(b) }
func (n narrow) Write(b []byte) (int, error) { return n.c.Write(b) }
func (n narrow) CloseWrite() error           { return n.c.CloseWrite() }

type outcome struct {
	toB, toA int64
	err      error
}

func TestPipe(t *testing.T) {
	up, down := bytes.Repeat([]byte("up"), 1<<20), bytes.Repeat([]byte("down"), 1<<18)
	for name, side := range map[string]func(*net.TCPConn) Side{
		"by the kernel":   func(c *net.TCPConn) Side { return Side{c, c} },
		"through buffers": func(c *net.TCPConn) Side { return Side{narrow{c}, narrow{c}} },
	} {
		t.Run(name, func(t *testing.T) {
			client, a := pair(t)
			b, server := pair(t)
			done := make(chan outcome, 1)
			go func() {
				toB, toA, err := Pipe(t.Context(), side(a), side(b), func(why error) { t.Errorf("stopped: %v", why) })
				done <- outcome{toB, toA, err}
			}()
			go func() {
				_, _ = client.Write(up)
				_ = client.CloseWrite()
			}()
			// The client's end arrives while the other direction has not begun.
			if got, err := io.ReadAll(server); err != nil || !bytes.Equal(got, up) {
				t.Errorf("%d bytes up: %v", len(got), err)
			}
			go func() {
				_, _ = server.Write(down)
				_ = server.CloseWrite()
			}()
			if got, err := io.ReadAll(client); err != nil || !bytes.Equal(got, down) {
				t.Errorf("%d bytes down: %v", len(got), err)
			}
			if got := <-done; got != (outcome{int64(len(up)), int64(len(down)), nil}) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// Where one direction breaks the other ends too, and the first error counts.
func TestPipeBreaks(t *testing.T) {
	_, a := pair(t)
	b, _ := pair(t)
	broken := errors.New("broken")
	stops := 0
	_, _, err := Pipe(t.Context(), Side{io.MultiReader(strings.NewReader("some"), failing{broken}), a}, Side{b, b}, func(why error) {
		if stops++; !errors.Is(why, broken) {
			t.Errorf("stopped by %v", why)
		}
		a.Close()
		b.Close()
	})
	if !errors.Is(err, broken) || stops != 1 {
		t.Errorf("%v, %d stops", err, stops)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestPipeContextEnds(t *testing.T) {
	_, a := pair(t)
	b, _ := pair(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	time.AfterFunc(10*time.Millisecond, func() { cancel(why) })
	_, _, err := Pipe(ctx, Side{a, a}, Side{b, b}, func(error) { a.Close(); b.Close() })
	if !errors.Is(err, why) {
		t.Error(err)
	}
}

// A side that cannot close half ends the whole, which is no error.
func TestPipeWithoutHalfClose(t *testing.T) {
	client, a := pair(t)
	b, server := pair(t)
	if _, err := client.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	toB, _, err := Pipe(t.Context(), Side{a, a}, Side{b, struct{ io.Writer }{b}}, func(why error) {
		if !errors.Is(why, io.EOF) {
			t.Errorf("stopped by %v", why)
		}
		a.Close()
		b.Close()
	})
	if toB != 8 || err != nil {
		t.Errorf("%d bytes, %v", toB, err)
	}
	if got, err := io.ReadAll(server); err != nil || string(got) != "question" {
		t.Errorf("%q, %v", got, err)
	}
}

// What copies by itself is left to do so.
func TestTransferLeavesTheCopying(t *testing.T) {
	var said bytes.Buffer
	if n, err := Pour(&reads{&said}, strings.NewReader("text")); n != 4 || err != nil || said.String() != "by ReadFrom: text" {
		t.Errorf("%d, %v, %q", n, err, &said)
	}
	said.Reset()
	if n, err := Pour(struct{ io.Writer }{&said}, writes{}); n != 4 || err != nil || said.String() != "by WriteTo" {
		t.Errorf("%d, %v, %q", n, err, &said)
	}
}

type reads struct{ *bytes.Buffer }

func (r *reads) ReadFrom(from io.Reader) (int64, error) {
	r.WriteString("by ReadFrom: ")
	return r.Buffer.ReadFrom(from)
}

type writes struct{ io.Reader }

func (writes) WriteTo(w io.Writer) (int64, error) {
	_, err := io.WriteString(w, "by WriteTo")
	return 4, err
}

// Between a socket and what is none, the socket's own copying would use 32 KiB: an idle stream holds less, a busy one has more.
func TestBuffersOfSockets(t *testing.T) {
	near, far := pair(t)
	go io.Copy(io.Discard, far)
	source := &measured{left: 1 << 20}
	if _, err := Pour(near, source); err != nil || source.most != busySize {
		t.Errorf("read with at most %d bytes: %v", source.most, err)
	}
	near, far = pair(t)
	if _, err := near.Write(make([]byte, 64<<10)); err != nil {
		t.Fatal(err)
	}
	_ = near.CloseWrite()
	if _, err := Pour(struct{ io.Writer }{source}, far); err != nil || source.first != idleSize {
		t.Errorf("the first write had %d bytes: %v", source.first, err)
	}
}

// measured notes the largest buffer to read into, and how much is written first.
type measured struct{ left, most, first int }

func (m *measured) Read(b []byte) (int, error) {
	if m.left -= len(b); m.left < 0 {
		return 0, io.EOF
	}
	m.most = max(m.most, len(b))
	return len(b), nil
}

func (m *measured) Write(b []byte) (int, error) {
	if m.first == 0 {
		m.first = len(b)
	}
	return len(b), nil
}
