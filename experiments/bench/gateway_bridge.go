package bench

import (
	"context"
	"fmt"
	"net/netip"

	"heddle/internal/openflow"
	"heddle/lab"
	"heddle/lab/peer"
)

// bridgeDevice is the device of the bridge of Open vSwitch on the gateway's machine.
const bridgeDevice = "br0"

// bridgeTopology is of the mode handoff by a bridge of Open vSwitch, the paper's switch. Its datapath is in the process ovs-vswitchd. The baseline is mutual
// TLS through the same bridge.
func bridgeTopology(name, baseline string) pseudonymCases {
	t := gatewayTopologyIn(withMovedSite(lab.BridgedCloud("gateway", "site")), name, baseline, bridgeDevice)
	t.check = peer.OpenVSwitchSupported
	return t
}

// gatewayBridge is what figures 3(a), 3(b) and 4(b) have for small and for large objects.
func gatewayBridge(quick bool) *topology {
	t := bridgeTopology("ovs", wayMutual)
	for _, w := range []string{wayMutual, wayHandoff} {
		t.add("latency/"+smallest.name+"/"+w, w, func(ctx context.Context, _ *stage, w way) ([]figure, error) {
			return fetchLatency(ctx, w, smallest, quick)
		})
		t.add(fmt.Sprintf("rate/%s/%d", w, rateClients), w, func(ctx context.Context, _ *stage, w way) ([]figure, error) {
			return fetchRate(ctx, w, smallest, rateClients, quick)
		})
		t.add("object/"+largest.name+"/"+w, w, func(ctx context.Context, _ *stage, w way) ([]figure, error) {
			return fetchLarge(ctx, w, largest, quick)
		})
	}
	return t.topology
}

// gatewayBridgeRules is figure 4(c).
func gatewayBridgeRules(quick bool) *topology {
	t := bridgeTopology("ovs/rules", wayHandoff)
	t.addRules(quick, []int{0, 10_000, 100_000, mostRules}, func(s *stage) (rules, error) { return openOVSRules(s) })
	return t.topology
}

// ovsRules are rules of a bridge. Those of a connection come and go in one bundle.
type ovsRules struct{ to *openflow.Conn }

func openOVSRules(s *stage) (f ovsRules, err error) {
	f.to, err = openflow.Dial(peer.BridgeSocket(s.Host("cloud"), bridgeDevice), func(any) {})
	return f, err
}

// flowCookie is that of one of the two flows of a connection.
func flowCookie(number, direction int) uint64 {
	return 0x6265<<48 | uint64(number)<<1 | uint64(direction)
}

func (f ovsRules) put(number int, client, gateway, tenant netip.AddrPort) error {
	one := func(direction int, from, to netip.AddrPort, instead openflow.Field) openflow.Change {
		return openflow.Flow{Cookie: flowCookie(number, direction), Priority: 100,
			Match: openflow.Match{openflow.U16(openflow.EthType, 0x0800), openflow.U8(openflow.IPProto, 6), openflow.Source(from.Addr()), openflow.Target(to.Addr()),
				openflow.U16(openflow.TCPSrc, from.Port()), openflow.U16(openflow.TCPDst, to.Port())},
			Actions: []openflow.Action{openflow.Set(instead), openflow.Output(openflow.Normal, 0)}}.Add()
	}
	return f.to.Change(one(0, client, gateway, openflow.Target(tenant.Addr())), one(1, tenant, client, openflow.Source(gateway.Addr())))
}

func (f ovsRules) remove(number int, _, _, _ netip.AddrPort) error {
	return f.to.Change(openflow.Delete(flowCookie(number, 0), ^uint64(0)), openflow.Delete(flowCookie(number, 1), ^uint64(0)))
}

func (f ovsRules) Close() error { return f.to.Close() }
