package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// returning is a `heddle split`, and a session through it that a program keeps at work.
type returning struct {
	*lab.Instance
	t     *testing.T
	name  string
	split *peer.Process
	stop  func() // of the capture where nothing may be
}

func startSplit(t *testing.T, in *lab.Instance, name, every string, to netip.AddrPort, how ...string) *returning {
	t.Helper()
	args := slices.Concat([]string{"split", "--name", name, "--to", to.String(), "--schedule", "uniform", "--every", every}, how, via)
	p, err := peer.Start(t.Context(), in.Host("client"), labtest.Heddle, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	if err := p.AwaitLog(t.Context(), "over 3 paths"); err != nil {
		if strings.Contains(err.Error(), "the kernel refuses") {
			t.Skip("typed skip:", err)
		}
		t.Fatal(err)
	}
	return &returning{in, t, name, p, labtest.Unchosen(t, in, "client/"+labtest.Bystander)}
}

// await asks for the status of the session that began last until it is as wanted.
func (r *returning) await(what string, wanted func(status) bool) {
	r.t.Helper()
	polltest.Await(r.t, what, func() bool {
		out, err := r.Host("client").Command(r.t.Context(), labtest.Heddle, "status", r.name, "--json").Output()
		var all struct {
			Running []struct {
				Sessions []status `json:"sessions"`
			} `json:"running"`
		}
		if err != nil || json.Unmarshal(out, &all) != nil || len(all.Running) != 1 || len(all.Running[0].Sessions) == 0 {
			return false
		}
		sessions := all.Running[0].Sessions
		return wanted(sessions[len(sessions)-1])
	})
}

// repeat starts work in the background until the test ends.
func repeat(t *testing.T, work func(context.Context)) {
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			work(ctx)
		}
	})
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

var wireguardAt, quicAt = netip.AddrPortFrom(lab.ServerAddr, 51820), netip.AddrPortFrom(lab.ServerAddr, 4433)

// load lets a program keep a session at work until the test ends. at is the relay, or the server itself.
type load func(t *testing.T, at netip.AddrPort)

// newLoads starts the servers, and returns the loads by name.
func newLoads(t *testing.T, in *lab.Instance) map[string]load {
	t.Helper()
	iperf := netip.MustParseAddrPort("10.9.0.1:5201")
	wg, err := peer.WireGuardServer(t.Context(), in.Host("server"), peer.WireGuardConfig{Endpoint: wireguardAt, Allowed: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := peer.IperfServer(t.Context(), in.Host("server"), iperf); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	web, err := peer.QUICServer(t.Context(), in.Host("server"), "quic-go", peer.QUICConfig{Addr: quicAt, Names: []string{"web.example"}, Work: dir, Root: dir, Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	tunnel := func(t *testing.T, at netip.AddrPort) {
		p, err := wg.Client(t.Context(), in.Host("client"), at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Stop)
	}
	return map[string]load{
		"wireguard/idle": func(t *testing.T, at netip.AddrPort) {
			tunnel(t, at)
			repeat(t, func(ctx context.Context) {
				in.Host("client").Command(ctx, "ping", "-i", "0.3", "10.9.0.1").Run()
			})
		},
		"wireguard/full": func(t *testing.T, at netip.AddrPort) {
			tunnel(t, at)
			repeat(t, func(ctx context.Context) {
				peer.Iperf(ctx, in.Host("client"), peer.IperfTest{To: iperf, Down: true, For: 10 * time.Minute})
			})
		},
		"quic/bursty": func(t *testing.T, at netip.AddrPort) {
			repeat(t, func(ctx context.Context) {
				web.Fetch(ctx, in.Host("client"), peer.QUICTest{To: at, For: 10 * time.Minute, Pause: 300 * time.Millisecond, Size: 100_000})
			})
		},
		"quic/full": func(t *testing.T, at netip.AddrPort) {
			repeat(t, func(ctx context.Context) {
				web.Fetch(ctx, in.Host("client"), peer.QUICTest{To: at, For: 10 * time.Minute})
			})
		},
	}
}

// serverOf returns the server of a load.
func serverOf(load string) netip.AddrPort {
	if strings.HasPrefix(load, "quic") {
		return quicAt
	}
	return wireguardAt
}

// A relay leaves a path that is cut and returns to it, although nobody but the program can ask the server.
func TestRelayReturnsToAPath(t *testing.T) {
	t.Parallel()
	in := labtest.Up(t, labtest.WithBystander(lab.ThreeWaysUnequal()))
	loads := newLoads(t, in)
	cases := []struct{ every, load string }{{"10ms", "wireguard/full"}, {"100ms", "wireguard/idle"}, {"10ms", "quic/bursty"}, {"100ms", "quic/full"}}
	for i, c := range cases {
		t.Run(c.load+"/"+c.every, func(t *testing.T) {
			relay := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(51900+i))
			r := startSplit(t, in, fmt.Sprint("relay", i), c.every, serverOf(c.load), "--listen", relay.String())
			loads[c.load](t, relay)
			r.cutAndRestore(serverOf(c.load))
		})
	}
}

// So do the backends below the socket, to whose server the program itself sends.
func TestBackendsReturnToAPath(t *testing.T) {
	cases := []struct{ every, load string }{{"10ms", "wireguard/full"}, {"100ms", "wireguard/idle"}, {"10ms", "quic/bursty"}, {"100ms", "quic/full"}}
	for _, backend := range []string{"kernel", "route"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			in := labtest.Up(t, labtest.WithBystander(lab.ThreeWaysUnequal()))
			loads := newLoads(t, in)
			for i, c := range cases {
				t.Run(c.load+"/"+c.every, func(t *testing.T) {
					r := startSplit(t, in, fmt.Sprint(backend, i), c.every, serverOf(c.load), "--backend", backend)
					loads[c.load](t, serverOf(c.load))
					r.cutAndRestore(serverOf(c.load))
					r.split.Stop()
				})
			}
		})
	}
}

// cutAndRestore cuts a path until it is silent, and restores it.
func (r *returning) cutAndRestore(server netip.AddrPort) {
	t := r.t
	t.Helper()
	r.await("all paths are up", func(s status) bool {
		for _, p := range s.Paths {
			if p.State != "up" {
				return false
			}
		}
		return true
	})
	if err := r.Link("lte").Cut(); err != nil {
		t.Fatal(err)
	}
	r.await("the path that is cut is silent", func(s status) bool { return s.path("lte").State == "silent" })
	dir := t.TempDir()
	end := labtest.Capture(t, r.Instance, dir, map[string]string{"lte": "client/lte"})
	var before uint64 // what the capture may have missed
	r.await("the program says what it sent", func(s status) bool {
		before = s.path("lte").Up.Packets
		return true
	})
	r.await("the silent path is tried", func(s status) bool { return s.path("lte").Up.Packets > before })
	if err := r.Link("lte").Restore(); err != nil {
		t.Fatal(err)
	}
	r.await("the path is up again", func(s status) bool { return s.path("lte").State == "up" })
	end()
	r.stop()
	c := labtest.Read(t, labtest.File(dir, "lte"), r.Host("client").Addrs())
	up, down := 0, 0
	for _, p := range c.Packets {
		switch {
		case c.Flows[p.Flow].Server != server: // the machine's own, such as neighbour discovery
		case !p.Out:
			down++
		case down == 0:
			up++
		}
	}
	if up == 0 || down == 0 {
		t.Errorf("%d packets of the session left by the silent path before the first of %d answers", up, down)
	}
	if t.Failed() {
		t.Log(r.split.Log())
	}
}
