package asim

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"heddle/path/diversity"
)

// Homing is how a client is connected to the Internet.
type Homing string

const (
	Single     Homing = "single"     // a device in one network
	Dual       Homing = "dual"       // a device in two networks, such as cable and mobile
	Multihomed Homing = "multihomed" // a device in one network with several providers, which lets the device choose
)

// Homings lists them all.
var Homings = []Homing{Single, Dual, Multihomed}

// drawn is one client and server, by index.
type drawn struct {
	server int32
	// access are the networks of a device in one or two. customer is a network with several providers, two of which follow.
	access    [2]int32
	customer  int32
	providers [2]int32
}

// draw draws a client and a server, all ASes with equal probability. customers are those with at least two providers.
func draw(r *rand.Rand, g *Graph, customers []int32) drawn {
	n := int32(g.Len())
	d := drawn{server: r.Int32N(n), customer: -1}
	for i := range d.access {
		for d.access[i] = d.server; d.access[i] == d.server || i > 0 && d.access[i] == d.access[0]; {
			d.access[i] = r.Int32N(n)
		}
	}
	if len(customers) > 0 {
		d.customer = customers[r.IntN(len(customers))]
		all := g.providers[d.customer]
		a, b := r.IntN(len(all)), r.IntN(len(all)-1)
		if b >= a {
			b++
		}
		d.providers = [2]int32{all[a], all[b]}
	}
	return d
}

// withSeveralProviders lists the ASes that can be a multihomed client.
func withSeveralProviders(g *Graph) (customers []int32) {
	for i, p := range g.providers {
		if len(p) > 1 {
			customers = append(customers, int32(i))
		}
	}
	return customers
}

// uplink is one uplink of a client: its first AS, after the client's own AS if it has one.
type uplink struct {
	name   string
	before []int32
	first  int32
}

// uplinks returns a client's uplinks, and as ends its own AS and the server's, which see everything whatever is chosen.
// A network that a device is merely in counts as an observer instead.
func (d drawn) uplinks(h Homing) (ways []uplink, ends []int32) {
	switch h {
	case Single:
		return []uplink{{"first", nil, d.access[0]}}, []int32{d.server}
	case Dual:
		return []uplink{{"first", nil, d.access[0]}, {"second", nil, d.access[1]}}, []int32{d.server}
	}
	own := []int32{d.customer}
	return []uplink{{"first", own, d.providers[0]}, {"second", own, d.providers[1]}}, []int32{d.server, d.customer}
}

// accessOf returns the networks that the device is in, unless they are its own.
func (d drawn) accessOf(h Homing) []int32 {
	switch h {
	case Single:
		return d.access[:1]
	case Dual:
		return d.access[:]
	}
	return nil
}

// paths returns the paths from a client by each uplink over each node to the server. It leaves out nodes without a route.
func paths(g *Graph, ways []uplink, nodes []Routes, server Routes) (all []diversity.Path) {
	for i, node := range nodes {
		far := server.Way(node.to)
		if far == nil {
			continue
		}
		for _, up := range ways {
			near := node.Way(up.first)
			if near == nil || slices.ContainsFunc(up.before, func(own int32) bool { return slices.Contains(near, own) }) {
				continue // the customer cannot use a provider's route that leads back through it
			}
			p := diversity.Path{Name: fmt.Sprint(i, " ", up.name), Node: fmt.Sprint(i), Uplink: up.name}
			for _, part := range [][]int32{up.before, near, far} {
				for _, as := range part {
					p.ASes = append(p.ASes, g.Number(as))
				}
			}
			all = append(all, p)
		}
	}
	return all
}

func numbers(g *Graph, indices []int32) (all []diversity.AS) {
	for _, i := range indices {
		all = append(all, g.Number(i))
	}
	return all
}
