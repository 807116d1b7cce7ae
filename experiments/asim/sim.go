package asim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"heddle/path"
	"heddle/path/diversity"
)

// Options control a simulation.
type Options struct {
	Seed uint64
	// Sets is the number of sets of nodes, and Clients the number of clients, each with a server, for each set.
	Sets, Clients int
	Candidates    []int          // numbers of nodes to choose from, such as 8 and 1000
	Workers       int            // number of goroutines; 0 for one a core
	Progress      func(Progress) // called from one goroutine at a time; may be nil
}

// Progress is how far a simulation is.
type Progress struct {
	Done, Total int
	What        string
}

// Defaults are the defaults of `heddle lab asim`.
func Defaults() Options {
	return Options{Seed: 1, Sets: 20, Clients: 100, Candidates: []int{8, 16, 32, 64, 125, 250, 500, 1000}}
}

// Quick is a smaller simulation for a first look.
func Quick() Options {
	return Options{Seed: 1, Sets: 5, Clients: 40, Candidates: []int{8, 32, 125}}
}

// Check returns an error if the options are invalid.
func (o Options) Check(g *Graph) error {
	bad := func(what, why, hint string) error { return &path.Error{What: what, Why: why, Hint: hint} }
	switch {
	case o.Sets < 1 || o.Sets > 100_000:
		return bad(fmt.Sprintf("--sets %d", o.Sets), "it must be 1 to 100000", "20 are the usual")
	case o.Clients < 1 || o.Clients > 1_000_000:
		return bad(fmt.Sprintf("--clients %d", o.Clients), "it must be 1 to 1000000", "100 are the usual")
	case len(o.Candidates) == 0:
		return bad("--candidates", "there are none", "8,1000 for example")
	}
	for _, n := range o.Candidates {
		if n < 3 || n > 4000 || n > g.Len() {
			return bad(fmt.Sprintf("--candidates %d", n), fmt.Sprintf("it must be 3 to %d", min(4000, g.Len())), "8 to 1000 are the usual")
		}
	}
	return nil
}

// Picks are the ways to choose paths from the candidates.
var Picks = []string{"random-pair", "best-pair", "random-triple", "best-triple"}

// outcome is the result of one choice.
type outcome struct {
	common  float64 // ASes that see two paths, except the server's: the mean over all pairs
	transit float64 // the same, without the client's networks
	exact   bool
}

// key groups the outcomes that are summed up.
type key struct {
	homing     Homing
	candidates int
	pick       string
}

// sums are the sums of one set of nodes.
type sums struct {
	n               int
	common, transit float64
	share           [4]int // how often transit was 0, <= 1, <= 2, and more
	inexact         int
}

func (s *sums) add(o outcome) {
	s.n++
	s.common += o.common
	s.transit += o.transit
	for i := range s.share {
		if o.transit <= float64(i) || i == len(s.share)-1 {
			s.share[i]++
			break
		}
	}
	if !o.exact {
		s.inexact++
	}
}

type simulation struct {
	g         *Graph
	o         Options
	customers []int32
	routers   sync.Pool
	progress  sync.Mutex
	done      int
}

// simulate returns the sums of each set of nodes.
func simulate(ctx context.Context, g *Graph, o Options) ([]map[key]*sums, error) {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	s := &simulation{g: g, o: o, customers: withSeveralProviders(g), routers: sync.Pool{New: func() any { return newRouter(g) }}}
	var all []map[key]*sums
	for set := range o.Sets {
		one, err := s.set(ctx, uint64(set))
		if err != nil {
			return all, err
		}
		all = append(all, one)
	}
	return all, nil
}

// set draws a set of nodes and its clients. Each client has its own random source, so that the result does not depend
// on the number of workers.
func (s *simulation) set(ctx context.Context, set uint64) (map[key]*sums, error) {
	r := rand.New(rand.NewPCG(s.o.Seed, set<<32))
	nodes := make([]Routes, slices.Max(s.o.Candidates))
	for i, as := range r.Perm(s.g.Len())[:len(nodes)] {
		nodes[i].to = int32(as)
	}
	err := parallel(ctx, s.o.Workers, len(nodes), func(i int) { nodes[i] = s.routes(nodes[i].to) })
	if err != nil {
		return nil, err
	}
	outcomes := make([]map[key]outcome, s.o.Clients)
	err = parallel(ctx, s.o.Workers, s.o.Clients, func(i int) {
		outcomes[i] = s.client(rand.New(rand.NewPCG(s.o.Seed, set<<32+uint64(i)+1)), nodes)
		s.tell(set)
	})
	total := map[key]*sums{}
	for _, one := range outcomes { // in a fixed order, so that floating-point sums are repeatable
		for k, o := range one {
			if total[k] == nil {
				total[k] = &sums{}
			}
			total[k].add(o)
		}
	}
	return total, err
}

func (s *simulation) tell(set uint64) {
	s.progress.Lock()
	defer s.progress.Unlock()
	s.done++
	if s.o.Progress != nil {
		s.o.Progress(Progress{s.done, s.o.Sets * s.o.Clients, fmt.Sprintf("clients, set %d of %d", set+1, s.o.Sets)})
	}
}

func (s *simulation) routes(to int32) Routes {
	r := s.routers.Get().(*router)
	defer s.routers.Put(r)
	return r.routes(to)
}

// client draws one client and server, and chooses among the set's nodes for each homing and number of candidates.
func (s *simulation) client(r *rand.Rand, nodes []Routes) map[key]outcome {
	d := draw(r, s.g, s.customers)
	server := s.routes(d.server)
	order := r.Perm(len(nodes))
	found := map[key]outcome{}
	for _, candidates := range s.o.Candidates {
		var some []Routes
		for _, i := range order[:candidates] {
			some = append(some, nodes[i])
		}
		for _, h := range Homings {
			if h == Multihomed && d.customer < 0 {
				continue
			}
			ways, ends := d.uplinks(h)
			c := chooser{paths: paths(s.g, ways, some, server), ends: numbers(s.g, ends), access: numbers(s.g, d.accessOf(h))}
			c.choose(r, func(pick string, o outcome) { found[key{h, candidates, pick}] = o })
		}
	}
	return found
}

// chooser chooses paths for one client.
type chooser struct {
	paths        []diversity.Path
	ends, access []diversity.AS
}

func (c chooser) choose(r *rand.Rand, take func(pick string, o outcome)) {
	m := diversity.NewMatrix(c.paths, c.ends)
	for i, want := range []int{2, 3} {
		if random := c.random(r, want); random != nil {
			take(Picks[2*i], c.judge(random, true))
		}
		if best, exact := m.Best(want, 0); best != nil {
			take(Picks[2*i+1], c.judge(best, exact))
		}
	}
}

// random draws paths through different nodes and takes the uplinks in turn, like a user who knows nothing of routes.
func (c chooser) random(r *rand.Rand, want int) (picked []int) {
	uplinks := []string{"first"}
	if slices.ContainsFunc(c.paths, func(p diversity.Path) bool { return p.Uplink == "second" }) {
		uplinks = append(uplinks, "second")
	}
	order := r.Perm(len(c.paths))
	for len(picked) < want {
		next := slices.IndexFunc(order, func(i int) bool {
			p := c.paths[i]
			return p.Uplink == uplinks[len(picked)%len(uplinks)] &&
				!slices.ContainsFunc(picked, func(j int) bool { return c.paths[j].Node == p.Node })
		})
		if next < 0 {
			return nil
		}
		picked = append(picked, order[next])
	}
	return picked
}

// judge counts, for each pair of the set, the ASes that see both.
func (c chooser) judge(set []int, exact bool) outcome {
	o, pairs := outcome{exact: exact}, 0.0
	for n, i := range set {
		for _, j := range set[:n] {
			pairs++
			for k, as := range c.paths[i].ASes {
				if slices.Contains(c.ends, as) || slices.Contains(c.paths[i].ASes[:k], as) || !slices.Contains(c.paths[j].ASes, as) {
					continue
				}
				o.common++
				if !slices.Contains(c.access, as) {
					o.transit++
				}
			}
		}
	}
	o.common, o.transit = o.common/pairs, o.transit/pairs
	return o
}

// parallel calls f with 0 to n-1 from several goroutines, until all calls are done or ctx is.
func parallel(ctx context.Context, workers, n int, f func(int)) error {
	var next atomic.Int64
	var wait sync.WaitGroup
	for range min(workers, n) {
		wait.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				f(i)
			}
		})
	}
	wait.Wait()
	return ctx.Err()
}
