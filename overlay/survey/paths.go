package survey

import (
	"net/netip"
	"slices"
	"time"

	"heddle/overlay/asn"
	"heddle/path/diversity"
)

// Way is a way through a node, in its halves.
type Way struct {
	Node, Uplink string
	// Near leads from here to the node, Far from the node to the destination; nil where it is not known.
	Near, Far *Half
}

// Name is how a way is called, such as tokyo@home.
func (w Way) Name() string {
	if w.Uplink == "" {
		return w.Node
	}
	return w.Node + "@" + w.Uplink
}

// Paths says which networks each way passes, by a table of ASes.
func Paths(ways []Way, table *asn.Table) []diversity.Path {
	paths := make([]diversity.Path, 0, len(ways))
	for _, w := range ways {
		p := diversity.Path{Name: w.Name(), Node: w.Node, Uplink: w.Uplink}
		switch {
		case w.Near == nil:
			p.Why = "the way to the node is not surveyed"
		case w.Far == nil:
			p.Why = "the node's way to the destination is not surveyed"
		default:
			near, far := Passed(*w.Near, table), Passed(*w.Far, table)
			p.ASes, p.Countries = slices.Concat(near.ASes, far.ASes), slices.Concat(near.Countries, far.Countries)
			p.Hidden = near.Hidden + far.Hidden
			if w.Near.RTT > 0 && w.Far.RTT > 0 {
				p.RTT = milliseconds(w.Near.RTT + w.Far.RTT)
			}
			switch {
			case near.Silent:
				p.Why = "no router on the way to the node is known"
			case far.Silent:
				p.Why = "no router on the node's way to the destination is known"
			}
		}
		paths = append(paths, p)
	}
	return paths
}

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// Networks are those that a half passes.
type Networks struct {
	// ASes are in the order in which they are passed, each once in a row, from the first router's to the destination's.
	ASes []diversity.AS
	// Countries are ISO 3166 codes, each once.
	Countries []string
	// Hidden is how many hops belong to an unknown AS: those that did not answer, and those that the table does not know.
	// What lies between two hops of one AS is taken for that AS. Where the destination was not reached, the rest counts
	// as one more.
	Hidden int
	// Silent reports whether the destination was not reached, and no router's AS is known.
	Silent bool
}

// Passed says which networks a half passes. Private addresses are nobody's network: they are neither counted nor hidden.
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
	known := len(n.ASes)
	for _, hop := range h.Hops {
		switch {
		case !hop.Addr.IsValid():
			unknown++
		case !local(hop.Addr):
			add(hop.Addr)
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
