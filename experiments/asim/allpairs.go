package asim

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"heddle/experiments/bench"
	"heddle/internal/text"
)

// AllPairs summarises the routes between all ASes.
type AllPairs struct {
	ASes  int `json:"ases"`
	Links int `json:"links"`
	// Pairs is how many ordered pairs of different ASes have a route, and Unreachable how many have none.
	Pairs       int64 `json:"pairs"`
	Unreachable int64 `json:"unreachable"`
	// ByCustomer, ByPeer and ByProvider count the routes by the kind of their first link.
	ByCustomer int64   `json:"by_customer"`
	ByPeer     int64   `json:"by_peer"`
	ByProvider int64   `json:"by_provider"`
	Lengths    []int64 `json:"lengths"` // number of routes by their length in links, from 0 on
	Seconds    float64 `json:"seconds"` // time taken with this many workers
	Workers    int     `json:"workers"`
}

// RouteAll computes the routes between all pairs of ASes.
func RouteAll(ctx context.Context, g *Graph, workers int, progress func(Progress)) (AllPairs, error) {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	all := AllPairs{ASes: g.Len(), Links: g.Links(), Workers: workers}
	began := time.Now()
	routers := sync.Pool{New: func() any { return newRouter(g) }}
	var mu sync.Mutex
	done := 0
	err := parallel(ctx, workers, g.Len(), func(to int) {
		r := routers.Get().(*router)
		r.routes(int32(to))
		mu.Lock()
		defer mu.Unlock()
		all.take(r)
		routers.Put(r)
		if done++; progress != nil {
			progress(Progress{done, g.Len(), "destinations"})
		}
	})
	all.Seconds = time.Since(began).Seconds()
	return all, err
}

// take counts the routes that the router has just computed.
func (a *AllPairs) take(r *router) {
	for u, c := range r.class {
		switch c {
		case own:
			continue
		case none:
			a.Unreachable++
			continue
		case byCustomer:
			a.ByCustomer++
		case byPeer:
			a.ByPeer++
		case byProvider:
			a.ByProvider++
		}
		a.Pairs++
		for len(a.Lengths) <= int(r.length[u]) {
			a.Lengths = append(a.Lengths, 0)
		}
		a.Lengths[r.length[u]]++
	}
}

// Mean is the mean number of links of a route.
func (a AllPairs) Mean() float64 {
	var sum float64
	for length, n := range a.Lengths {
		sum += float64(length) * float64(n)
	}
	return sum / float64(max(a.Pairs, 1))
}

// WriteJSON writes the summary as indented JSON.
func (a AllPairs) WriteJSON(w io.Writer) error { return bench.WriteJSON(w, a) }

// WriteText writes the summary as text.
func (a AllPairs) WriteText(w io.Writer) error {
	share := func(n int64) string { return text.Percent(float64(n) / float64(max(a.Pairs, 1))) }
	_, err := fmt.Fprintf(w, "%d ASes, %d links: %d routes, %d pairs without one; %.2f links on average\nthe first link leads to a customer in %s, to a peer in %s, to a provider in %s\n",
		a.ASes, a.Links, a.Pairs, a.Unreachable, a.Mean(), share(a.ByCustomer), share(a.ByPeer), share(a.ByProvider))
	for length, n := range a.Lengths {
		if n > 0 && err == nil {
			_, err = fmt.Fprintf(w, "%2d links: %6s\n", length, share(n))
		}
	}
	if err == nil {
		_, err = fmt.Fprintf(w, "in %.1f s by %d workers\n", a.Seconds, a.Workers)
	}
	return err
}
