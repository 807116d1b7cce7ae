package bench

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"heddle/lab"
)

// Gateway is figures 3(a), 3(b) and 4(a) to 4(d) of PoPSiCl for each mode of the gateway: how long a fetch takes with a connection of its own, how many
// a second there are, how long many at once take, how fast large objects come and what they cost the gateway, and what rules of
// the switch and pseudonyms cost. It also has how long a packet that is lost holds up a fetch.
//
// In all modes the site's server is the same sidecar before the same nginx. The baseline is that sidecar, reached directly.
func Gateway() Bench {
	return Bench{name: "gateway", paper: gatewayPaper, goal: gatewayGoal, spot: gatewaySpot, topologies: func(quick bool) []*topology {
		return []*topology{gatewayLatency(quick), gatewayRate(quick), gatewayOffered(quick), gatewayBurst(quick), gatewayObject(quick), gatewayRules(quick), gatewayPseudonyms(quick), gatewayEstablished(quick),
			gatewayStall(quick), gatewayBridge(quick), gatewayBridgeRules(quick), gatewayBridgeStall(quick)}
	}}
}

// The modes of a gateway, and what the sites that each leads to are called.
const (
	wayProxy   = "proxy"          // the gateway relays
	wayPass    = "fdpass"         // it passes the descriptor to a sidecar of its machine
	wayHandoff = "handoff"        // it hands the connection over to the site's machine
	wayPast    = "handoff-direct" // the site's machine answers past the gateway then
	wayV6      = "v6"             // a switch leads packets by the pseudo-address
)

// gatewayWays are the modes and what they are compared with. wayMutual is the sidecar without a gateway here.
var gatewayWays = []string{wayMutual, wayHTTPS, wayProxy, wayPass, wayHandoff, wayPast, wayV6, wayHAProxy, wayNginx}

// Objects of the bench. The paper takes 10 KiB for figure 4(a), and 10 and 100 KiB for 4(c) and 4(d).
var (
	smallest = pseudonymSizes[0]
	usual    = pseudonymSizes[1]
	hundred  = pseudonymSizes[2]
	largest  = object{"10MiB", 10 << 20}
)

func gatewayTopology(name, baseline string) pseudonymCases {
	return gatewayTopologyIn(gatewayWorld(), name, baseline, "")
}

// gatewayTopologyIn is in a world whose cloud may join its networks by a bridge of Open vSwitch.
func gatewayTopologyIn(world lab.World, name, baseline, bridge string) pseudonymCases {
	t := newPseudonymCases(name, baseline, world)
	t.serve = func(ctx context.Context, s *stage) error {
		return (&gatewayServers{pseudonymServers: pseudonymServers{stage: s, ways: t.ways}, bridge: bridge}).start(ctx, t.wanted())
	}
	return t
}

func gatewayWorld() lab.World {
	return lab.PastCloud(withMovedSite(lab.WithIPv6(lab.OpenCloud("gateway", "site"))))
}

// withMovedSite gives the one site of a cloud its second address.
func withMovedSite(w lab.World) lab.World {
	last := &w.Links[len(w.Links)-1]
	last.B.Addrs = append(last.B.Addrs, netip.PrefixFrom(movedSite, 24))
	w.Names = []lab.NameSpec{{Name: pseudonymName, Addr: pseudonymSite}}
	return w
}

// gatewayLatency is figure 3(a).
func gatewayLatency(quick bool) *topology {
	t := gatewayTopology("latency", wayMutual)
	for _, size := range pseudonymSizes {
		for _, w := range gatewayWays {
			t.add(size.name+"/"+w, w, func(ctx context.Context, _ *stage, w way) ([]figure, error) { return fetchLatency(ctx, w, size, quick) })
		}
	}
	return t.topology
}

// gatewayRate is figure 3(b).
func gatewayRate(quick bool) *topology {
	t := gatewayTopology("rate", wayMutual)
	clients := []int{1, rateClients}
	if quick {
		clients = clients[1:]
	}
	for _, n := range clients {
		for _, w := range gatewayWays {
			t.add(fmt.Sprintf("%s/%d", w, n), w, func(ctx context.Context, _ *stage, w way) ([]figure, error) {
				return fetchRate(ctx, w, smallest, n, quick)
			})
		}
	}
	return t.topology
}

// gatewayOffered is figure 3(b) in whole: answers a second against requests a second, of the three ways that the paper has.
func gatewayOffered(quick bool) *topology {
	t := gatewayTopology("offered", wayMutual)
	rates := []int{100, 200, 400, 600, 800, 1200}
	if quick {
		rates = []int{200, 600, 1200}
	}
	for _, n := range rates {
		for _, w := range []string{wayMutual, wayHTTPS, wayHandoff} {
			t.add(fmt.Sprintf("%d/%s", n, w), w, func(ctx context.Context, _ *stage, w way) ([]figure, error) {
				return fetchOffered(ctx, w, smallest, n, quick)
			})
		}
	}
	return t.topology
}

// gatewayBursts are clients at once. A sidecar has places for 64 unfinished handshakes of one address.
var gatewayBursts = []int{8, 24, 48}

// gatewayBurst is figure 4(a), which the paper gives relative to HTTPS.
func gatewayBurst(quick bool) *topology {
	t := gatewayTopology("burst", wayHTTPS)
	times := 20
	if quick {
		times = 5
	}
	for _, n := range gatewayBursts {
		for _, w := range gatewayWays {
			t.add(fmt.Sprintf("%d/%s", n, w), w, func(ctx context.Context, _ *stage, w way) ([]figure, error) { return fetchAtOnce(ctx, w, n, times) })
		}
	}
	return t.topology
}

// fetchAtOnce is the median time that n clients need who begin at once, until all have their object.
func fetchAtOnce(ctx context.Context, w way, n, times int) ([]figure, error) {
	var took []float64
	for range times {
		began, ends := time.Now(), make([]time.Duration, n)
		var all errgroup.Group
		for i := range n {
			all.Go(func() error {
				waited := time.Since(began)
				one, err := w.fetch(ctx, usual)
				ends[i] = waited + one
				return err
			})
		}
		if err := all.Wait(); err != nil {
			return nil, err
		}
		took = append(took, slices.Max(ends).Seconds()*1000)
	}
	return []figure{{"", "completion", "ms", median(took)}}, nil
}

// objectClients fetch large objects at a time.
const objectClients = 4

// gatewayObject is figure 4(b). The processor time of the gateway or relay is relative to HAProxy's.
func gatewayObject(quick bool) *topology {
	t := gatewayTopology("object", wayMutual)
	t.instead = func(v variant, figure string) string {
		if figure == "processor" {
			return strings.TrimSuffix(v.name, t.by[v.name]) + wayHAProxy
		}
		return ""
	}
	sizes := []object{smallest, usual, hundred, pseudonymSizes[3], largest}
	if quick {
		sizes = []object{usual, pseudonymSizes[3], largest}
	}
	for _, size := range sizes {
		for _, w := range gatewayWays {
			t.add(size.name+"/"+w, w, func(ctx context.Context, _ *stage, w way) ([]figure, error) { return fetchLarge(ctx, w, size, quick) })
		}
	}
	return t.topology
}

// fetchLarge measures goodput, and the time of processors that the controller takes for a GiB.
func fetchLarge(ctx context.Context, w way, size object, quick bool) ([]figure, error) {
	before, err := processor(w.controller)
	if err != nil {
		return nil, err
	}
	n, took, err := repeat(objectClients, quick, w.fetching(ctx, size))
	if err != nil {
		return nil, err
	}
	after, err := processor(w.controller)
	bytes := n * float64(size.bytes)
	figures := []figure{throughput("", bytes*8/took.Seconds())}
	if w.controller != 0 {
		figures = append(figures, figure{"processor", "processor", "s/GiB", (after - before).Seconds() / bytes * (1 << 30)})
	}
	return figures, err
}

// gatewayPaper returns what the paper's text gives: the rates of figure 3(b) at the most, and the bounds that it names for figures 4(a), 4(c) and 4(d).
func gatewayPaper(name string) *float64 {
	const mutual = 450.9 // requests/s
	words, ofUsual := strings.Split(name, "/"), strings.TrimSuffix(name, "/"+hundred.name)
	var ratio float64
	switch {
	case words[0] == "rate" && words[1] == wayHTTPS:
		ratio = 490.5 / mutual
	case words[0] == "rate" && words[1] == wayHandoff:
		ratio = 325.8 / mutual
	case words[0] == "burst" && words[2] == wayHandoff:
		ratio = 1.4 // at most
	case strings.HasSuffix(ofUsual, fmt.Sprintf("rules/%d/%s", mostRules, wayHandoff)):
		ratio = 2 // less than
	case ofUsual == fmt.Sprintf("pseudonyms/%d", paperPseudonyms):
		ratio = 1
	default:
		return nil
	}
	return &ratio
}

// gatewayGoals are goals for ratios, by case. They are about eight clients, small objects and the largest ones.
var gatewayGoals = map[string]string{
	"rate/v6/8": ">=0.97", "rate/fdpass/8": ">=0.97", "rate/handoff/8": ">=0.95",
	"latency/1KiB/v6": "<=1.05", "latency/1KiB/handoff": "<=1.15",
	"object/10MiB/handoff": ">=1.00", "object/10MiB/v6": ">=1.00",
	"object/10MiB/handoff/processor": "<=0.10", "object/10MiB/v6/processor": "<=0.10",
	"stall/lost/handoff": "+200 ms", "ovs/stall/lost/handoff": "+200 ms", // the least timeout of TCP on Linux
	"rules/" + strconv.Itoa(mostRules) + "/handoff/insert": ">=200000/s", "rules/" + strconv.Itoa(mostRules) + "/handoff/delete": ">=200000/s",
}

func gatewayGoal(name string) string { return gatewayGoals[name] }
