package quicprobe

import (
	"context"
	"fmt"
	"time"

	"heddle/internal/netutil"
)

// answers is how many datagrams prove that the server followed: it may repeat one PATH_CHALLENGE (RFC 9000, section 9.3).
const answers = 3

// changes tries one new port and, with two paths, one new address.
func (p *prober) changes(ctx context.Context) error {
	if p.report.Parameters.DisableActiveMigration {
		p.note("it forbids migration (disable_active_migration); one change each, as a NAT makes it, shows whether it means that of NATs too")
	}
	var err error
	p.talk("a new port, as a NAT would take it")
	if p.report.NewPort, err = p.changed(ctx, 0); err != nil {
		return err
	}
	if len(p.ways) < 2 {
		p.note("only one path was given (--via), so nothing is known of new addresses")
		return nil
	}
	p.talk("a new address")
	p.report.NewAddress, err = p.changed(ctx, 1)
	return err
}

// changed is [prober.change], repeated if it fails.
func (p *prober) changed(ctx context.Context, way int) (*Rebinding, error) {
	out, tries, err := repeated(func() (Rebinding, bool, error) {
		one, err := p.change(ctx, way)
		return one, one.Survived, err
	}, always)
	if err != nil {
		return nil, err
	}
	out.Tries = tries
	return &out, nil
}

// change moves a connection once from the first path to another endpoint. An error is one of the probe.
func (p *prober) change(ctx context.Context, way int) (Rebinding, error) {
	out := Rebinding{From: p.names[0], To: p.names[way]}
	s, err := p.connect(ctx)
	if err != nil {
		return out, err
	}
	defer s.close()
	l, err := s.endpoint(ctx, p, way)
	if err != nil {
		return out, err
	}
	old, start := s.endpoints[0].received.Load(), time.Now()
	s.socket.use(l)
	if l.heard(ctx, 0, 1, p.pace.answer) {
		out.After = time.Since(start).Round(time.Microsecond)
		out.Survived = l.heard(ctx, 0, answers, p.pace.answer) && s.ended() == nil
	}
	if ctx.Err() != nil {
		return out, context.Cause(ctx)
	}
	switch {
	case out.Survived:
	case s.ended() != nil:
		out.Why = ending(s.ended())
	case out.After > 0:
		out.Why = "it looked there, but did not follow"
	case s.endpoints[0].received.Load() > old+1: // one may have been in flight
		out.Why = "it goes on sending to the old address and port"
	default:
		out.Why = fmt.Sprintf("it fell silent: nothing came within %v", p.pace.answer)
	}
	return out, nil
}

// splits reports whether the server follows a client at all, and to new addresses if the probe has any.
func (r *Report) splits() bool {
	if r.NewAddress != nil {
		return r.NewAddress.Survived
	}
	return r.NewPort != nil && r.NewPort.Survived
}

// rotations rotates over more and more addresses and ports, until there are too many.
func (p *prober) rotations(ctx context.Context) error {
	ways := len(p.ways)
	if !p.report.splits() {
		ways = 1 // new ports only: it does not follow to new addresses
		if p.report.NewPort == nil || !p.report.NewPort.Survived {
			return nil
		}
	}
	for k := 2; k <= max(p.pace.most, ways); k++ {
		p.talk("round and round over %d addresses and ports", k)
		one, tries, err := repeated(func() (Rotation, bool, error) {
			one, err := p.rotate(ctx, k, ways)
			return one, one.Held, err
		}, always)
		if err != nil {
			return err
		}
		one.Tries = tries
		p.report.Rotations = append(p.report.Rotations, one)
		if !one.Held {
			p.report.PathsAtOnce = k - 1
			break
		}
		p.report.PathsAtOnce = k
	}
	return nil
}

// rounds is the number of rounds in a rotation. The second shows whether the server forgot the addresses.
const rounds = 2

// rotate changes in turn between k endpoints on the first ways of the paths.
func (p *prober) rotate(ctx context.Context, k, ways int) (Rotation, error) {
	out := Rotation{Paths: k}
	s, err := p.connect(ctx)
	if err != nil {
		return out, err
	}
	defer s.close()
	if err := s.spread(ctx, p, k, ways); err != nil {
		return out, err
	}
	heard := map[*endpoint]bool{}
	silent := 0
	for range rounds {
		for i := range k {
			l := s.endpoints[(i+1)%k]
			took, ok := p.visit(ctx, s, l)
			if ctx.Err() != nil {
				return out, context.Cause(ctx)
			}
			if !ok {
				silent++
				continue
			}
			heard[l] = true
			out.Slowest = max(out.Slowest, took)
		}
		if silent > 0 {
			break
		}
	}
	out.HeardOn = len(heard)
	switch {
	case s.ended() != nil:
		out.Why = ending(s.ended())
	case silent > 0:
		out.Why = fmt.Sprintf("it did not answer on %d of %d", k-out.HeardOn, k)
		if out.HeardOn == k {
			out.Why = "it did not answer on all of them the second time"
		}
	default:
		out.Held = true
	}
	return out, nil
}

// visit uses an endpoint until the server has answered there, and at least for the dwell time.
func (p *prober) visit(ctx context.Context, s *session, l *endpoint) (took time.Duration, ok bool) {
	before, start := l.received.Load(), time.Now()
	s.socket.use(l)
	if s.ended() != nil || !l.heard(ctx, before, 1, p.pace.answer) {
		return 0, false
	}
	took = time.Since(start).Round(time.Microsecond)
	_ = netutil.Sleep(ctx, p.pace.dwell-took)
	return took, true
}
