package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"heddle/internal/netutil"
)

const (
	echoPeriod  = time.Millisecond      // between datagrams of one kind
	echoSize    = 64                    // bytes
	echoWarm    = 200                   // first datagrams that do not count
	echoLinger  = time.Second           // for the last answers
	echoMissing = 0.01                  // share that may be lost
	echoRetry   = 50 * time.Millisecond // until the first answer
)

// echoPair measures round trips. A server echoes datagrams; the client alternates datagrams that a backend splits with
// datagrams that go directly to the same server, so that both see the same load.
type echoPair struct{ datagrams int }

// serve starts the server. Its sockets close when the bench ends.
func (e *echoPair) serve(ctx context.Context, s *stage) error {
	for _, at := range []netip.AddrPort{echoServer, echoBeside} {
		var conn *net.UDPConn
		err := s.Host("server").Do(func() (err error) {
			conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
			return err
		})
		if err != nil {
			return err
		}
		context.AfterFunc(ctx, func() { conn.Close() })
		go func() {
			buffer := make([]byte, 2*echoSize)
			for {
				n, from, err := conn.ReadFromUDPAddrPort(buffer)
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err == nil {
					_, _ = conn.WriteToUDPAddrPort(buffer[:n], from)
				}
			}
		}()
	}
	return nil
}

// variant measures with `heddle split` and these flags, or without it if there are none. The split datagrams go to to.
func (e *echoPair) variant(name string, to netip.AddrPort, flags []string) variant {
	return variant{name, func(ctx context.Context, s *stage, seed int) ([]figure, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if flags != nil {
			p, err := s.split(ctx, echoServer, seed, flags)
			if err != nil {
				return nil, err
			}
			defer p.Stop()
		}
		through, err := newEchoClient(s, to)
		if err != nil {
			return nil, err
		}
		defer through.close()
		beside, err := newEchoClient(s, echoBeside)
		if err != nil {
			return nil, err
		}
		defer beside.close()
		for _, c := range []*echoClient{through, beside} {
			if err := c.await(ctx); err != nil {
				return nil, err
			}
		}
		if err := s.ResetLateness(); err != nil {
			return nil, err
		}
		if err := e.exchange(ctx, through, beside); err != nil {
			return nil, err
		}
		return echoFigures(through, beside, flags != nil)
	}}
}

// exchange sends by both clients alternately, half a period apart.
func (e *echoPair) exchange(ctx context.Context, through, beside *echoClient) error {
	tick := time.NewTicker(echoPeriod / 2)
	defer tick.Stop()
	for i := range 2 * (e.datagrams + echoWarm) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if err := [2]*echoClient{through, beside}[i%2].send(); err != nil {
			return err
		}
	}
	for end := time.Now().Add(echoLinger); time.Now().Before(end) && (through.missing() > 0 || beside.missing() > 0); {
		time.Sleep(echoPeriod)
	}
	return nil
}

// echoFigures summarises both clients. With added it also returns what a backend adds to a round trip, and to each of
// its two passes through the backend.
func echoFigures(through, beside *echoClient, added bool) ([]figure, error) {
	with, err := through.roundTrips()
	if err != nil {
		return nil, err
	}
	without, err := beside.roundTrips()
	if err != nil {
		return nil, err
	}
	micro := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	quantile := func(sorted []time.Duration, q float64) float64 { return micro(sorted[int(q*float64(len(sorted)-1))]) }
	var all []figure
	for _, q := range []struct {
		name string
		at   float64
	}{{"median", 0.5}, {"p99", 0.99}} {
		all = append(all, figure{q.name, "round trip", "us", quantile(with, q.at)})
		if added {
			direct := quantile(without, q.at)
			beyond := quantile(with, q.at) - direct
			all = append(all, figure{"direct-" + q.name, "round trip of datagrams which nothing splits, in between", "us", direct},
				figure{"added-" + q.name, "round trip beyond theirs", "us", beyond},
				figure{"pass-" + q.name, "half of that: what one pass adds, up or down", "us", beyond / 2})
		}
	}
	return all, nil
}

// echoClient is one client socket, and the times of its datagrams.
type echoClient struct {
	conn *net.UDPConn
	to   netip.AddrPort
	done chan struct{}

	mu    sync.Mutex
	sent  []time.Time
	trips []time.Duration // 0 without an answer
	came  int
}

func newEchoClient(s *stage, to netip.AddrPort) (*echoClient, error) {
	c := &echoClient{to: to, done: make(chan struct{})}
	err := s.Host("client").Do(func() (err error) {
		c.conn, err = net.ListenUDP("udp", nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	go c.receive()
	return c, nil
}

func (c *echoClient) close() {
	c.conn.Close()
	<-c.done
}

func (c *echoClient) receive() {
	defer close(c.done)
	buffer := make([]byte, 2*echoSize)
	for {
		n, _, err := c.conn.ReadFromUDPAddrPort(buffer)
		now := time.Now()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n != echoSize {
			continue
		}
		c.mu.Lock()
		if i := binary.BigEndian.Uint64(buffer); i < uint64(len(c.sent)) && c.trips[i] == 0 {
			c.trips[i] = now.Sub(c.sent[i])
			c.came++
		}
		c.mu.Unlock()
	}
}

func (c *echoClient) send() error {
	var datagram [echoSize]byte
	c.mu.Lock()
	binary.BigEndian.PutUint64(datagram[:], uint64(len(c.sent)))
	c.sent, c.trips = append(c.sent, time.Now()), append(c.trips, 0)
	c.mu.Unlock()
	_, err := c.conn.WriteToUDPAddrPort(datagram[:], c.to)
	return err
}

func (c *echoClient) missing() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sent) - c.came
}

// await sends until an answer comes, and then resets.
func (c *echoClient) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		_ = c.send() // fails until the backend runs
		if err := netutil.Sleep(ctx, echoRetry); err != nil {
			return fmt.Errorf("no answer from %v: %w", c.to, err)
		}
		c.mu.Lock()
		came := c.came > 0
		if came {
			c.sent, c.trips, c.came = nil, nil, 0
		}
		c.mu.Unlock()
		if came {
			return nil
		}
	}
}

// roundTrips returns the round trips that count, sorted.
func (c *echoClient) roundTrips() ([]time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	trips := slices.DeleteFunc(slices.Clone(c.trips[echoWarm:]), func(d time.Duration) bool { return d == 0 })
	if lost := len(c.sent) - echoWarm - len(trips); float64(lost) > echoMissing*float64(len(c.sent)) {
		return nil, fmt.Errorf("%d of %d datagrams to %v were not answered", lost, len(c.sent), c.to)
	}
	slices.Sort(trips)
	return trips, nil
}
