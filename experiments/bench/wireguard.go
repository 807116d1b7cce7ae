package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"heddle/lab"
	"heddle/lab/peer"
)

// paperWireGuard is the relative throughput at a switching period of 100 ms: "around 5-6%" less (CoMPS, sections 1 and 6).
const paperWireGuard = 0.945

var (
	wireguardEndpoint = netip.AddrPortFrom(lab.ServerAddr, 51820)
	relayEndpoint     = netip.MustParseAddrPort("127.0.0.1:51820")
	iperfAddr         = netip.MustParseAddrPort("10.9.0.1:5201")
	// closedPort is in the tunnel, and nobody listens there: a refusal proves that packets go both ways.
	closedPort = netip.MustParseAddrPort("10.9.0.1:9")
)

// WireGuard is figure 8(a) of CoMPS: TCP throughput through a WireGuard tunnel by switching period, over three paths,
// relative to no switching and, without emulated limits, to plain wireguard-go. In shared all paths have one
// bottleneck. The server is the unmodified wireguard-go.
func WireGuard() Bench {
	return Bench{
		name: "wireguard",
		topologies: func(quick bool) []*topology {
			if quick {
				return wireguardTopologies(true, 3*time.Second, time.Second)
			}
			return wireguardTopologies(false, 4*time.Second, time.Second)
		},
		paper: func(name string) *float64 {
			if strings.HasPrefix(name, "unlimited/") || !strings.Contains(name, "/100ms/") {
				return nil
			}
			return new(paperWireGuard)
		},
	}
}

// sharedPeriods are the cases over [lab.ThreeWaysShared], where a ratio above 1 cannot come from aggregation.
var sharedPeriods = []string{"none", "100ms", "10ms"}

// wireguardClient starts one kind of client tunnel.
type wireguardClient func(ctx context.Context, s *stage, t *tunnel, seed int) ([]*peer.Process, error)

// tunnel is the server of one topology. length is measured in each direction, after omit.
type tunnel struct {
	*peer.WireGuard
	file         string // wg-quick file of the client
	directions   []string
	length, omit time.Duration
}

func wireguardTopologies(quick bool, length, omit time.Duration) []*topology {
	in := func(name string, world lab.World, directions ...string) (*topology, *tunnel) {
		t := &tunnel{directions: directions, length: length, omit: omit}
		return &topology{name: name, world: world, serve: t.serve}, t
	}
	equal, equalTunnel := in("equal", lab.ThreeWays(), "down", "up")
	unequal, unequalTunnel := in("unequal", lab.ThreeWaysUnequal(), "down", "up")
	shared, sharedTunnel := in("shared", lab.ThreeWaysShared(), "down")
	unlimited, unlimitedTunnel := in("unlimited", lab.ThreeWaysUnlimited(), "down", "up")
	for _, every := range []string{"none", "500ms", "200ms", "100ms", "50ms", "40ms", "20ms", "10ms", "50p", "200p"} {
		if !quick || every == "none" || every == "100ms" || every == "50p" {
			equal.cases = append(equal.cases, equalTunnel.variant(every, heddleUp(every, lab.Ways)))
		}
		if !quick || every == "none" || every == "100ms" {
			unequal.cases = append(unequal.cases, unequalTunnel.variant(every, heddleUp(every, lab.Ways)))
		}
	}
	for _, every := range sharedPeriods {
		shared.cases = append(shared.cases, sharedTunnel.variant(every, heddleUp(every, lab.Ways)))
	}
	unlimited.cases = []variant{
		unlimitedTunnel.variant("wireguard-go", startPlain),
		unlimitedTunnel.variant("one-path", heddleUp("none", lab.Ways[:1])),
		unlimitedTunnel.variant("100ms", heddleUp("100ms", lab.Ways)),
	}
	if !quick {
		unlimited.cases = append(unlimited.cases, unlimitedTunnel.variant("relay-100ms", startRelay))
	}
	return []*topology{equal, unequal, shared, unlimited}
}

func (t *tunnel) serve(ctx context.Context, s *stage) (err error) {
	t.WireGuard, t.file, err = serveWireGuard(ctx, s, "10.9.0.0/24", "fd09::/64")
	return err
}

// serveWireGuard starts the unmodified wireguard-go for a client that sends these networks into the tunnel.
func serveWireGuard(ctx context.Context, s *stage, allowed ...string) (server *peer.WireGuard, file string, err error) {
	config := peer.WireGuardConfig{Endpoint: wireguardEndpoint, File: filepath.Join(s.work, "client.conf")}
	for _, network := range allowed {
		config.Allowed = append(config.Allowed, netip.MustParsePrefix(network))
	}
	server, err = peer.WireGuardServer(ctx, s.Host("server"), config)
	return server, config.File, err
}

// heddleUp runs `heddle up` over the access networks.
func heddleUp(every string, ways []string) wireguardClient {
	return func(ctx context.Context, s *stage, t *tunnel, seed int) ([]*peer.Process, error) {
		return processes(s.start(ctx, slices.Concat([]string{"up", t.file}, schedule(every, seed), over(ways))...))
	}
}

// startSplit runs the unmodified wireguard-go, and `heddle split` with these flags for what it sends to an address.
func startSplit(to netip.AddrPort, flags ...string) wireguardClient {
	return func(ctx context.Context, s *stage, t *tunnel, seed int) ([]*peer.Process, error) {
		below, err := s.split(ctx, wireguardEndpoint, seed, flags)
		if err != nil {
			return nil, err
		}
		plain, err := t.Client(ctx, s.Host("client"), to)
		if err != nil {
			below.Stop()
			return nil, err
		}
		return []*peer.Process{plain, below}, nil
	}
}

// startRelay uses the relay backend.
var startRelay = startSplit(relayEndpoint, "--listen", relayEndpoint.String())

// startPlain runs the unmodified wireguard-go over the default route.
func startPlain(ctx context.Context, s *stage, t *tunnel, _ int) ([]*peer.Process, error) {
	return processes(t.Client(ctx, s.Host("client"), wireguardEndpoint))
}

func processes(p *peer.Process, err error) ([]*peer.Process, error) {
	if err != nil {
		return nil, err
	}
	return []*peer.Process{p}, nil
}

// split runs `heddle split` over all access networks at the default period, and waits until it is up.
func (s *stage) split(ctx context.Context, to netip.AddrPort, seed int, flags []string) (*peer.Process, error) {
	return s.startUntil(ctx, "over 3 paths",
		slices.Concat([]string{"split", "--to", to.String()}, schedule("100ms", seed), over(lab.Ways), flags)...)
}

// over returns the flags of `heddle up` and `heddle split` for a path over each access network.
func over(ways []string) (flags []string) {
	for _, way := range ways {
		flags = append(flags, "--via", way+"=if:"+way)
	}
	return flags
}

// schedule returns the flags for the schedule.
func schedule(every string, seed int) []string {
	return []string{"--schedule", "weighted", "--every", every, "--seed", strconv.Itoa(seed)}
}

// use starts iperf3's server and the client, and measures once the tunnel is up.
func (t *tunnel) use(client wireguardClient, measure func(context.Context, *stage) ([]figure, error)) func(context.Context, *stage, int) ([]figure, error) {
	return func(ctx context.Context, s *stage, seed int) ([]figure, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		iperf, err := peer.IperfServer(ctx, s.Host("server"), iperfAddr)
		if err != nil {
			return nil, err
		}
		defer iperf.Stop()
		running, err := client(ctx, s, t, seed)
		if err != nil {
			return nil, err
		}
		defer func() {
			for _, p := range running {
				p.Stop()
			}
		}()
		if err := awaitTunnel(ctx, s, running); err != nil {
			return nil, err
		}
		figures, err := measure(ctx, s)
		if err != nil {
			err = errors.Join(err, logs(running...))
		}
		return figures, err
	}
}

// variant measures each direction, one after the other, through the client.
func (t *tunnel) variant(name string, client wireguardClient) variant {
	return variant{name, t.use(client, func(ctx context.Context, s *stage) ([]figure, error) {
		if err := s.ResetLateness(); err != nil {
			return nil, err
		}
		var figures []figure
		for _, direction := range t.directions {
			result, err := peer.Iperf(ctx, s.Host("client"),
				peer.IperfTest{To: iperfAddr, Down: direction == "down", For: t.length, Omit: t.omit})
			if err != nil {
				return nil, err
			}
			figures = append(figures, throughput(direction, result.BitsPerSecond))
		}
		return figures, nil
	})}
}

// awaitTunnel waits until a packet has crossed the tunnel and back.
func awaitTunnel(ctx context.Context, s *stage, running []*peer.Process) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	dialer := net.Dialer{Timeout: 500 * time.Millisecond}
	for {
		err := s.Host("client").Do(func() error {
			conn, err := dialer.DialContext(ctx, "tcp", closedPort.String())
			if err == nil {
				conn.Close()
			}
			return err
		})
		if errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		for _, p := range running {
			select {
			case <-p.Done():
				return fmt.Errorf("the tunnel's client ended: %w", logs(running...))
			default:
			}
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the tunnel does not come up: %w", err), logs(running...))
		case <-time.After(10 * time.Millisecond): // without a route, the dial fails at once
		}
	}
}
