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
)

// fetch gets an object with a connection of its own.
func (w way) fetch(ctx context.Context, object string) error {
	raw, err := w.dial(ctx)
	if err != nil {
		return err
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	c := tls.Client(raw, w.tls)
	if _, err := fmt.Fprintf(c, "GET /%s%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", object, w.query, w.tls.ServerName); err != nil {
		return err
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	n, err := io.Copy(io.Discard, r.Body)
	i := slices.IndexFunc(pseudonymSizes, func(s struct {
		name  string
		bytes int
	}) bool {
		return s.name == object
	})
	if err != nil || r.StatusCode != http.StatusOK || n != int64(pseudonymSizes[i].bytes) {
		return errors.Join(fmt.Errorf("%s by %s: %s, %d bytes", object, w.tls.ServerName, r.Status, n), err)
	}
	return nil
}

// fetchLatency is the median time of one fetch after another.
func fetchLatency(ctx context.Context, w way, object string, quick bool) ([]figure, error) {
	count := 200
	if quick {
		count = 50
	}
	if w.slow {
		count = 20
	}
	var took []time.Duration
	for range count {
		begin := time.Now()
		if err := w.fetch(ctx, object); err != nil {
			return nil, err
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	return []figure{{"", "latency", "ms", took[len(took)/2].Seconds() * 1000}}, nil
}

// rateClients fetch at a time.
const rateClients = 8

// fetchRate counts fetches of several clients.
func fetchRate(ctx context.Context, w way, object string, quick bool) ([]figure, error) {
	long := 5 * time.Second
	if quick {
		long = 2 * time.Second
	}
	var fetched atomic.Int64
	begin := time.Now()
	var all errgroup.Group
	for range rateClients {
		all.Go(func() error {
			for time.Since(begin) < long {
				if err := w.fetch(ctx, object); err != nil {
					return err
				}
				fetched.Add(1)
			}
			return nil
		})
	}
	err := all.Wait()
	return []figure{{"", "rate", "requests/s", float64(fetched.Load()) / time.Since(begin).Seconds()}}, err
}
