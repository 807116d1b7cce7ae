package quicprobe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"heddle/internal/netutil"

	"github.com/quic-go/quic-go"
)

// death returns why a connection ended after changes, or "" if the server still hears the client.
func (p *prober) death(ctx context.Context, s *session) string {
	lives, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.conn.Context(), cancel)()
	if s.ended() == nil && (s.recorder.hears(lives, p.pace.answer) || ctx.Err() != nil) {
		return ""
	}
	if err := s.ended(); err != nil {
		return ending(err)
	}
	return fmt.Sprintf("it lost the session: it acknowledged nothing more within %v", p.pace.answer)
}

// ending describes how a connection ended.
func ending(err error) string {
	if _, ok := errors.AsType[*quic.StatelessResetError](err); ok {
		return "the server closed the session: it forgot it (stateless reset)"
	}
	if _, ok := errors.AsType[*quic.IdleTimeoutError](err); ok {
		return "it lost the session: nothing came until the idle timeout"
	}
	transport, isTransport := errors.AsType[*quic.TransportError](err)
	application, isApplication := errors.AsType[*quic.ApplicationError](err)
	if isTransport && transport.Remote || isApplication && application.Remote {
		return "the server closed the session: " + err.Error()
	}
	return "the connection ended: " + err.Error()
}

// early tests whether young sessions survive the recommended changes.
func (p *prober) early(ctx context.Context) error {
	r := p.report
	a := advise(r)
	every, err := time.ParseDuration(a.Every)
	if !a.Split || err != nil {
		return nil
	}
	ways, k := 1, min(r.PathsAtOnce, 3)
	if r.NewAddress != nil && r.NewAddress.Survived {
		ways, k = len(p.ways), min(r.PathsAtOnce, len(p.ways))
	}
	p.talk("sessions that change every %v from their beginning on", every)
	e := &Early{Every: a.Every, Paths: k, Settled: p.pace.ramp}
	most := p.pace.early
	for e.Tried < most && e.Tried-e.Good < mostDeaths {
		why, err := p.hasty(ctx, k, ways, every, time.Duration(e.Tried%p.pace.early)*every/time.Duration(p.pace.early))
		if err != nil {
			return err
		}
		e.Tried++
		if why == "" {
			e.Good++
			continue
		}
		e.Why, most = why, 2*p.pace.early // the network may have been the cause
	}
	if e.Survived = e.Tried-e.Good < mostDeaths; e.Survived {
		e.Why = ""
	}
	r.Early = e
	return nil
}

// mostDeaths is how many young sessions die of a server that does not take their changes.
const mostDeaths = 2

// hasty changes a session a while after its handshake is confirmed and then every period. It returns why the session ended. An
// error is one of the probe, or a server that accepts no session any more.
func (p *prober) hasty(ctx context.Context, k, ways int, every, first time.Duration) (string, error) {
	s, err := p.connect(ctx)
	if err != nil {
		return "", err
	}
	defer s.close()
	if err := s.spread(ctx, p, k, ways); err != nil {
		return "", err
	}
	stop := s.round(ctx, every, first)
	_ = netutil.Sleep(ctx, every+6*p.report.RTT)
	for start := time.Now(); !s.used() && s.ended() == nil && ctx.Err() == nil && time.Since(start) < p.pace.handshake; {
		_ = netutil.Sleep(ctx, keepAlive)
	}
	stop()
	why := p.death(ctx, s)
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if why == "" && !s.used() { // the server saw no change
		why = fmt.Sprintf("it sent nothing from one of its addresses within %v", p.pace.handshake)
	}
	return why, nil
}

// used reports whether each endpoint sent something.
func (s *session) used() bool {
	return !slices.ContainsFunc(s.endpoints, func(l *endpoint) bool { return l.sent.Load() == 0 })
}

// round switches between the endpoints of a session until stop is called.
func (s *session) round(ctx context.Context, every, first time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		for i, wait := 1, first; netutil.Sleep(ctx, wait) == nil; i, wait = i+1, every {
			s.socket.use(s.endpoints[i%len(s.endpoints)])
		}
	})
	return func() {
		cancel()
		work.Wait()
	}
}
