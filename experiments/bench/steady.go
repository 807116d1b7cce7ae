package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/proxy"

	"heddle/lab"
)

// steadyLatencies are round trips, and steadyRates streams in kB/s. The paper took round trips from 100 to 450 ms and three rates, of
// which its text names 50 kB/s.
var (
	steadyLatencies = []time.Duration{100 * time.Millisecond, 250 * time.Millisecond, 450 * time.Millisecond}
	steadyRates     = []int{10, 50, 100}
)

const (
	steadyPort   = 8100                  // of the stream of the first rate; the others follow
	steadyPiece  = 20 * time.Millisecond // between writes
	steadyBegins = 3 * time.Second       // from its first byte on, a stream does not count
)

// steadyTopology is figure 6: a stream of a fixed rate, while the round trip of the link grows.
func steadyTopology(quick bool) *topology {
	n, latencies, rates, seconds := &torWays{}, steadyLatencies, steadyRates, 20
	if quick {
		latencies, rates, seconds = latencies[len(latencies)-1:], rates[len(rates)-1:], 5
	}
	t := &topology{name: "steady", world: lab.Tor("tor", lab.DSL(latencies[0])), check: checkDisguise,
		baseline: func(v variant) string { return v.name[:strings.LastIndexByte(v.name, '/')+1] + wayTor },
		serve: func(ctx context.Context, s *stage) error {
			if err := n.serve(ctx, s); err != nil {
				return err
			}
			return serveSteady(ctx, s.Host("web"))
		}}
	for _, latency := range latencies {
		for i, rate := range rates {
			for _, way := range torWayNames(quick) {
				name := fmt.Sprintf("%v/%dkB/%s", latency, rate, way)
				t.cases = append(t.cases, variant{name, func(ctx context.Context, s *stage, _ int) (figures []figure, err error) {
					if err := s.Link("access").Reshape(func(s *lab.Shape) { s.Delay = latency / 2 }); err != nil {
						return nil, err
					}
					err = n.by(ctx, s, way, func(socks uint16) error {
						figures, err = steady(ctx, s, socks, netip.AddrPortFrom(s.Host("web").Addrs()[0], uint16(steadyPort+i)), seconds)
						return err
					})
					return figures, err
				}})
			}
		}
	}
	return t
}

// serveSteady sends streams: each connection gets as many bytes as its time so far allows.
func serveSteady(ctx context.Context, host *lab.Host) error {
	for i, rate := range steadyRates {
		at := netip.AddrPortFrom(host.Addrs()[0], uint16(steadyPort+i))
		err := servePlain(ctx, host, at, func(c net.Conn) {
			go func() {
				defer c.Close()
				defer context.AfterFunc(ctx, func() { c.Close() })()
				tick := time.NewTicker(steadyPiece)
				defer tick.Stop()
				began, sent := time.Now(), 0
				for now := range tick.C {
					due := int(now.Sub(began).Seconds() * float64(rate) * 1000)
					n, err := c.Write(make([]byte, due-sent))
					if err != nil {
						return
					}
					sent += n
				}
			}()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// steady reads a stream, and measures in each second what arrived of it and what the link carried.
func steady(ctx context.Context, s *stage, socks uint16, from netip.AddrPort, seconds int) ([]figure, error) {
	c, err := dialTor(ctx, s.Host("client"), socks, from)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	var read atomic.Int64
	first, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			ended <- err
			return
		}
		close(first)
		_, err := io.Copy(counter{&read}, c)
		ended <- errors.Join(err, io.ErrUnexpectedEOF)
	}()
	wait := func(d time.Duration) error {
		select {
		case err := <-ended:
			return fmt.Errorf("the stream ended: %w", err)
		case <-time.After(d):
			return nil
		}
	}
	select {
	case err := <-ended:
		return nil, fmt.Errorf("the stream did not begin: %w", err)
	case <-first:
	}
	if err := errors.Join(wait(steadyBegins), s.ResetLateness()); err != nil {
		return nil, err
	}
	var goodput, bandwidth []float64
	for range seconds {
		began, had := time.Now(), read.Load()
		before, err := s.Link("access").Status()
		if err := errors.Join(err, wait(time.Second)); err != nil {
			return nil, err
		}
		after, err := s.Link("access").Status()
		if err != nil {
			return nil, err
		}
		took := time.Since(began).Seconds() * 1000 // so that the figures are in kB/s
		goodput = append(goodput, float64(read.Load()-had)/took)
		bandwidth = append(bandwidth, float64(after.BtoA.DeliveredBytes-before.BtoA.DeliveredBytes)/took)
	}
	return []figure{{"goodput", "goodput", "kB/s", median(goodput)}, {"bandwidth", "bandwidth", "kB/s", median(bandwidth)}}, nil
}

// dialTor connects from a host, by the SOCKS port on its loopback unless that is 0.
func dialTor(ctx context.Context, host *lab.Host, socks uint16, to netip.AddrPort) (net.Conn, error) {
	if socks == 0 {
		return dialFrom(ctx, host, "", to)
	}
	by, err := proxy.SOCKS5("tcp", fmt.Sprint("127.0.0.1:", socks), nil, hostDialer{ctx, host})
	if err != nil {
		return nil, err
	}
	return by.Dial("tcp", to.String())
}

// hostDialer connects from a host.
type hostDialer struct {
	ctx  context.Context
	host *lab.Host
}

// Dial implements [proxy.Dialer].
func (d hostDialer) Dial(_, address string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	return dialFrom(d.ctx, d.host, "", to)
}

// counter counts what is written to it.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}
