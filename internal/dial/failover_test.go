package dial

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// One of two addresses is silent. Each call succeeds, one call alone waits for the silent one, and that is tried again later.
func TestFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const good, silent = "192.0.2.1:1", "192.0.2.2:1"
		tried := map[string]int{}
		f := Failover{single: func(ctx context.Context, address string) (net.Conn, error) {
			tried[address]++
			if address == silent {
				<-ctx.Done()
				return nil, ctx.Err()
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
			for range 64 { // the silent one is the first of some
				if err := dial(good, silent); err != nil {
					t.Error(err)
				}
			}
			if tried[silent] != round {
				t.Errorf("round %d: the silent one was tried %d times", round, tried[silent])
			}
			time.Sleep(avoidFor)
		}
		if err := dial(silent); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("only the silent one: %v", err)
		}
		if err := dial(); !errors.Is(err, ErrNone) {
			t.Errorf("none: %v", err)
		}
	})
}

// Without a failure each address gets its part of the connections.
func TestFailoverSpreads(t *testing.T) {
	tried := map[string]bool{}
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
		f.avoid(string(rune('a'+i)), time.Now())
	}
	if len(f.failed) > mostFailed {
		t.Errorf("it remembers %d addresses", len(f.failed))
	}
}
