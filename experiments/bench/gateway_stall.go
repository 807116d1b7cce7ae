package bench

import (
	"context"
	"net"
	"time"

	"heddle/lab"
)

// stallDelay is that of the client's link in the cases of stalls. A packet that overtakes others skips it.
const stallDelay = 5 * time.Millisecond

// stallTroubles are what may befall one packet of the client's link.
var stallTroubles = []struct {
	name string
	set  func(*lab.Shape)
}{
	{"lost", func(s *lab.Shape) { s.Loss = 1 }},
	{"overtaking", func(s *lab.Shape) { s.Reorder = 1 }},
	{"twice", func(s *lab.Shape) { s.Duplicate = 1 }},
}

// stallPositions are how many packets of each direction get into trouble in turn: a fetch has about as many.
const stallPositions = 12

// gatewayStall is how long a fetch takes at most if one packet is lost, overtakes others or comes twice. The paper has no such figure.
func gatewayStall(quick bool) *topology {
	return stallTopology(gatewayTopologyIn(farClient(gatewayWorld()), "stall", wayMutual, ""), quick)
}

// gatewayBridgeStall is the same by a bridge of Open vSwitch.
func gatewayBridgeStall(quick bool) *topology {
	t := bridgeTopology("ovs/stall", wayMutual)
	t.world = farClient(t.world)
	return stallTopology(t, quick)
}

func farClient(w lab.World) lab.World {
	w.Links[0] = w.Links[0].Both(lab.Shape{Delay: stallDelay})
	return w
}

func stallTopology(t pseudonymCases, quick bool) *topology {
	positions := stallPositions
	if quick {
		positions = 4
	}
	for _, trouble := range stallTroubles {
		for _, w := range []string{wayMutual, wayHandoff} {
			t.add(trouble.name+"/"+w, w, func(ctx context.Context, s *stage, w way) ([]figure, error) {
				return fetchInTrouble(ctx, s.Link(t.world.Links[0].Name), w, trouble.set, positions)
			})
		}
	}
	return t.topology
}

// fetchInTrouble fetches once for each packet that gets into trouble, and returns the longest time from the open connection to its end. A loss before that
// costs each connection the same: the first timeout of TCP, a second.
func fetchInTrouble(ctx context.Context, link *lab.Link, w way, trouble func(*lab.Shape), positions int) ([]figure, error) {
	var opened time.Time
	dial := w.dial
	w.dial = func(ctx context.Context) (net.Conn, error) {
		c, err := dial(ctx)
		opened = time.Now()
		return c, err
	}
	var longest time.Duration
	for i := range 2 * positions {
		if err := befall(link, i%2, i/2+1, trouble); err != nil {
			return nil, err
		}
		if _, err := w.fetch(ctx, usual); err != nil {
			return nil, err
		}
		longest = max(longest, time.Since(opened))
	}
	none := func(*lab.Shape) {}
	return []figure{{"", "longest", "ms", longest.Seconds() * 1000}}, befall(link, 0, 0, none)
}

// befall gets one packet of one direction of a link, 0 or 1, into trouble.
func befall(link *lab.Link, direction, packet int, trouble func(*lab.Shape)) error {
	at := 0
	return link.Reshape(func(s *lab.Shape) {
		*s = lab.Shape{Delay: s.Delay}
		if at == direction {
			trouble(s)
			s.Only = packet
		}
		at++
	})
}
