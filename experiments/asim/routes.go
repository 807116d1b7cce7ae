package asim

// Routes are the routes of all ASes to one destination.
type Routes struct {
	to int32
	// next is the next AS on the way by index, -1 where there is no route; the destination's is itself.
	next []int32
}

// class is from whom an AS has its route: the lower, the better it is paid.
type class uint8

const (
	own class = iota
	byCustomer
	byPeer
	byProvider
	none
)

// router computes routes. It is reused, since it holds as much as the graph has ASes, and serves one goroutine.
type router struct {
	g       *Graph
	class   []class
	length  []int32   // of the route, in links
	reached []int32   // those with a route by a customer
	queues  [][]int32 // those with a route, by its length
}

func newRouter(g *Graph) *router {
	return &router{g: g, class: make([]class, g.Len()), length: make([]int32, g.Len())}
}

// routes gives each AS its route to one: of those that its neighbours tell it of, one by a customer before one by a
// peer before one by a provider; of these the shortest; of these the one whose next AS has the lowest number. Routes by
// a peer or a provider are told to customers only, so that no AS carries what nobody pays it for.
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

// offer takes a route by v for u, if it is better than what u has. It reports whether u had none.
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

// fromCustomers goes from the destination up to providers, breadth first, so that each is reached by its shortest
// route at first.
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

// fromPeers tells the routes by customers to peers.
func (r *router) fromPeers(next []int32) {
	for _, v := range r.reached {
		for _, u := range r.g.peers[v] {
			r.offer(next, u, v, byPeer)
		}
	}
}

// fromProviders tells all routes to customers, those that are shorter first.
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

// Way is the route from an AS, with both ends, or nil where there is none.
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
