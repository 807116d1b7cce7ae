package bridge

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"time"

	"heddle/disguise/handshake"
	"heddle/disguise/link"
	"heddle/disguise/mux"
	"heddle/internal/dial"
	"heddle/internal/netutil"
)

// serve carries one link until it ends.
func (b *Bridge) serve(ctx context.Context, e *entry) {
	defer b.forget(e)
	defer e.link.Close()
	code := link.BrokenRules
	switch {
	case e.mode == handshake.OneTarget && b.o.Target != nil:
		code = b.one(ctx, e)
	case e.mode == handshake.ManyStreams && b.o.Targets != nil:
		b.many(ctx, e)
		return
	case e.mode <= handshake.ManyStreams:
		code = link.Forbidden
	}
	if code != link.Closed {
		e.link.Reset(code)
	}
	<-e.link.Done()
}

// one carries the link to the bridge's target.
func (b *Bridge) one(ctx context.Context, e *entry) link.Code {
	attempt, cancel := context.WithTimeout(ctx, dialPatience)
	c, err := b.o.Target(attempt, e.client)
	cancel()
	if err != nil {
		if b.counts.lines.Take(time.Now()) {
			b.o.Log.Warn("the target of the bridge cannot be reached", "error", err)
		}
		b.counts.unreachable.Add(1)
		return link.Unreachable
	}
	defer c.Close()
	_, _, _ = netutil.Pipe(ctx, netutil.Side{Reader: e.link, Writer: e.link}, netutil.Side{Reader: c, Writer: c}, func(error) {
		e.link.Reset(link.Closed)
		netutil.Reset(c)
	})
	return link.Closed
}

// many serves the streams of a link.
func (b *Bridge) many(ctx context.Context, e *entry) {
	session, err := mux.Server(e.link)
	if err != nil {
		b.o.Log.Error("a link begins no streams", "error", err)
		return
	}
	defer session.Close()
	defer context.AfterFunc(ctx, func() { session.Close() })()
	for {
		s, err := session.Accept()
		if err != nil {
			return
		}
		if !b.streams.Acquire(e.source) {
			b.counts.full.Add(1)
			s.Close()
			continue
		}
		b.work.Go(func() {
			defer b.streams.Release(e.source)
			defer s.Close()
			b.stream(ctx, e, s, session.Count() > mux.MaxStreams)
		})
	}
}

// stream serves one request.
func (b *Bridge) stream(ctx context.Context, e *entry, s *mux.Stream, full bool) {
	_ = s.SetReadDeadline(time.Now().Add(askPatience))
	r, err := s.Request()
	if err != nil {
		_ = s.Answer(mux.Broken)
		return
	}
	_ = s.SetReadDeadline(time.Time{})
	if full {
		b.counts.full.Add(1)
		_ = s.Answer(mux.TooMany)
		return
	}
	b.counts.streams.Add(1)
	if r.Kind == mux.Datagrams {
		b.flow(ctx, e, s, r)
		return
	}
	c, err := reach(ctx, b, r, dialTCP)
	if err != nil {
		_ = s.Answer(b.codeFor(err))
		return
	}
	defer c.Close()
	if s.Answer(mux.Granted) != nil {
		netutil.Reset(c)
		return
	}
	_, _, _ = netutil.Pipe(ctx, netutil.Side{Reader: s, Writer: s}, netutil.Side{Reader: c, Writer: c}, func(error) {
		s.Close()
		netutil.Reset(c)
	})
}

// mostAddresses is how many addresses of a name are tried.
const mostAddresses = 6

// reach connects to the first address of a destination that the rules allow.
func reach[C any](ctx context.Context, b *Bridge, r mux.Request, single func(context.Context, netip.AddrPort) (C, error)) (C, error) {
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	return dial.Dialer[C]{Single: single, Lookup: b.o.lookup, Allowed: b.o.Targets.Allowed, Most: mostAddresses}.Dial(ctx, r.To.Host(), r.To.Port)
}

// dialTCP connects without MPTCP, which would add paths of its own.
func dialTCP(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	d.SetMultipathTCP(false)
	return d.DialContext(ctx, "tcp", to.String())
}

func (b *Bridge) codeFor(err error) mux.Code {
	if errors.Is(err, dial.ErrNone) {
		b.counts.forbidden.Add(1)
		return mux.Forbidden
	}
	b.counts.unreachable.Add(1)
	return mux.Unreachable
}

// To returns a target for [Options]: HOST:PORT, or unix:FILE.
func To(target string) func(context.Context, net.Addr) (net.Conn, error) {
	network, address := "tcp", target
	if file, unix := strings.CutPrefix(target, "unix:"); unix {
		network, address = "unix", file
	}
	return func(ctx context.Context, _ net.Addr) (net.Conn, error) {
		var d net.Dialer
		d.SetMultipathTCP(false)
		return d.DialContext(ctx, network, address)
	}
}
