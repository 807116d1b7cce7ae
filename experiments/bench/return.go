package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"heddle/internal/netutil"
	"heddle/lab"
)

// Return measures how soon a path that was cut until it was silent is up again after it came back: with `heddle up` and each
// backend of `heddle split` around the unmodified wireguard-go, over paths of 10, 15 and 25 ms, while the tunnel is idle, has
// bursts, also such that the server sends at once, and is full.
func Return() Bench {
	return Bench{
		name: "return",
		topologies: func(quick bool) []*topology {
			loads, periods := []string{"idle", "bursty", "at-once", "full"}, []string{"100ms", "10ms"}
			if quick {
				loads, periods = []string{"bursty"}, periods[:1]
			}
			var all []*topology
			for _, load := range loads {
				for _, every := range periods {
					all = append(all, returnTopology(load, every))
				}
			}
			return all
		},
		paper: func(string) *float64 { return nil },
		goal:  func(string) string { return "2 s" },
	}
}

func returnTopology(load, every string) *topology {
	t := &tunnel{}
	split := func(flags ...string) wireguardClient {
		to := wireguardEndpoint
		if flags[1] == "relay" {
			to, flags = relayEndpoint, append(flags, "--listen", relayEndpoint.String())
		}
		return startSplit(to, append(flags, "--every", every)...)
	}
	return &topology{name: load + "/" + every, world: lab.ThreeWaysUnequal(), serve: t.serve, cases: []variant{
		t.returning("up", load, heddleUp(every, lab.Ways)),
		t.returning("relay", load, split("--backend", "relay")),
		t.returning("kernel", load, split("--backend", "kernel")),
		t.returning("route", load, split("--backend", "route")),
	}}
}

// comesBack is the path that is cut and restored.
const comesBack = "lte"

// returning cuts a path of the client until it is silent, restores it, and measures the time until it is up.
func (t *tunnel) returning(name, load string, client wireguardClient) variant {
	return variant{name, t.use(client, func(ctx context.Context, s *stage) (all []figure, err error) {
		if load == "at-once" { // the server keeps its window over the pauses
			if err := s.Host("server").Command(ctx, "sysctl", "-qw", "net.ipv4.tcp_slow_start_after_idle=0").Run(); err != nil {
				return nil, fmt.Errorf("sysctl on the server: %w", err)
			}
		}
		working, stop := context.WithCancel(ctx)
		var work sync.WaitGroup
		work.Go(func() { s.keepBusy(working, load) })
		defer work.Wait()
		defer stop()
		link := s.Link(comesBack)
		defer func() { err = errors.Join(err, link.Restore()) }()
		for _, step := range []func() error{
			func() error { return s.awaitState(ctx, "up") },
			link.Cut,
			func() error { return s.awaitState(ctx, "silent") },
			func() error { return s.awaitTraffic(ctx) },
			s.ResetLateness,
			link.Restore,
		} {
			if err := step(); err != nil {
				return nil, err
			}
		}
		began := time.Now()
		if err := s.awaitState(ctx, "up"); err != nil {
			return nil, err
		}
		return []figure{{"", "return", "s", time.Since(began).Seconds()}}, nil
	})}
}

// keepBusy keeps the tunnel at work until ctx ends.
func (s *stage) keepBusy(ctx context.Context, load string) {
	command := map[string][]string{
		"idle":    {"ping", "-q", "-i", "0.3", iperfAddr.Addr().String()},
		"at-once": {"iperf3", "-c", iperfAddr.Addr().String(), "-R", "-t", "600", "-C", "cubic", "-l", "100K", "-b", "2700K"}, // without pacing
		"bursty":  {"iperf3", "-c", iperfAddr.Addr().String(), "-R", "-t", "600", "-l", "10K", "-b", "2700K/10"},              // 100 kB each 0.3 s
		"full":    {"iperf3", "-c", iperfAddr.Addr().String(), "-R", "-t", "600"},
	}[load]
	for netutil.Sleep(ctx, 100*time.Millisecond) == nil {
		_ = s.Host("client").Command(ctx, command[0], command[1:]...).Run() // it ends with ctx, or when its connection does
	}
}

// pathState is what heddle status says of a path.
type pathState struct {
	Name  string `json:"name"`
	State string `json:"state"`
	Down  struct {
		Packets uint64 `json:"packets"`
	} `json:"down"`
}

// paths are those of the session that began last, by Heddle's status.
func (s *stage) paths(ctx context.Context) ([]pathState, error) {
	out, err := s.Host("client").Command(ctx, s.heddle, "status", "--json").Output()
	if err != nil {
		return nil, err
	}
	var all struct {
		Running []struct {
			Sessions []struct {
				Paths []pathState `json:"paths"`
			} `json:"sessions"`
		} `json:"running"`
	}
	if err := json.Unmarshal(out, &all); err != nil {
		return nil, err
	}
	if len(all.Running) == 0 || len(all.Running[0].Sessions) == 0 {
		return nil, errors.New("there is no session")
	}
	sessions := all.Running[0].Sessions
	return sessions[len(sessions)-1].Paths, nil
}

// awaitState waits until the path that is cut and restored has a state.
func (s *stage) awaitState(ctx context.Context, state string) error {
	return s.awaitPaths(ctx, fmt.Sprintf("path %s is not %s", comesBack, state), func(paths []pathState) bool {
		return slices.ContainsFunc(paths, func(p pathState) bool { return p.Name == comesBack && p.State == state })
	})
}

// awaitTraffic waits until the server sends more than a handshake. If the path is cut that it heard last, while the client has nothing
// to send, the server's TCP repeats itself there, at last each half minute, and the session stands still.
func (s *stage) awaitTraffic(ctx context.Context) error {
	const enough = 10 // packets
	var first uint64
	return s.awaitPaths(ctx, "the session stands still", func(paths []pathState) bool {
		var all uint64
		for _, p := range paths {
			all += p.Down.Packets
		}
		first = cmp.Or(first, all)
		return all >= first+enough
	})
}

func (s *stage) awaitPaths(ctx context.Context, what string, wanted func([]pathState) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		paths, err := s.paths(ctx)
		if wanted(paths) {
			return nil
		}
		if netutil.Sleep(ctx, 20*time.Millisecond) != nil {
			return errors.Join(fmt.Errorf("%s within two minutes: %+v", what, paths), err)
		}
	}
}
