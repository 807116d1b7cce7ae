package survey

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"heddle/overlay/asn"
	"heddle/path/diversity"
)

// Path is a path through a node, with its halves.
type Path struct {
	diversity.Path
	Near *Half `json:"near"` // from here to the node, nil if unknown
	Far  *Half `json:"far"`  // from the node to the destination, nil if unknown
}

// Paths joins halves to all paths of the plan, and returns the age of the oldest half. It ignores halves older than maxAge.
func (p *Plan) Paths(halves map[string]Half, maxAge time.Duration, table *asn.Table, now time.Time) (paths []Path, oldest time.Duration) {
	fresh := func(key string) *Half {
		h, ok := halves[key]
		if !ok || h.Age(now) > maxAge {
			return nil
		}
		oldest = max(oldest, h.Age(now))
		return &h
	}
	for _, n := range p.Nodes {
		far := fresh(FarKey(n.Key(), p.To.String()))
		for _, spec := range p.Uplinks {
			one, key := Path{Path: diversity.Path{Name: n.Name, Node: n.Name, Uplink: spec.Name}, Far: far}, [2]string{n.Name, spec.Name}
			if spec.Name != "" {
				one.Name += "@" + spec.Name
			}
			if request, ok := p.Requests[key]; ok {
				one.Near = fresh(NearKey(request))
			}
			one.join(table)
			one.Why = cmp.Or(p.Problems[key], one.Why)
			paths = append(paths, one)
		}
	}
	return paths, oldest
}

// join determines the networks that the path crosses.
func (p *Path) join(table *asn.Table) {
	switch {
	case p.Near == nil:
		p.Why = "the path to the node is not surveyed"
		return
	case p.Far == nil:
		p.Why = "the node's path to the destination is not surveyed"
		return
	}
	near, far := Passed(*p.Near, table), Passed(*p.Far, table)
	p.ASes, p.Countries = slices.Concat(near.ASes, far.ASes), slices.Concat(near.Countries, far.Countries)
	p.Hidden = near.Hidden + far.Hidden
	if p.Near.RTT > 0 && p.Far.RTT > 0 {
		p.RTT = time.Duration((p.Near.RTT + p.Far.RTT) * float64(time.Millisecond))
	}
	switch {
	case near.Silent:
		p.Why = "no router on the path to the node is known"
	case far.Silent:
		p.Why = "no router on the node's path to the destination is known"
	}
}

// Choose is [diversity.Choose] of the plan's paths. It ignores the destination's own network, which sees all of them.
func (p *Plan) Choose(halves map[string]Half, maxAge time.Duration, table *asn.Table, o diversity.Options) (c diversity.Choice, oldest time.Duration, err error) {
	measured, oldest := p.Paths(halves, maxAge, table, time.Now())
	var paths []diversity.Path
	for _, one := range measured {
		paths = append(paths, one.Path)
	}
	o.Ends = []diversity.AS{table.Lookup(p.To.Addr()).AS}
	c, err = diversity.Choose(paths, o)
	return c, oldest, err
}

// Networks are the networks that a half crosses.
type Networks struct {
	ASes      []diversity.AS // in order of passage up to the destination's, without consecutive repetitions
	Countries []string       // ISO 3166 codes, each once
	// Hidden counts hops of unknown AS: silent ones and addresses not in the table. Between two hops of one AS, a hop counts as
	// that AS. If the destination was not reached, the rest counts as one more.
	Hidden int
	Silent bool // the destination was not reached, and no router's AS is known
}

// Passed returns the networks that a half crosses. Private addresses before the first public one are of the network that the half
// begins in, and are not counted. Later ones are hidden hops: any network may use them.
func Passed(h Half, table *asn.Table) Networks {
	var n Networks
	unknown := 0 // hops since the last known AS
	add := func(addr netip.Addr) {
		e := table.Lookup(addr)
		if e.Country != "" && !slices.Contains(n.Countries, e.Country) {
			n.Countries = append(n.Countries, e.Country)
		}
		if e.AS == 0 {
			unknown++
			return
		}
		if len(n.ASes) > 0 && n.ASes[len(n.ASes)-1] == e.AS {
			unknown = 0
			return
		}
		n.Hidden, unknown = n.Hidden+unknown, 0
		n.ASes = append(n.ASes, e.AS)
	}
	if h.From.IsValid() && !local(h.From) {
		add(h.From)
	}
	known, outside := len(n.ASes), false
	for _, hop := range h.Hops {
		switch {
		case !hop.Addr.IsValid():
			unknown++
		case !local(hop.Addr):
			outside = true
			add(hop.Addr)
		case outside && hop.Addr != h.To.Addr():
			unknown++
		}
	}
	if !h.Reached {
		n.Silent = len(n.ASes) == known
		unknown++
	}
	if !local(h.To.Addr()) {
		add(h.To.Addr())
	}
	n.Hidden += unknown
	return n
}

var sharedSpace = netip.MustParsePrefix("100.64.0.0/10") // RFC 6598

// local reports whether an address is of no network of the Internet.
func local(a netip.Addr) bool {
	return a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsUnspecified() || sharedSpace.Contains(a)
}
