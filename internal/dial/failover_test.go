package dial

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var errRefused = errors.New("refused")

// An answer of a slow address that comes after another one's is not used, and its connection is closed.
func TestFailoverClosesWhatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, far := net.Pipe()
		f := Failover{failed: map[string]time.Time{"fast:1": time.Now()}, single: func(_ context.Context, address string) (net.Conn, error) {
			if address == "slow:1" {
				time.Sleep(time.Second)
				return slow, nil
			}
			near, _ := net.Pipe()
			return near, nil
		}}
		c, err := f.Dial(t.Context(), []string{"slow:1", "fast:1"})
		if err != nil || c == slow {
			t.Fatal(c, err)
		}
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	})
}

// One of two addresses is silent. Each call succeeds, one call alone waits for the silent one and not for long, and that is tried again later.
func TestFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const good, silent, refuses = "192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"
		var mu sync.Mutex
		tried := map[string]int{}
		f := Failover{single: func(ctx context.Context, address string) (net.Conn, error) {
			mu.Lock()
			tried[address]++
			mu.Unlock()
			switch address {
			case silent:
				<-ctx.Done()
				return nil, ctx.Err()
			case refuses:
				return nil, errRefused
			}
			near, far := net.Pipe()
			far.Close()
			return near, nil
		}}
		dial := func(addresses ...string) error {
			ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
			defer cancel()
			c, err := f.Dial(ctx, addresses)
			if err == nil {
				c.Close()
			}
			return err
		}
		for round := 1; round <= 2; round++ {
			begin := time.Now()
			for range 64 { // the silent one is the first of some
				if err := dial(good, silent); err != nil {
					t.Error(err)
				}
			}
			if took := time.Since(begin); took != nextAfter {
				t.Errorf("round %d: they waited %v", round, took)
			}
			synctest.Wait()
			if tried[silent] != round {
				t.Errorf("round %d: the silent one was tried %d times", round, tried[silent])
			}
			time.Sleep(avoidFor)
		}
		if err := dial(silent); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("only the silent one: %v", err)
		}
		begin := time.Now()
		if err := dial(silent, silent, refuses); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 6*time.Second {
			t.Errorf("silent ones, and one that refuses: %v after %v", err, time.Since(begin))
		}
		if err := dial(refuses, refuses); !errors.Is(err, errRefused) {
			t.Errorf("those that refuse: %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := f.Dial(ended, []string{good}); !errors.Is(err, context.Canceled) {
			t.Errorf("an ended context: %v", err)
		}
		if err := dial(); !errors.Is(err, ErrNone) {
			t.Errorf("none: %v", err)
		}
	})
}

// Without a failure each address gets its part of the connections.
func TestFailoverSpreads(t *testing.T) {
	tried := map[string]bool{} // one at a time: each answers at once
	f := Failover{single: func(_ context.Context, address string) (net.Conn, error) {
		tried[address] = true
		near, far := net.Pipe()
		far.Close()
		return near, nil
	}}
	for range 128 {
		c, err := f.Dial(t.Context(), []string{"a:1", "b:1", "c:1"})
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	if len(tried) != 3 {
		t.Errorf("tried %v alone", tried)
	}
	for i := range 3 * mostFailed {
		f.avoid([]string{string(rune('a' + i))}, time.Now())
	}
	if len(f.failed) > mostFailed {
		t.Errorf("it remembers %d addresses", len(f.failed))
	}
}
