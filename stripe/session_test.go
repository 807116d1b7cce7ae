package stripe

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const ms = time.Millisecond

// noise is n bytes that depend on the seed.
func noise(seed byte, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// send writes b in pieces, and ends the stream.
func send(c *Conn, b []byte, piece int) error {
	for len(b) > 0 {
		n := min(piece, len(b))
		if _, err := c.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return c.CloseWrite()
}

// both sends in both directions at once, and checks what arrives.
func both(t *testing.T, a, b *Conn, up, down []byte, piece int) {
	t.Helper()
	errs := make(chan error, 4)
	go func() { errs <- send(a, up, piece) }()
	go func() { errs <- send(b, down, piece) }()
	receive := func(c *Conn, want []byte) {
		got, err := io.ReadAll(c)
		if err == nil && !bytes.Equal(got, want) {
			err = fmt.Errorf("%d bytes arrived (%x), and %d were sent (%x)", len(got), sha256.Sum256(got), len(want), sha256.Sum256(want))
		}
		errs <- err
	}
	go receive(b, up)
	go receive(a, down)
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// closeBoth ends the session from both sides, and expects that both have everything.
func closeBoth(t *testing.T, a, b *Conn) {
	t.Helper()
	done := make(chan error, 2)
	go func() { done <- a.Close() }()
	go func() { done <- b.Close() }()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestBothWays(t *testing.T) {
	for _, c := range []struct {
		shares, schedule string
		roads, segment   int
	}{
		{"none", Strict, 1, 0}, {"none", Strict, 2, 0}, {"none", Fast, 3, 0}, {"none", Weighted, 3, 0}, {"none", Strict, 8, 1448},
		{"none", Fast, 2, MinSegment}, {"none", Strict, 2, MaxSegment},
		{"2of3", "", 3, 0}, {"2of3", Strict, 3, 0}, {"3of3", "", 3, 0}, {"shamir:2of3", "", 3, 1448}, {"xor:3", "", 3, 0},
	} {
		t.Run(fmt.Sprintf("%s/%s/%d/%d", c.shares, c.schedule, c.roads, c.segment), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var roads []*road
				for i := range c.roads {
					roads = append(roads, &road{delay: time.Duration(i+1) * 5 * ms, rate: 12.5e6})
				}
				w := newWorld(t, ListenOptions{}, roads...)
				o := w.options()
				o.Shares, o.Schedule, o.Segment = c.shares, c.schedule, c.segment
				client, server := w.open(o)
				size := 700_001
				if c.segment == MinSegment {
					size = 50_001
				}
				both(t, client, server, noise(1, size), noise(2, size/2), 32<<10)
				s := client.Status()
				if s.Sent != uint64(size) || s.Received != uint64(size/2) {
					t.Errorf("sent %d, received %d", s.Sent, s.Received)
				}
				closeBoth(t, client, server)
				if s := client.Status(); s.Unproved != 0 || s.State != "closed" {
					t.Errorf("%d bytes unproved, %s", s.Unproved, s.State)
				}
				if n := len(w.listener.Sessions()); n != 0 {
					t.Errorf("%d sessions are left", n)
				}
				w.listener.Close()
			})
		})
	}
}

// Whole copies take other ways through the buffers than Read and Write do.
func TestCopies(t *testing.T) {
	for _, shares := range []string{"none", "2of3"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, ListenOptions{}, &road{delay: 5 * ms, rate: 5e6}, &road{delay: 15 * ms, rate: 5e6}, &road{delay: 25 * ms, rate: 5e6})
			o := w.options()
			o.Shares = shares
			client, server := w.open(o)
			want := noise(3, 3_000_001)
			go func() {
				if n, err := io.Copy(client, struct{ io.Reader }{bytes.NewReader(want)}); n != int64(len(want)) || err != nil {
					t.Errorf("%d bytes in, %v", n, err)
				}
				_ = client.CloseWrite()
			}()
			var got bytes.Buffer
			if n, err := io.Copy(struct{ io.Writer }{&got}, server); n != int64(len(want)) || err != nil || !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%s: %d bytes out, %v", shares, n, err)
			}
			closeBoth(t, client, server)
			w.listener.Close()
		})
	}
}

// What a program writes at once, the other one reads at once, however much later one path is.
func TestAMessageIsReadWhole(t *testing.T) {
	for _, schedule := range []string{Strict, Weighted, Fast} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, ListenOptions{}, &road{delay: 5 * ms}, &road{delay: 40 * ms}, &road{delay: 10 * ms})
			o := w.options()
			o.Schedule = schedule
			client, server := w.open(o)
			into := make([]byte, 1<<16)
			sizes := []int{1, 2, 7, 8, 1000, 30_000}
			if schedule == Weighted { // where a path may get a full segment, whose message has no end to be seen
				sizes = sizes[:5]
			}
			for _, size := range sizes {
				if _, err := server.Write(noise(1, size)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(15 * ms) // a part is there
				if n, err := client.Read(into); n != size || err != nil || !bytes.Equal(into[:n], noise(1, size)) {
					t.Errorf("%s: %d bytes of %d are read at once, %v", schedule, n, size, err)
				}
			}
			closeBoth(t, client, server)
			w.listener.Close()
		})
	}
}

// moments notes when it is written to.
type moments []time.Time

func (m *moments) Write(p []byte) (int, error) {
	*m = append(*m, time.Now())
	return len(p), nil
}

// A copy hands over a message once all of it is there, so that it goes on by one system call.
func TestAMessageIsCopiedWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ListenOptions{}, &road{delay: 5 * ms}, &road{delay: 40 * ms})
		client, server := w.open(w.options())
		began := time.Now()
		go func() {
			_, _ = server.Write(noise(1, 7))
			time.Sleep(time.Second)
			_ = server.CloseWrite()
		}()
		time.Sleep(15 * ms) // a part is there
		var at moments
		if n, err := client.WriteTo(&at); n != 7 || err != nil || len(at) != 2 || at[0].Sub(began) != 40*ms || at[1] != at[0] {
			t.Errorf("%d bytes at %v after %v, %v", n, at, began, err)
		}
		closeBoth(t, client, server)
		w.listener.Close()
	})
}

// The part of a message that is there does not wait for a path that died.
func TestAPartIsReadInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ListenOptions{}, &road{delay: 5 * ms}, &road{delay: 40 * ms})
		client, server := w.open(w.options())
		w.roads[1].stall()
		if _, err := server.Write(noise(1, 7)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		n, err := client.Read(make([]byte, 100))
		if took := time.Since(began); n < 3 || n > 4 || err != nil || took > restPatience {
			t.Errorf("%d bytes are read after %v, %v", n, took, err)
		}
		_, _ = client.Close(), server.Close() // what is missing never comes
		w.listener.Close()
	})
}

// The end of a stream is one only if all of it arrived.
func TestACutIsNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ListenOptions{Patience: 5 * time.Second}, &road{delay: 5 * ms, rate: 1e6}, &road{delay: 5 * ms, rate: 1e6})
		client, server := w.open(w.options())
		if _, err := client.Write(noise(1, 100_000)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * ms)
		for _, r := range w.roads {
			up, down := r.last()
			for _, x := range []*wire{up, down} {
				x.set(func() { x.end, x.flights = io.EOF, nil }) // what a FIN made by somebody on the way looks like
			}
			r.mu.Lock()
			r.refused = errors.New("gone")
			r.mu.Unlock()
		}
		n, err := io.Copy(io.Discard, server)
		if err == nil {
			t.Errorf("%d bytes, and then an end", n)
		}
		client.Abort("test over")
		if err := client.Close(); err == nil {
			t.Error("Close says that the other side has everything")
		}
		w.listener.Close()
		synctest.Wait()
	})
}

// Close while a Write is blocked must end both.
func TestCloseDuringWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ListenOptions{}, &road{delay: 5 * ms, rate: 1e6}, &road{delay: 5 * ms, rate: 1e6})
		client, server := w.open(w.options())
		written := make(chan error, 1)
		go func() {
			_, err := client.Write(make([]byte, 32<<20))
			written <- err
		}()
		go func() { _, _ = io.Copy(io.Discard, server) }()
		time.Sleep(500 * ms)
		start := time.Now()
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if err := <-written; err == nil {
			t.Error("Write says that all was taken")
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("Close took %v", took)
		}
		_ = server.Close()
		w.listener.Close()
	})
}

func TestClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			shares, schedule string
			degrade          bool
			want             []string
		}{
			{"none", Strict, false, []string{"equal part", "if that cipher is broken", "sizes and times"}},
			{"none", Fast, true, []string{"the fastest carries most", "shown to another one"}},
			{"none", Weighted, false, []string{"by its weight"}},
			{"2of3", "", false, []string{"fewer than 2 of 3", "while AES-256 holds"}},
			{"xor:3", "", true, []string{"even if every cipher is broken", "the paths 0, 1 are all seen by one network"}},
		} {
			w := newWorld(t, ListenOptions{}, &road{observer: "one network"}, &road{observer: "one network"}, &road{})
			o := w.options()
			o.Shares, o.Schedule, o.Degrade = c.shares, c.schedule, c.degrade
			client, server := w.open(o)
			for _, want := range c.want {
				if claim := client.Claim(); !strings.Contains(claim, want) || claim != client.Status().Claim {
					t.Errorf("%s, %s: %q does not say %q", c.shares, c.schedule, claim, want)
				}
			}
			closeBoth(t, client, server)
			w.listener.Close()
		}
	})
}
