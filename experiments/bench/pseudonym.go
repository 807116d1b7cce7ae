package bench

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"heddle/lab"
	"heddle/lab/browser"
	"heddle/lab/peer"
)

// Pseudonym is figures 3(a), 3(b), 5(a) and 5(b) of PoPSiCl: how long it takes to fetch an object with a connection of its own, by its size; how
// many such fetches a site answers; how long Chromium takes for a page, without limits and from home; and how many visits of that page a site
// answers. Fetches are relative to nginx that asks for a client's certificate itself, the page is relative to plain HTTPS.
func Pseudonym() Bench {
	return Bench{name: "pseudonym", paper: pseudonymPaper, goal: pseudonymGoal, topologies: func(quick bool) []*topology {
		sizes, ways, pages := pseudonymSizes, []string{wayMutual, wayHTTPS, waySidecar, wayGateway, wayHAProxy, wayNginx, wayTor},
			[]string{wayHTTPS, wayMutual, waySidecar, wayGateway, wayHandoff, wayDefence, wayMovedDefence, wayTor}
		if quick { // Tor takes a minute to start
			sizes, ways, pages = sizes[:1], ways[:len(ways)-1], pages[:len(pages)-1]
		}
		latency := pseudonymTopology("latency")
		for _, size := range sizes {
			for _, w := range ways {
				latency.add(size.name+"/"+w, w, func(ctx context.Context, _ *stage, w way) ([]figure, error) { return fetchLatency(ctx, w, size, quick) })
			}
		}
		rate := pseudonymTopology("rate")
		for _, w := range ways {
			if w != wayTor {
				rate.add(w, w, func(ctx context.Context, _ *stage, w way) ([]figure, error) {
					return fetchRate(ctx, w, sizes[0], rateClients, quick)
				})
			}
		}
		page, home, visits := pseudonymTopology("page"), pseudonymTopology("home"), pseudonymTopology("pages")
		load := func(ctx context.Context, _ *stage, w way) ([]figure, error) { return loadPage(ctx, w, quick) }
		for _, w := range pages {
			page.add(w, w, load)
			if w != wayTor {
				home.add(w, w, load)
				visits.add(w, w, func(ctx context.Context, _ *stage, w way) ([]figure, error) { return pageRate(ctx, w, quick) })
			}
		}
		home.world.Links[0].AtoB = lab.Shape{Delay: homeAccess.RTT / 2, Rate: homeAccess.Up}
		home.world.Links[0].BtoA = lab.Shape{Delay: homeAccess.RTT / 2, Rate: homeAccess.Down}
		return []*topology{latency.topology, rate.topology, page.topology, home.topology, visits.topology}
	}}
}

// homeAccess is the link of the client of the cases home: a usual line at home, and a cloud in the same country.
var homeAccess = lab.Access{RTT: 20 * time.Millisecond, Down: 50_000_000, Up: 10_000_000}

// object is one that a site has, by its size.
type object struct {
	name  string
	bytes int64
}

// pseudonymSizes are of objects. The paper's go from 1 KiB to 5 MiB.
var pseudonymSizes = []object{{"1KiB", 1 << 10}, {"10KiB", 10 << 10}, {"100KiB", 100 << 10}, {"1MiB", 1 << 20}, {"5MiB", 5 << 20}}

// The ways to the site.
const (
	wayMutual  = "mtls"    // nginx that asks for a client's certificate
	wayHTTPS   = "https"   // nginx that does not
	waySidecar = "sidecar" // the sidecar before nginx
	wayGateway = "gateway" // Heddle's gateway, which relays, before the sidecar: the whole way of a pseudonym
	wayHAProxy = "haproxy" // HAProxy in place of the gateway
	wayNginx   = "nginx"   // nginx in place of the gateway
	wayDefence = "defence" // the gateway, and a sidecar with the page defence of the paper
	// wayHandoff is a gateway that hands connections over, as the paper's does, and wayTor is https by three relays of a private Tor network.
	wayMovedDefence = "defence-handoff" // wayHandoff, and that sidecar
)

// pseudonymNeeds says what a way needs beyond nginx.
var pseudonymNeeds = map[string]func() error{
	wayHAProxy: peer.HAProxySupported, wayNginx: peer.NginxRelaySupported, wayTor: peer.TorSupported,
}

// pseudonymPaper returns what the paper shows: figure 3(b) at the largest rate, and figure 5(a).
func pseudonymPaper(name string) *float64 {
	const mutual = 450.9
	ratio, ok := map[string]float64{"rate/" + wayHTTPS: 490.5 / mutual, "rate/" + wayGateway: 325.8 / mutual,
		"page/" + wayMovedDefence: 1.35, "page/" + wayTor: 6.3}[name]
	if !ok {
		return nil
	}
	return &ratio
}

// pseudonymGoal returns the goal of a case: of the sidecar, relative to nginx that asks for a client's certificate itself, and of the page defence.
func pseudonymGoal(name string) string {
	switch {
	case name == "rate/"+waySidecar:
		return ">=0.97"
	case strings.HasPrefix(name, "latency/") && strings.HasSuffix(name, "/"+waySidecar):
		return "+0.2 ms"
	case name == "page/"+wayDefence, name == "page/"+wayMovedDefence:
		return "<=1.25"
	}
	return ""
}

const pseudonymName = "news.example"

// pseudonymWorld is a client, a cloud, two sites in it, and a private Tor network. Its links have no limit.
func pseudonymWorld() lab.World {
	w := lab.WithTor(lab.OpenCloud("pseudonym", "site", "defended"))
	w.Names = []lab.NameSpec{{Name: pseudonymName, Addr: pseudonymSite}}
	return w
}

// pseudonymCases is a topology whose cases each have the name of a way in theirs.
type pseudonymCases struct {
	*topology
	ways map[string]way
	by   map[string]string // the name of the way of each case
}

// newPseudonymCases has cases that are relative to those of the way baseline.
func newPseudonymCases(name, baseline string, world lab.World) pseudonymCases {
	t := pseudonymCases{&topology{name: name, world: world}, map[string]way{}, map[string]string{}}
	t.baseline = func(v variant) string {
		words := strings.Split(v.name, "/")
		words[slices.Index(words, t.by[v.name])] = baseline
		return strings.Join(words, "/")
	}
	t.check = func() error {
		for _, w := range t.wanted() {
			if need := pseudonymNeeds[w]; need != nil {
				if err := need(); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return t
}

func pseudonymTopology(name string) pseudonymCases {
	baseline, browses := wayMutual, name == "page" || name == "home"
	if browses || name == "pages" {
		baseline = wayHTTPS
	}
	t := newPseudonymCases(name, baseline, pseudonymWorld())
	if programs := t.check; browses {
		t.check = func() error { return cmp.Or(programs(), browser.UserSupported()) }
	}
	t.serve = func(ctx context.Context, s *stage) error {
		p := &pseudonymServers{stage: s, ways: t.ways}
		if err := p.start(ctx, t.wanted()); err != nil || !browses {
			return err
		}
		return p.addBrowsers(ctx, t.wanted())
	}
	return t
}

// add adds a case for the way by, whose name is a word of the case's.
func (t pseudonymCases) add(name, by string, measure func(context.Context, *stage, way) ([]figure, error)) {
	t.by[name] = by
	t.cases = append(t.cases, variant{name, func(ctx context.Context, s *stage, _ int) ([]figure, error) {
		return measure(ctx, s, t.ways[by])
	}})
}

// wanted lists the ways of the cases.
func (t pseudonymCases) wanted() (ways []string) {
	for _, v := range t.cases {
		if w := t.by[v.name]; !slices.Contains(ways, w) {
			ways = append(ways, w)
		}
	}
	return ways
}
