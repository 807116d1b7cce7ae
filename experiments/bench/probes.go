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
	"sync"
	"time"

	"heddle/internal/netutil"
	"heddle/internal/probe"
	"heddle/lab/peer"
	"heddle/observe"
)

const (
	candidates     = 12              // bridges of which the one with the shortest silence is probed
	probePatience  = 5 * time.Minute // longer than any bridge listens to a stranger
	probesAtOnce   = 60              // from one address; beyond 64 a bridge ends the oldest
	userBytes      = 2_000_000       // of a download
	aloneDownloads = 5
	firstFlight    = 2000 // most bytes of it
)

// Probes sends probes of all kinds to a bridge with a user, and to a service that reads and never answers and ends connections at
// the same age, and compares what a prober learns. Half of the probes end their direction at once.
func Probes(ctx context.Context, o BridgeOptions) (Report, error) {
	b, err := upBridged(ctx, "probes", o)
	if err != nil {
		return Report{}, err
	}
	err = b.probes(ctx)
	return b.Report(), errors.Join(err, b.Down())
}

func (b *bridged) probes(ctx context.Context) error {
	server, file, port, age, err := b.youngest(ctx)
	if err != nil {
		return err
	}
	err = b.listen(ctx, netip.AddrPortFrom(netip.IPv4Unspecified(), silentPort), func(c *net.TCPConn) {
		defer time.AfterFunc(age, func() { c.CloseWrite() }).Stop()
		_, _ = io.Copy(io.Discard, c)
	})
	if err != nil {
		return err
	}
	flight, err := b.flight(ctx, file)
	if err != nil {
		return err
	}
	if _, err := b.dial(ctx, file); err != nil {
		return err
	}
	for round := range aloneDownloads {
		if err := b.uses(ctx, "alone", server, round); err != nil {
			return err
		}
	}
	probing, stop := context.WithCancel(ctx)
	using := make(chan error, 1)
	go func() {
		var err error
		for round := 0; err == nil && probing.Err() == nil; round++ {
			err = b.uses(ctx, "probed", server, round)
			_ = netutil.Sleep(probing, 5*time.Second)
		}
		using <- err
	}()
	results, err := b.sendAll(ctx, flight, map[string]uint16{"silent": silentPort, "bridge": port})
	stop()
	err = errors.Join(err, <-using)
	b.add(results)
	return err
}

// youngest starts bridges, and keeps the one that first ends a silent connection. It returns that connection's age.
func (b *bridged) youngest(ctx context.Context) (server *peer.Process, file string, port uint16, age time.Duration, err error) {
	b.say("start %d bridges, and wait for the first that ends a silent connection: one to two minutes", candidates)
	type candidate struct {
		i   int
		age time.Duration
		err error
	}
	all, files, first := make([]*peer.Process, candidates), make([]string, candidates), make(chan candidate, candidates)
	asking, stop := context.WithCancel(ctx)
	defer stop()
	for i := range candidates {
		if all[i], files[i], err = b.bridge(ctx, bridgePort+uint16(i)); err != nil {
			return
		}
		go func() {
			r, err := b.send(asking, netip.MustParseAddr("10.1.1.1"), bridgePort+uint16(i), nil, false)
			first <- candidate{i, r.After, err}
		}()
	}
	best := <-first
	for i, p := range all {
		if i != best.i {
			p.Stop()
		}
	}
	b.say("the bridge ends connections after %v", best.age.Round(time.Millisecond))
	return all[best.i], files[best.i], bridgePort + uint16(best.i), best.age, best.err
}

// flight records what a user sends first.
func (b *bridged) flight(ctx context.Context, file string) ([]byte, error) {
	capture := filepath.Join(b.Host("user").Dir(), "flight.pcapng")
	taken, err := b.Capture(ctx, "user", "net", capture)
	if err != nil {
		return nil, err
	}
	client, err := b.dial(ctx, file)
	if err != nil {
		return nil, err
	}
	_, err = b.download(ctx, userBytes)
	client.Stop()
	if _, stopped := taken.Stop(); err != nil || stopped != nil {
		return nil, errors.Join(err, stopped)
	}
	all, err := conversations(capture)
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		if len(c.Up) > 0 {
			return c.Up[:min(len(c.Up), firstFlight)], nil
		}
	}
	return nil, errors.New("the capture has no connection of the user")
}

func conversations(file string) ([]observe.Conversation, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, stopped, err := observe.Conversations(f)
	if stopped != "" {
		err = errors.Join(err, errors.New(stopped))
	}
	return all, err
}

// uses downloads something as the user, and adds the goodput and what the bridge takes.
func (b *bridged) uses(ctx context.Context, when string, server *peer.Process, round int) error {
	speed, err := b.download(ctx, userBytes)
	if err != nil {
		return err
	}
	b.Add(Figure{Case: "user/" + when, Metric: "goodput", Unit: "kB/s", Group: "user", Baseline: "user/alone"}, round, speed)
	return b.usage("bridge/"+when, "bridge/alone", server, round)
}

// sendAll sends the same probes to each server, and waits for what comes of them.
func (b *bridged) sendAll(ctx context.Context, flight []byte, servers map[string]uint16) (results map[learned][]probe.Result, err error) {
	places := map[string]chan netip.Addr{} // from which a server may yet be probed
	for name := range servers {
		places[name] = make(chan netip.Addr, probesAtOnce*proberNetworks*proberAddresses)
		for range probesAtOnce {
			for _, p := range proberPrefixes() {
				places[name] <- p.Addr()
			}
		}
	}
	var mu sync.Mutex
	results = map[learned][]probe.Result{}
	var work sync.WaitGroup
	defer work.Wait()
	began, failed := time.Now(), make(chan error, 1)
	for _, kind := range probe.Kinds {
		for i := range b.Probes {
			sent, ends := kind.Bytes(flight), i%2 == 1
			for _, name := range []string{"silent", "bridge"} {
				select {
				case err := <-failed:
					return results, err
				case from := <-places[name]:
					work.Go(func() {
						r, err := b.send(ctx, from, servers[name], sent, ends)
						if err != nil {
							netutil.Offer(failed, err)
						}
						mu.Lock()
						key := learned{name, kind.Name, ends}
						results[key] = append(results[key], r)
						mu.Unlock()
						places[name] <- from
					})
				}
			}
		}
		b.say("%s: all are sent after %v", kind.Name, time.Since(began).Round(time.Second))
	}
	return results, nil
}

// send sends one probe to the host bridge.
func (b *bridged) send(ctx context.Context, from netip.Addr, port uint16, sent []byte, ends bool) (r probe.Result, err error) {
	var c net.Conn
	err = b.Host("prober").Do(func() (err error) {
		dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
		c, err = dialer.DialContext(ctx, "tcp", fmt.Sprint("10.1.0.1:", port))
		return err
	})
	if err != nil {
		return r, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	return probe.Send(c.(*net.TCPConn), sent, ends, probePatience), nil
}

// learned are the results of all probes of a kind at one server.
type learned struct {
	server, kind string
	ends         bool
}

// add adds what a prober learned, the two servers beside each other.
func (b *bridged) add(results map[learned][]probe.Result) {
	for _, kind := range probe.Kinds {
		for _, server := range []string{"silent", "bridge"} {
			for _, ends := range []bool{false, true} {
				what := kind.Name
				if ends {
					what += "-fin"
				}
				for round, r := range results[learned{server, kind.Name, ends}] {
					for _, f := range resultFigures(r) {
						b.Add(Figure{Case: server + "/" + what + "/" + f.name, Metric: f.metric, Unit: f.unit, Group: kind.Name, Baseline: "silent/" + what + "/" + f.name}, round, f.value)
					}
				}
			}
		}
	}
}

func resultFigures(r probe.Result) []figure {
	percent := func(end string) float64 {
		if r.End == end {
			return 100
		}
		return 0
	}
	return []figure{{"answer", "answer", "B", float64(r.Answer)}, {"refused", "refused", "B", float64(r.Refused)},
		{"fin", "fin", "%", percent(probe.FIN)}, {"rst", "rst", "%", percent(probe.RST)}, {"age", "age", "s", r.After.Seconds()}}
}
