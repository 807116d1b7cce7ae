package asim

// Routes are the routes of all ASes to one destination.
type Routes struct {
	to   int32
	next []int32 // next AS by index; -1 for no route, and the destination's is itself
}

// class is the kind of neighbour that an AS has its route from. Lower classes are preferred, since they pay more.
type class uint8

const (
	own class = iota
	byCustomer
	byPeer
	byProvider
	none
)

// router computes routes. Reuse it, since it is as large as the graph. It serves one goroutine.
type router struct {
	g       *Graph
	class   []class
	length  []int32   // of the route, in links
	reached []int32   // with a route by a customer
	queues  [][]int32 // ASes with a route, by its length
}

func newRouter(g *Graph) *router {
	return &router{g: g, class: make([]class, g.Len()), length: make([]int32, g.Len())}
}

// routes computes each AS's route to one AS. It prefers routes by a customer over a peer over a provider, then the
// shortest, then the lowest number of the next AS. Routes by a peer or a provider are announced to customers only, so
// that no AS carries traffic that nobody pays it for.
func (r *router) routes(to int32) Routes {
	out := Routes{to: to, next: make([]int32, r.g.Len())}
	for i := range r.class {
		r.class[i], r.length[i], out.next[i] = none, 0, -1
	}
	r.class[to], out.next[to] = own, to
	r.reached = append(r.reached[:0], to)
	r.fromCustomers(out.next)
	r.fromPeers(out.next)
	r.fromProviders(out.next)
	return out
}

// offer gives u the route by v if it is better than u's. It returns whether u had none.
func (r *router) offer(next []int32, u, v int32, c class) (first bool) {
	length := r.length[v] + 1
	switch {
	case r.class[u] == none:
		r.class[u], r.length[u], next[u] = c, length, v
		return true
	case r.class[u] == c && (length < r.length[u] || length == r.length[u] && v < next[u]):
		r.length[u], next[u] = length, v
	}
	return false
}

// fromCustomers walks from the destination up to providers, breadth first, so that the first route found is the shortest.
func (r *router) fromCustomers(next []int32) {
	for at := 0; at < len(r.reached); at++ {
		v := r.reached[at]
		for _, u := range r.g.providers[v] {
			if r.offer(next, u, v, byCustomer) {
				r.reached = append(r.reached, u)
			}
		}
	}
}

// fromPeers announces the routes by customers to peers.
func (r *router) fromPeers(next []int32) {
	for _, v := range r.reached {
		for _, u := range r.g.peers[v] {
			r.offer(next, u, v, byPeer)
		}
	}
}

// fromProviders announces all routes to customers, shorter ones first.
func (r *router) fromProviders(next []int32) {
	for i := range r.queues {
		r.queues[i] = r.queues[i][:0]
	}
	for u := range r.class {
		if r.class[u] != none {
			r.queue(int32(u))
		}
	}
	for length := 0; length < len(r.queues); length++ {
		for at := 0; at < len(r.queues[length]); at++ {
			v := r.queues[length][at]
			for _, u := range r.g.customers[v] {
				if r.offer(next, u, v, byProvider) {
					r.queue(u)
				}
			}
		}
	}
}

func (r *router) queue(u int32) {
	length := int(r.length[u])
	for len(r.queues) <= length {
		r.queues = append(r.queues, nil)
	}
	r.queues[length] = append(r.queues[length], u)
}

// Way returns the route from an AS, both ends included, or nil if there is none.
func (r Routes) Way(from int32) []int32 {
	if r.next[from] < 0 {
		return nil
	}
	way := []int32{from}
	for from != r.to {
		from = r.next[from]
		way = append(way, from)
	}
	return way
}
