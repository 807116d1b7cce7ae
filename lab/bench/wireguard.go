package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"heddle/lab"
	"heddle/lab/peer"
	"heddle/path"
)

// Options say how a bench runs.
type Options struct {
	// Rounds is how often each case is measured.
	Rounds int
	// Quick measures a few cases, shorter.
	Quick bool
	// Only keeps the cases whose names begin with one of these words, such as "unlimited" or "equal/100ms", and their
	// baselines; empty keeps all.
	Only []string
	// Heddle is the path of the heddle binary under test.
	Heddle string
	// Progress takes a line for each run.
	Progress io.Writer
}

// maxLateness is the mean lateness in milliseconds above which a run does not count.
const maxLateness = 1

// attempts is how often a run is tried before the bench gives up.
const attempts = 4

// paperAt100ms is the throughput at a switching period of 100 ms relative to none: "around 5-6%" less, CoMPS,
// sections 1 and 6.
const paperAt100ms = 0.945

var (
	wireguardEndpoint = netip.AddrPortFrom(lab.ServerAddr, 51820)
	relayEndpoint     = netip.MustParseAddrPort("127.0.0.1:51820")
	iperfAddr         = netip.MustParseAddrPort("10.9.0.1:5201")
	// closedPort is in the tunnel, and nothing listens there: a refusal proves that packets go both ways.
	closedPort = netip.MustParseAddrPort("10.9.0.1:9")
)

// client is one way to bring up the tunnel in the client host.
type client struct {
	name  string
	start func(ctx context.Context, t *topology, seed int) ([]*peer.Process, error)
}

// topology is one world with its server, and the clients that are compared in it; the first is the baseline.
type topology struct {
	name    string
	world   lab.World
	clients []client

	in     *lab.Instance
	server *peer.WireGuard
	file   string // wg-quick file of the client
	heddle string
}

// WireGuard is figure 8(a) of CoMPS: TCP throughput through a WireGuard tunnel against the switching period, over
// three paths, relative to no switching; and, without emulated limits, relative to plain wireguard-go. The server is
// the unmodified wireguard-go. The report holds what was measured also where an error ended it early.
func WireGuard(ctx context.Context, o Options) (Report, error) {
	w := &wireguardBench{options: o, length: 4 * time.Second, omit: time.Second, samples: map[string][]sample{}}
	if o.Quick {
		w.length = 3 * time.Second
	}
	w.report = Report{Bench: "wireguard", Machine: thisMachine(), Load: Load{Start: loadNow()}}
	var err error
	if w.topologies, err = only(wireguardTopologies(o.Quick), o.Only); err == nil {
		err = w.run(ctx)
	}
	w.report.Load.End = loadNow()
	w.report.Rows = w.rows()
	return w.report, err
}

// Check says what is wrong with the options.
func (o Options) Check() error {
	_, err := only(wireguardTopologies(o.Quick), o.Only)
	return err
}

func wireguardTopologies(quick bool) []*topology {
	periods := []string{"none", "500ms", "200ms", "100ms", "50ms", "40ms", "20ms", "10ms", "50p", "200p"}
	unequal := periods
	direct := []client{
		{"wireguard-go", startPlain},
		{"one-path", heddleUp("none", lab.Ways[:1])},
		{"100ms", heddleUp("100ms", lab.Ways)},
		{"relay-100ms", startRelay},
	}
	if quick {
		periods, unequal, direct = []string{"none", "100ms", "50p"}, []string{"none", "100ms"}, direct[:3]
	}
	ups := func(periods []string) (all []client) {
		for _, p := range periods {
			all = append(all, client{p, heddleUp(p, lab.Ways)})
		}
		return all
	}
	return []*topology{
		{name: "equal", world: lab.ThreeWays(), clients: ups(periods)},
		{name: "unequal", world: lab.ThreeWaysUnequal(), clients: ups(unequal)},
		{name: "unlimited", world: lab.ThreeWaysUnlimited(), clients: direct},
	}
}

// only keeps the clients whose case begins with one of the words, and the baselines that these are compared with.
func only(all []*topology, words []string) ([]*topology, error) {
	if len(words) == 0 {
		return all, nil
	}
	wanted := func(t *topology, c client) bool {
		return slices.ContainsFunc(words, func(word string) bool {
			return strings.HasPrefix(t.name+"/"+c.name+"/", strings.TrimSuffix(word, "/")+"/")
		})
	}
	var kept []*topology
	for _, t := range all {
		rest := slices.DeleteFunc(slices.Clone(t.clients[1:]), func(c client) bool { return !wanted(t, c) })
		if len(rest) > 0 || wanted(t, t.clients[0]) {
			t.clients = append(t.clients[:1:1], rest...)
			kept = append(kept, t)
		}
	}
	if len(kept) == 0 {
		return nil, &path.Error{What: "--only " + strings.Join(words, ","), Why: "no case begins with that",
			Hint: "such as equal, unequal/100ms or unlimited"}
	}
	return kept, nil
}

// heddleUp runs `heddle up` over the ways. All cases of one round draw the same weights, by the seed.
func heddleUp(every string, ways []string) func(context.Context, *topology, int) ([]*peer.Process, error) {
	return func(ctx context.Context, t *topology, seed int) ([]*peer.Process, error) {
		return processes(peer.Start(ctx, t.in.Host("client"), t.heddle, append([]string{"up", t.file}, split(every, ways, seed)...)...))
	}
}

// startRelay runs the unmodified wireguard-go through `heddle split`.
func startRelay(ctx context.Context, t *topology, seed int) ([]*peer.Process, error) {
	args := append([]string{"split", "--listen", relayEndpoint.String(), "--to", wireguardEndpoint.String()}, split("100ms", lab.Ways, seed)...)
	relay, err := peer.Start(ctx, t.in.Host("client"), t.heddle, args...)
	if err != nil {
		return nil, err
	}
	plain, err := t.server.Client(ctx, t.in.Host("client"), relayEndpoint)
	if err != nil {
		relay.Stop()
		return nil, err
	}
	return []*peer.Process{plain, relay}, nil
}

// startPlain runs the unmodified wireguard-go over the default route.
func startPlain(ctx context.Context, t *topology, _ int) ([]*peer.Process, error) {
	return processes(t.server.Client(ctx, t.in.Host("client"), wireguardEndpoint))
}

func processes(p *peer.Process, err error) ([]*peer.Process, error) {
	if err != nil {
		return nil, err
	}
	return []*peer.Process{p}, nil
}

func split(every string, ways []string, seed int) []string {
	args := []string{"--schedule", "weighted", "--every", every, "--seed", strconv.Itoa(seed)}
	for _, w := range ways {
		args = append(args, "--via", w+"=if:"+w)
	}
	return args
}

// up makes the world and its server. work is a directory for the client's file.
func (t *topology) up(ctx context.Context, work, heddle string) error {
	var err error
	if t.in, err = lab.Up(ctx, t.world, lab.Options{Seed: 1}); err != nil {
		return err
	}
	t.heddle, t.file = heddle, filepath.Join(work, t.name+".conf")
	t.server, err = peer.WireGuardServer(ctx, t.in.Host("server"), peer.WireGuardConfig{
		Endpoint: wireguardEndpoint, File: t.file, Device: "wg0",
		Allowed: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24"), netip.MustParsePrefix("fd09::/64")},
	})
	return err
}

func (t *topology) down() error {
	if t.in == nil {
		return nil
	}
	return t.in.Down()
}

// measure runs one client once: download, then upload, in Mbit/s.
func (t *topology) measure(ctx context.Context, c client, seed int, length, omit time.Duration) (down, up float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	iperf, err := peer.IperfServer(ctx, t.in.Host("server"), iperfAddr)
	if err != nil {
		return 0, 0, err
	}
	defer iperf.Stop()
	running, err := c.start(ctx, t, seed)
	if err != nil {
		return 0, 0, err
	}
	defer func() {
		for _, p := range running {
			p.Stop()
		}
	}()
	if err := t.awaitTunnel(ctx, running); err != nil {
		return 0, 0, err
	}
	if err := t.in.ResetLateness(); err != nil {
		return 0, 0, err
	}
	for _, d := range []struct {
		down bool
		rate *float64
	}{{true, &down}, {false, &up}} {
		result, err := peer.Iperf(ctx, t.in.Host("client"), peer.IperfTest{To: iperfAddr, Down: d.down, For: length, Omit: omit})
		if err != nil {
			return 0, 0, errors.Join(err, logs(running))
		}
		*d.rate = result.BitsPerSecond / 1e6
	}
	return down, up, nil
}

// awaitTunnel waits until a packet has gone through the tunnel and back.
func (t *topology) awaitTunnel(ctx context.Context, running []*peer.Process) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	dialer := net.Dialer{Timeout: 500 * time.Millisecond}
	for {
		err := t.in.Host("client").Do(func() error {
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
				return fmt.Errorf("the tunnel's client ended: %w", logs(running))
			default:
			}
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the tunnel does not come up: %w", err), logs(running))
		case <-time.After(10 * time.Millisecond): // where there is no route yet, the dial fails at once
		}
	}
}

func logs(running []*peer.Process) error {
	var all []error
	for _, p := range running {
		if text := p.Log(); text != "" {
			all = append(all, errors.New(text))
		}
	}
	return errors.Join(all...)
}

// wireguardBench is a bench that runs.
type wireguardBench struct {
	options      Options
	length, omit time.Duration
	topologies   []*topology
	samples      map[string][]sample // by case
	report       Report
	done, total  int
	began        time.Time
}

func (w *wireguardBench) run(ctx context.Context) (err error) {
	work, err := os.MkdirTemp("", "heddle-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	for _, t := range w.topologies {
		defer func() { err = errors.Join(err, t.down()) }()
		if err := t.up(ctx, work, w.options.Heddle); err != nil {
			return err
		}
		w.total += len(t.clients) * w.options.Rounds
	}
	if start := w.report.Load.Start; start > float64(w.report.Machine.Cores)/2 {
		w.say("warning: the machine is busy (load %.1f on %d cores): the cases without limit need it to themselves",
			start, w.report.Machine.Cores)
	}
	w.began = time.Now()
	for round := range w.options.Rounds {
		for _, t := range w.topologies {
			// Each round begins with another case, so that none always follows the same one.
			order := slices.Concat(t.clients[round%len(t.clients):], t.clients[:round%len(t.clients)])
			for _, c := range order {
				if err := w.once(ctx, t, c, round); err != nil {
					return fmt.Errorf("%s/%s: %w", t.name, c.name, err)
				}
			}
		}
	}
	return nil
}

// once measures one client, again where the emulated links were late or something failed.
func (w *wireguardBench) once(ctx context.Context, t *topology, c client, round int) error {
	var down, up float64
	var err error
	for range attempts {
		down, up, err = t.measure(ctx, c, round+1, w.length, w.omit)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		_, late, statusErr := t.in.Status()
		if statusErr != nil {
			return statusErr
		}
		if err == nil && late.Mean > maxLateness {
			err = fmt.Errorf("the emulated links were late by %.2f ms on average, more than %d ms", late.Mean, maxLateness)
		}
		if err != nil {
			w.report.Rejected++
			w.say("%s/%s, round %d: rejected: %v", t.name, c.name, round+1, err)
			continue
		}
		if late.Mean > w.report.LatenessMS.Mean {
			w.report.LatenessMS = late
		}
		name := t.name + "/" + c.name
		w.samples[name+"/down"] = append(w.samples[name+"/down"], sample{round, down})
		w.samples[name+"/up"] = append(w.samples[name+"/up"], sample{round, up})
		w.done++
		left := time.Since(w.began) / time.Duration(w.done) * time.Duration(w.total-w.done)
		w.say("[%d/%d] %s, round %d: down %.1f, up %.1f Mbit/s; late by %.3f ms; %s left",
			w.done, w.total, name, round+1, down, up, late.Mean, left.Round(time.Second))
		return nil
	}
	return fmt.Errorf("given up after %d tries: %w", attempts, err)
}

func (w *wireguardBench) say(format string, args ...any) {
	fmt.Fprintf(w.options.Progress, format+"\n", args...)
}

// rows gives the cases in the order of the topologies, those that were measured.
func (w *wireguardBench) rows() []Row {
	rows := []Row{}
	for _, t := range w.topologies {
		for _, c := range t.clients {
			for _, direction := range []string{"down", "up"} {
				name := t.name + "/" + c.name + "/" + direction
				if len(w.samples[name]) == 0 {
					continue
				}
				baseline := t.name + "/" + t.clients[0].name + "/" + direction
				row := newRow(name, w.samples[name], baseline, w.samples[baseline])
				row.Metric, row.Unit = "throughput", "Mbit/s"
				if c.name == "100ms" && t.name != "unlimited" {
					paper := paperAt100ms
					row.Paper = &paper
				}
				rows = append(rows, row)
			}
		}
	}
	return rows
}
