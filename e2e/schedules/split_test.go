package schedules

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/lab"
)

// seed is of all draws here.
const seed = 7

// splitting is a way to split one session, on a port of its own.
type splitting struct {
	kind, schedule, every string
	run                   int  // datagrams that the program hands over at once
	clocked               bool // units pass though nothing is sent in them, so that a busy program misses some
	port                  uint16
	weights               map[string]float64 // as the status says
}

func (s *splitting) name() string {
	return strings.Trim(fmt.Sprintf("%s-%s-%s-%d", s.kind, s.schedule, s.every, s.run), "-")
}

// batch is the number of datagrams of a unit, 0 where units are time.
func (s *splitting) batch() int {
	if s.every == "50p" {
		return 50
	}
	return 0
}

func (s *splitting) args() []string {
	args := []string{"split", "--name", s.name(), "--to", netip.AddrPortFrom(serverAddr, s.port).String(),
		"--schedule", s.schedule, "--every", s.every, "--seed", fmt.Sprint(seed)}
	for _, way := range lab.Ways {
		argument := way
		if s.kind == "src" {
			argument = own[way].String()
		}
		args = append(args, "--via", way+"="+s.kind+":"+argument)
	}
	return args
}

// traffic is what a program sends: 60 units and more.
func (s *splitting) traffic(to netip.AddrPort) traffic {
	t := traffic{session: uint32(s.port), to: to, n: 3000, run: s.run}
	if s.batch() == 0 {
		t.n, t.pace = 1200, time.Millisecond
	}
	return t
}

// unit is that of sessions whose units are times.
const unit = 20 * time.Millisecond

// units is the number of draws that a session made at least.
func (s *splitting) units(t traffic) int {
	if n := s.batch(); n > 0 {
		return t.n / n
	}
	return int(time.Duration(t.n/max(t.run, 1)) * t.pace / unit)
}

// check holds what the networks saw against what was asked for.
func (s *splitting) check(seen map[string][]packet, sent traffic) error {
	all, err := follow(seen, sent, s.port)
	if err != nil {
		return err
	}
	list := visits(all)
	errs := []error{s.checkBatches(all), s.checkShares(all, s.units(sent)), s.checkPorts(list)}
	if s.schedule == "round-robin" && !s.clocked {
		errs = append(errs, s.checkOrder(list))
	}
	return errors.Join(errs...)
}

// checkBatches wants each batch whole on one path, from one port.
func (s *splitting) checkBatches(all []carried) error {
	n := s.batch()
	if n == 0 {
		return nil
	}
	for i := range all {
		if first := all[i-i%n]; all[i] != first {
			return fmt.Errorf("batch %d begins on %v, its number %d is on %v", i/n, first, i%n, all[i])
		}
	}
	return nil
}

// checkOrder wants round robin: all paths one after the other, for exactly one unit.
func (s *splitting) checkOrder(list []visit) error {
	if len(list) < 20 {
		return fmt.Errorf("%d visits", len(list))
	}
	first := slices.Index(lab.Ways, list[0].way)
	for i, v := range list {
		if want := lab.Ways[(first+i)%len(lab.Ways)]; v.way != want {
			return fmt.Errorf("visit %d is to %s, not %s", i, v.way, want)
		}
		if n := s.batch(); n > 0 && v.n != n {
			return fmt.Errorf("visit %d has %d datagrams", i, v.n)
		}
	}
	return nil
}

// checkShares wants each path's share within four standard deviations of so many draws, and one draw, of its weight.
func (s *splitting) checkShares(all []carried, draws int) error {
	counts := map[string]int{}
	for _, c := range all {
		counts[c.way]++
	}
	sum := 0.0
	for _, way := range lab.Ways {
		weight, share := s.weights[way], float64(counts[way])/float64(len(all))
		sum += weight
		if s.schedule != "weighted" && math.Abs(weight-1./3) > 1e-9 {
			return fmt.Errorf("the weight of %s is %v", way, weight)
		}
		most := 4*math.Sqrt(weight*(1-weight)/float64(draws)) + 1/float64(draws)
		if math.Abs(share-weight) > most {
			return fmt.Errorf("seed %d: the share of %s is %.3f, its weight %.3f; %.3f is permitted over %d draws", seed, way, share, weight, most, draws)
		}
	}
	if math.Abs(sum-1) > 1e-9 {
		return fmt.Errorf("the weights %v make %v", s.weights, sum)
	}
	return nil
}

// checkPorts wants another port at the next visit to a way, and as many visits as units where these can be counted;
// the other kinds keep one port a way.
func (s *splitting) checkPorts(list []visit) error {
	last := map[string]uint16{}
	for i, v := range list {
		port, before := last[v.way]
		if again := port == v.port; before && again != (s.kind != "ports") {
			return fmt.Errorf("visit %d to %s is from port %d, the one before from %d", i, v.way, v.port, port)
		}
		if s.kind == "ports" && s.batch() > 0 && v.n != s.batch() {
			return fmt.Errorf("%d datagrams came from port %d of %s", v.n, v.port, v.way)
		}
		last[v.way] = v.port
	}
	return nil
}

func splittings() (all []*splitting) {
	for _, kind := range []string{"if", "src", "ports"} {
		for _, schedule := range []string{"round-robin", "uniform", "weighted"} {
			for _, every := range []string{"50p", "20ms"} {
				all = append(all, &splitting{kind: kind, schedule: schedule, every: every})
			}
			if kind != "src" {
				all = append(all, &splitting{kind: kind, schedule: schedule, every: "50p", run: 37}) // no divisor of 50
			}
		}
	}
	for i, s := range all {
		s.port = uint16(7001 + i)
	}
	return all
}

// byRelay sends a session by a relay of its own, and returns how long the slowest answer took.
func (w *world) byRelay(s *splitting) (sent traffic, slowest time.Duration, err error) {
	listen := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), s.port)
	relay, err := w.start("client", "listening on", append(s.args(), "--listen", listen.String())...)
	if err != nil {
		return sent, 0, err
	}
	defer relay.Stop()
	sent = s.traffic(listen)
	if slowest, err = w.timed(sent); err == nil {
		s.weights, err = w.weights(s.name())
	}
	return sent, slowest, err
}

// run is what came of a session.
type run struct {
	sent    traffic
	slowest time.Duration
	err     error
}

// runs sends sessions at the same time, and holds each against what was asked for.
func (w *world) runs(all []*splitting) []run {
	w.t.Helper()
	stop := w.watch(false)
	done := make([]run, len(all))
	var running sync.WaitGroup
	fast := make(chan bool, 2) // at a time: more overflow the queue of a CPU (net.core.netdev_max_backlog)
	for i, s := range all {
		running.Go(func() {
			if s.batch() > 0 {
				fast <- true
				defer func() { <-fast }()
			}
			r := &done[i]
			if r.sent, r.slowest, r.err = w.byRelay(s); r.err != nil {
				r.slowest = 0 // no schedule is at fault
			}
		})
	}
	running.Wait()
	seen := stop()
	for i, s := range all {
		if r := &done[i]; r.err == nil {
			r.err = s.check(seen, r.sent)
		}
	}
	return done
}

// routeBySource has what is sent from an access network's address leave by that network, as src paths need it.
func (w *world) routeBySource() {
	w.t.Helper()
	for i, way := range lab.Ways {
		table := fmt.Sprint(101 + i)
		for _, args := range [][]string{
			{"route", "add", "default", "via", fmt.Sprintf("10.101.%d.1", i+1), "dev", way, "table", table},
			{"rule", "add", "from", own[way].String(), "lookup", table},
		} {
			if out, err := w.Host("client").Command(w.t.Context(), "ip", args...).CombinedOutput(); err != nil {
				w.t.Fatalf("ip %v: %v: %s", args, err, out)
			}
		}
	}
}

// Each network gets whole units of a session, with its own address, and nothing else; the echoes come where the
// datagrams went.
func TestRelayAlone(t *testing.T) {
	w := newWorld(t)
	w.routeBySource()
	all := splittings()
	for _, s := range all {
		w.echo(netip.AddrPortFrom(serverAddr, s.port))
	}
	last := map[*splitting]run{}
	for try, left := 1, all; len(left) > 0; try++ {
		var again []*splitting
		for i, r := range w.runs(left) {
			last[left[i]] = r
			if r.err != nil && r.slowest > late && try < tries {
				t.Logf("%s, with answers within %v: %v; again", left[i].name(), r.slowest, r.err)
				again = append(again, left[i])
			}
		}
		left = again
	}
	for _, s := range all {
		t.Run(s.name(), func(t *testing.T) {
			if r := last[s]; r.err != nil {
				t.Errorf("with answers within %v: %v", r.slowest, r.err)
			}
		})
	}
}
