package tlsbatch

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"

	"heddle/identity"
	"heddle/internal/cputest"
)

// pair gives two ends of TLS over loopback, made by begin.
func pair[C net.Conn](t testing.TB, client, server func(net.Conn, *tls.Config) C) (C, C) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	here, there := fresh(t), fresh(t)
	clientConfig, err := here.Client(there.Key(), "test")
	if err != nil {
		t.Fatal(err)
	}
	serverConfig, err := there.Server(func(identity.Key) error { return nil }, "test")
	if err != nil {
		t.Fatal(err)
	}
	clientConfig.DynamicRecordSizingDisabled, serverConfig.DynamicRecordSizingDisabled = true, true
	c, s := client(a, clientConfig), server(b, serverConfig)
	t.Cleanup(func() { a.Close(); b.Close() })
	type handshaker interface{ Handshake() error }
	done := make(chan error)
	go func() { done <- any(c).(handshaker).Handshake() }()
	if err := errors.Join(any(s).(handshaker).Handshake(), <-done); err != nil {
		t.Fatal(err)
	}
	return c, s
}

// crumbs is a connection that gives and takes few bytes at a time.
type crumbs struct {
	net.Conn
	random *rand.Rand
}

func (c crumbs) Read(p []byte) (int, error) {
	return c.Conn.Read(p[:min(len(p), 1+c.random.IntN(40000))])
}

func TestConnIsWhole(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	a, b := pair(t, Client, func(c net.Conn, config *tls.Config) *Conn {
		return Server(crumbs{c, rand.New(rand.NewPCG(seed, 1))}, config)
	})
	want := make([]byte, 3<<20)
	for i := range want {
		want[i] = byte(random.Uint32())
	}
	go func() {
		for rest := want; len(rest) > 0; {
			n := min(len(rest), 1+random.IntN(300_000))
			if _, err := a.Write(rest[:n]); err != nil {
				t.Error(err)
			}
			rest = rest[n:]
		}
		a.CloseWrite()
	}()
	var got bytes.Buffer
	buffer := make([]byte, 200_000)
	for {
		n, err := b.Read(buffer[:1+rand.New(rand.NewPCG(seed, uint64(got.Len()))).IntN(len(buffer))])
		got.Write(buffer[:n])
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("seed %d: %d bytes of %d, or others", seed, got.Len(), len(want))
	}
}

// One read gives many records, where they are there.
func TestReadGivesManyRecords(t *testing.T) {
	a, b := pair(t, Client, Server)
	go a.Write(make([]byte, 128<<10))
	buffer := make([]byte, 128<<10)
	most, all := 0, 0
	for all < len(buffer) {
		n, err := b.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		most, all = max(most, n), all+n
	}
	if most <= recordPlain {
		t.Errorf("no read gave more than %d bytes", most)
	}
}

// An end is told from a connection that was cut, wherever it was.
func TestCutIsNoEnd(t *testing.T) {
	for _, bytes := range []int{0, 1, 100_000} {
		for _, cut := range []bool{false, true} {
			a, b := pair(t, Client, Server)
			go func() {
				a.Write(make([]byte, bytes))
				if cut {
					a.NetConn().Close()
				} else {
					a.Close()
				}
			}()
			got, err := io.ReadAll(b)
			if cut != errors.Is(err, io.ErrUnexpectedEOF) || !cut && err != nil || len(got) != bytes {
				t.Errorf("%d bytes, cut %v: %d, %v", bytes, cut, len(got), err)
			}
		}
	}
}

// What comes is nothing that TLS would take, and is refused without harm.
func FuzzWire(f *testing.F) {
	f.Add([]byte{22, 3, 1, 0, 2, 1, 1, 23, 3, 3, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		w := &wire{Out: Out{Conn: readOnly{from: bytes.NewReader(data)}}}
		var got []byte
		for p := make([]byte, 7); ; {
			w.ready()
			n, err := w.Read(p)
			got = append(got, p[:n]...)
			if err != nil {
				break
			}
		}
		if !bytes.Equal(got, data) || !w.cut.Load() {
			t.Errorf("%d bytes of %d, cut %v", len(got), len(data), w.cut.Load())
		}
	})
}

// readOnly is a connection that only brings something.
type readOnly struct {
	net.Conn
	from io.Reader
}

func (r readOnly) Read(p []byte) (int, error) { return r.from.Read(p) }

func benchmark[C net.Conn](b *testing.B, client, server func(net.Conn, *tls.Config) C) {
	from, to := pair(b, client, server)
	const chunk = 128 << 10
	b.SetBytes(chunk)
	done := make(chan error)
	used := cputest.Report(b, "op")
	go func() {
		buffer := make([]byte, chunk)
		for left := chunk * b.N; left > 0; {
			n, err := to.Read(buffer)
			if err != nil {
				done <- err
				return
			}
			left -= n
		}
		done <- nil
	}()
	buffer := make([]byte, chunk)
	for range b.N { // what the other end waits for
		if _, err := from.Write(buffer); err != nil {
			b.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	used(b.N)
}

func BenchmarkRecords(b *testing.B) { benchmark(b, Client, Server) }
func BenchmarkTLS(b *testing.B)     { benchmark(b, tls.Client, tls.Server) }

func fresh(t testing.TB) identity.Identity {
	t.Helper()
	id, err := identity.New()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// calls counts what is written to a connection.
type calls struct {
	net.Conn
	n *int
}

func (c calls) Write(p []byte) (int, error) {
	*c.n++
	return c.Conn.Write(p)
}

// Several writes leave together, and more than one buffer holds leaves by as many calls as it takes.
func TestTogether(t *testing.T) {
	n := 0
	a, b := pair(t, func(c net.Conn, config *tls.Config) *Conn { return Client(calls{c, &n}, config) }, Server)
	for _, c := range []struct{ writes, size, calls int }{{8, recordPlain, 1}, {100, 10, 1}, {25, recordPlain, 3}, {0, 0, 0}} {
		read := make(chan error, 1)
		go func() {
			_, err := io.ReadFull(b, make([]byte, c.writes*c.size))
			read <- err
		}()
		n = 0
		err := a.WriteBatch(func(to io.Writer) error {
			for range c.writes {
				if _, err := to.Write(make([]byte, c.size)); err != nil {
					return err
				}
			}
			return nil
		})
		if err = errors.Join(err, <-read); err != nil || n != c.calls {
			t.Errorf("%d writes of %d bytes: %d system calls, and there should be %d; %v", c.writes, c.size, n, c.calls, err)
		}
	}
	refused := errors.New("no")
	if err := a.WriteBatch(func(io.Writer) error { return refused }); err != refused {
		t.Errorf("%v", err)
	}
}
