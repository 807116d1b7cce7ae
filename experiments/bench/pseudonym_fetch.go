package bench

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"heddle/internal/netutil"
)

// fetch gets an object with a connection of its own, and returns when it had all of it. The server ends the connection: a client that ended it
// first would have to wait with its port, and one that left bytes unread would reset it.
func (w way) fetch(ctx context.Context, o object) (time.Duration, error) {
	began := time.Now()
	raw, err := w.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	c := tls.Client(raw, w.tls)
	if _, err := fmt.Fprintf(c, "GET /%s%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", o.name, w.query, w.tls.ServerName); err != nil {
		return 0, err
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	n, err := io.Copy(io.Discard, r.Body)
	took := time.Since(began)
	if err != nil || r.StatusCode != http.StatusOK || n != o.bytes {
		return 0, errors.Join(fmt.Errorf("%s by %s: %s, %d bytes", o.name, w.tls.ServerName, r.Status, n), err)
	}
	_, _ = io.Copy(io.Discard, c) // it may end without the alert of TLS
	_, err = io.Copy(io.Discard, raw)
	return took, err
}

// fetchLatencies is [fetchLatency] of two sizes, as figures 4(c) and 4(d) have them. The first has no name of its own.
func fetchLatencies(ctx context.Context, w way, quick bool) ([]figure, error) {
	figures, err := fetchLatency(ctx, w, usual, quick)
	if err != nil {
		return nil, err
	}
	more, err := fetchLatency(ctx, w, hundred, quick)
	if err == nil {
		more[0].name = hundred.name
	}
	return append(figures, more...), err
}

// fetchLatency is the median time of one fetch after another.
func fetchLatency(ctx context.Context, w way, o object, quick bool) ([]figure, error) {
	count := 200
	if quick {
		count = 50
	}
	if w.slow {
		count = 20
	}
	var took []time.Duration
	for range count {
		one, err := w.fetch(ctx, o)
		if err != nil {
			return nil, err
		}
		took = append(took, one)
	}
	slices.Sort(took)
	return []figure{{"", "latency", "ms", took[len(took)/2].Seconds() * 1000}}, nil
}

// rateClients fetch at a time.
const rateClients = 8

// fetchRate counts fetches of several clients.
func fetchRate(ctx context.Context, w way, o object, clients int, quick bool) ([]figure, error) {
	n, took, err := repeat(clients, quick, w.fetching(ctx, o))
	return []figure{{"", "rate", "requests/s", n / took.Seconds()}}, err
}

// offeredAtOnce bounds the fetches of fetchOffered at a time. A client of httperf, which the paper has, runs out of descriptors instead.
const offeredAtOnce = 48

// fetchOffered begins so many fetches a second, whether or not earlier ones have ended, for some seconds, and returns how many a second had their answer by then.
func fetchOffered(ctx context.Context, w way, o object, rate int, quick bool) ([]figure, error) {
	long := rateTime(quick)
	began := time.Now()
	ctx, cancel := context.WithDeadline(ctx, began.Add(long))
	defer cancel()
	var done atomic.Int64
	var all errgroup.Group
	all.SetLimit(offeredAtOnce)
	for i := range int(long.Seconds() * float64(rate)) {
		if netutil.Sleep(ctx, time.Until(began.Add(time.Duration(i)*time.Second/time.Duration(rate)))) != nil {
			break
		}
		all.TryGo(func() error { // else it is lost, as it would be at a server that takes no more
			_, err := w.fetch(ctx, o)
			switch {
			case err == nil:
				done.Add(1)
			case time.Since(began) >= long: // a socket learns that before the context
				return nil
			}
			return err
		})
	}
	err := all.Wait()
	return []figure{{"", "answers", "answers/s", float64(done.Load()) / long.Seconds()}}, err
}

// rateTime is how long rates are measured.
func rateTime(quick bool) time.Duration {
	if quick {
		return 2 * time.Second
	}
	return 5 * time.Second
}

// fetching is for [repeat].
func (w way) fetching(ctx context.Context, o object) func() error {
	return func() error {
		_, err := w.fetch(ctx, o)
		return err
	}
}

// repeat lets several clients do something again and again for some seconds, and returns how often they did, and in which time.
func repeat(clients int, quick bool, do func() error) (n float64, took time.Duration, err error) {
	long := rateTime(quick)
	var done atomic.Int64
	begin := time.Now()
	var all errgroup.Group
	for range clients {
		all.Go(func() error {
			for time.Since(begin) < long {
				if err := do(); err != nil {
					return err
				}
				done.Add(1)
			}
			return nil
		})
	}
	err = all.Wait()
	return float64(done.Load()), time.Since(begin), err
}
