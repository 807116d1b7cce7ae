package tlsbatch

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// counted is a connection that counts what is written to it, and can fail.
type counted struct {
	net.Conn
	calls atomic.Int64
	gone  atomic.Bool
}

var errGone = errors.New("gone")

func (c *counted) Write(p []byte) (int, error) {
	c.calls.Add(1)
	if c.gone.Load() {
		return 0, errGone
	}
	return c.Conn.Write(p)
}

// newOut returns TLS of Go, what is below it, the connection there, and the peer.
func newOut(t *testing.T) (*tls.Conn, *Out, *counted, net.Conn) {
	t.Helper()
	var under *counted
	var out *Out
	peer, c := pair(t, tls.Client, func(c net.Conn, config *tls.Config) *tls.Conn {
		under = &counted{Conn: c}
		out = &Out{Conn: under}
		return tls.Server(out, config)
	})
	return c, out, under, peer
}

// fill writes so many bytes, and returns once the peer has them.
func fill(t *testing.T, c, peer net.Conn, size int, write func(func() error) error) {
	t.Helper()
	read := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(peer, make([]byte, size))
		read <- err
	}()
	err := write(func() error { _, err := c.Write(make([]byte, size)); return err })
	if err = errors.Join(err, <-read); err != nil {
		t.Error(err)
	}
}

// Together sends all records at its end, by few calls. A write without it makes a call for each record.
func TestOutTogether(t *testing.T) {
	c, out, under, peer := newOut(t)
	alone := func(write func() error) error { return write() }
	for _, one := range []struct {
		name        string
		size, calls int
		write       func(func() error) error
	}{
		{"alone", 8 * recordPlain, 8, alone},
		{"together", 8 * recordPlain, 1, out.Together},
		{"more than the buffer holds", 25 * recordPlain, 3, out.Together},
		{"within another one", 8 * recordPlain, 1, func(write func() error) error {
			return out.Together(func() error { return out.Together(write) })
		}},
		{"after one that broke off", 8 * recordPlain, 1, func(write func() error) error {
			func() {
				defer func() { _ = recover() }()
				_ = out.Together(func() error { panic("broken off") })
			}()
			return out.Together(write)
		}},
		{"alone again", 8 * recordPlain, 8, alone},
	} {
		under.calls.Store(0)
		fill(t, c, peer, one.size, one.write)
		if n := under.calls.Load(); n != int64(one.calls) {
			t.Errorf("%s: %d calls, and there should be %d", one.name, n, one.calls)
		}
	}
}

// Several writers at a time lose nothing, and nothing of them stays behind.
func TestOutOfManyWriters(t *testing.T) {
	c, out, _, peer := newOut(t)
	const writers, each = 4, 40
	fill(t, c, peer, writers*each*recordPlain, func(func() error) error {
		var all sync.WaitGroup
		for range writers {
			all.Go(func() {
				for range each {
					if err := out.Together(func() error { _, err := c.Write(make([]byte, recordPlain)); return err }); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		return nil
	})
}

// A connection that fails says so to who writes together, and to all that write later.
func TestOutFails(t *testing.T) {
	c, out, under, _ := newOut(t)
	under.gone.Store(true)
	write := func() error { _, err := c.Write(make([]byte, recordPlain)); return err }
	if err := out.Together(write); !errors.Is(err, errGone) {
		t.Errorf("%v", err)
	}
	under.gone.Store(false) // a record is missing, so nothing can follow
	if err := write(); !errors.Is(err, errGone) {
		t.Errorf("%v", err)
	}
	refused := errors.New("no")
	if err := out.Together(func() error { return refused }); !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}
}
