package censor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"heddle/experiments/bench"
	"heddle/lab"
	"heddle/lab/peer"
	"heddle/path"
)

// TorOptions control [Tor].
type TorOptions struct {
	Heddle    string   // path of the binary under test
	Only      []string // attacks; empty is all, and none
	Ways      []string // transports; empty is all
	Bootstrap time.Duration
	Fetch     time.Duration // how long Tor may take to bootstrap, and then to fetch
	Progress  io.Writer
}

// way is how a Tor of the client reaches the network.
type way struct {
	name      string
	transport string   // empty is a plain bridge
	second    bool     // by the second bridge, since one has either the prefix or none
	flags     []string // of heddle disguise pt
}

const short = "--max-bytes-per-connection=15kB"

// ways to the network. The covers without 15kB keep their connections for as long as they last.
var ways = []way{
	{name: "tor"},
	{name: "obfs4", transport: "obfs4"},
	{name: "random", transport: "heddle"},
	{name: "random-15kB", transport: "heddle", flags: []string{short}},
	{name: "printable", transport: "heddle", second: true},
	{name: "printable-15kB", transport: "heddle", second: true, flags: []string{short}},
	{name: "embed", transport: "heddle", flags: []string{"--cover=embed"}},
}

// noAttack is the row to compare with.
const noAttack = "none"

// WayNames are the names of all ways.
func WayNames() (names []string) {
	for _, w := range ways {
		names = append(names, w.name)
	}
	return names
}

// Cell is one result of [Tor].
type cell struct {
	bootstrap float64 // percent
	fetched   int     // bytes of the file, from its beginning, that are right
	seconds   float64
}

type torRun struct {
	TorOptions
	in      *lab.Instance
	network *peer.TorNetwork
	bridges [2]*peer.TorBridge
	site    []byte
	result  *Blocked
}

// Tor builds a private Tor network, puts the censor on the client's way to it, and tries for each attack by which ways Tor
// bootstraps and fetches 1 MB. All ways are tried at the same time. It fails with [peer.ErrMissing] without a program.
func Tor(ctx context.Context, o TorOptions) (*Blocked, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	in, err := lab.Up(ctx, lab.Tor("tor", lab.DSL(0)), lab.Options{Seed: 1})
	if err != nil {
		return nil, err
	}
	r := &torRun{TorOptions: o, in: in, result: &Blocked{table: bench.NewTable("censor")}}
	err = r.start(ctx)
	attacks := append([]string{noAttack}, AttackNames()...)
	for _, attack := range attacks {
		if err == nil && (len(o.Only) == 0 || slices.Contains(o.Only, attack)) {
			err = r.row(ctx, attack)
		}
	}
	return r.result, errors.Join(err, in.Down())
}

func (o *TorOptions) check() error {
	for _, attack := range o.Only {
		if attack != noAttack && attackByName(attack) == nil {
			return &path.Error{What: "--only " + attack, Why: "there is no such attack", Hint: "one of none, " + strings.Join(AttackNames(), ", ")}
		}
	}
	for _, name := range o.Ways {
		if !slices.Contains(WayNames(), name) {
			return &path.Error{What: "--ways " + name, Why: "there is no such way", Hint: "one of " + strings.Join(WayNames(), ", ")}
		}
	}
	return nil
}

func (o *TorOptions) wants(w way) bool { return len(o.Ways) == 0 || slices.Contains(o.Ways, w.name) }

// start starts the network and the bridges.
func (r *torRun) start(ctx context.Context) (err error) {
	obfs4, err := peer.Obfs4(5011)
	if err != nil {
		return err
	}
	fmt.Fprintln(r.Progress, "start a private Tor network, which takes half a minute")
	if r.network, err = peer.TorSite(ctx, r.in); err != nil {
		return err
	}
	if r.site, err = os.ReadFile(filepath.Join(r.in.Host("web").Dir(), "site", "large.bin")); err != nil {
		return err
	}
	if r.bridges[0], err = r.network.Bridge(ctx, r.in.Host("bridge"), obfs4, peer.HeddleTransport(r.Heddle, "--cover=random", "--cover=embed")); err != nil {
		return err
	}
	r.bridges[1], err = r.network.Bridge(ctx, r.in.Host("web"), peer.HeddleTransport(r.Heddle, "--cover=random:prefix=printable"))
	return err
}

// row tries all ways under one attack.
func (r *torRun) row(ctx context.Context, attack string) error {
	var c *Censor
	if attack != noAttack {
		var err error
		client := r.in.Host("client").Addrs()
		if c, err = Start(ctx, r.in.Host("isp"), Options{Attacks: []string{attack}, Clients: client}); err != nil {
			return err
		}
		defer c.Stop()
	}
	fmt.Fprintln(r.Progress, attack)
	cells, failed := make([]cell, len(ways)), make([]error, len(ways))
	var work sync.WaitGroup
	for i, w := range ways {
		if r.wants(w) {
			work.Go(func() { cells[i], failed[i] = r.try(ctx, attack, uint16(9100+i), w) })
		}
	}
	work.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	for i, w := range ways {
		if r.wants(w) {
			r.result.add(attack, w.name, cells[i])
		}
	}
	if c != nil {
		r.result.struck(attack, c.Status())
	}
	return nil
}

// try starts a Tor that uses one way, and fetches the file by it. It returns an error only if it could not try.
func (r *torRun) try(ctx context.Context, attack string, socks uint16, w way) (got cell, err error) {
	client, bridge := r.in.Host("client"), r.bridges[0]
	if w.second {
		bridge = r.bridges[1]
	}
	var transports []peer.TorTransport
	switch w.transport {
	case "heddle":
		transports = append(transports, peer.HeddleTransport(r.Heddle, w.flags...))
	case "obfs4":
		obfs4, err := peer.Obfs4(0)
		if err != nil {
			return got, err
		}
		transports = append(transports, obfs4)
	}
	began := time.Now()
	tor, err := r.network.StartClient(ctx, client, attack+"-"+w.name, socks, bridge.Line(w.transport), transports...)
	if err != nil {
		return got, err
	}
	defer tor.Stop()
	patient, cancel := context.WithTimeout(ctx, r.Bootstrap)
	defer cancel()
	bootstrap := tor.AwaitBootstrap(patient)
	if got.bootstrap, err = progress(tor); err != nil || bootstrap != nil {
		fmt.Fprintf(r.Progress, "  %s: bootstraps to %.0f %% in %v\n", w.name, got.bootstrap, time.Since(began).Round(time.Second))
		return got, errors.Join(err, ctx.Err())
	}
	file := filepath.Join(client.Dir(), attack+"-"+w.name+".bin")
	limit := fmt.Sprint(r.Fetch.Seconds())
	_, fetch := peer.Curl(ctx, client, "http://web.example/large.bin", file, append(peer.BySOCKS(socks), "--max-time", limit)...)
	arrived, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return got, err
	}
	if bytes.HasPrefix(r.site, arrived) {
		got.fetched = len(arrived)
	}
	got.seconds = time.Since(began).Seconds()
	fmt.Fprintf(r.Progress, "  %s: bootstraps, and fetches %d bytes, in %.0f s in all (curl: %v)\n", w.name, got.fetched, got.seconds, fetch)
	return got, ctx.Err()
}

// progress returns how far tor has bootstrapped, in percent.
func progress(tor *peer.Tor) (percent float64, err error) {
	phase, err := tor.Ask("GETINFO status/bootstrap-phase")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(phase, "PROGRESS=")
	_, err = fmt.Sscan(rest, &percent)
	return percent, err
}
