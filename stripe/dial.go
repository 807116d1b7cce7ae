package stripe

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"heddle/identity"
	"heddle/internal/netutil"
	"heddle/internal/segment"
	"heddle/internal/tlsbatch"
	"heddle/path"
	"heddle/stripe/share"
)

const (
	handshakeTime = 10 * time.Second
	dialTime      = 15 * time.Second
	firstPause    = 100 * time.Millisecond
	longestPause  = 5 * time.Second
)

// Dial starts a session and returns once the required paths are up: connected to the peer, which has proved its key there.
// [Conn.Wait] or the first Read tells whether the peer admits the session. Dial fails with a [path.Error] if the options
// contradict each other, or if too few paths are up when ctx or Patience ends; it then names each missing path.
func Dial(ctx context.Context, o Options) (*Conn, error) {
	s, err := o.settings()
	if err != nil {
		return nil, err
	}
	config, err := o.Identity.Client(o.Peer, Protocol)
	if err != nil {
		return nil, &path.Error{What: s.errorSubject(), Why: err.Error(), Hint: "`heddle node key` makes an identity"}
	}
	config.DynamicRecordSizingDisabled, config.KeyLogWriter = true, o.KeyLog
	names := make([]string, len(o.Paths))
	for i, p := range o.Paths {
		names[i] = p.Name
	}
	c, err := newConn(s, names)
	if err != nil {
		return nil, &path.Error{What: s.errorSubject(), Why: err.Error()}
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.mu.Lock()
	c.stop, c.remote = stop, remoteOf(o.To)
	for i, m := range c.members {
		m.observer = o.Paths[i].Describe().Observer
		c.running.Add(1)
		d := &dialler{member: m, to: o.Paths[i].Path, o: &o, config: config}
		go d.run(run)
	}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	select {
	case <-c.begun:
		return c, nil
	case <-c.over:
	case <-ctx.Done():
	}
	return nil, c.giveUp()
}

// remoteOf returns the peer's address as package net represents it: a TCPAddr unless it is a name.
func remoteOf(to path.Target) net.Addr {
	if to.Name != "" {
		return to
	}
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(to.Addr, to.Port))
}

// giveUp ends a session that did not begin, and returns why.
func (c *Conn) giveUp() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure == nil {
		c.fail(c.tooFew())
	}
	return c.failure
}

// settings checks the options and fills in defaults.
func (o *Options) settings() (settings, error) {
	scheme, err := share.Parse(o.Shares)
	if err != nil {
		return settings{}, err
	}
	s := settings{peer: o.Peer, service: o.Service, schedule: o.Schedule, scheme: scheme, members: len(o.Paths), minMembers: o.MinPaths,
		degrade: o.Degrade, segment: o.Segment, client: true, weights: o.Weights, patience: o.Patience, window: o.Window,
		minRate: o.MinRate, log: o.Log}
	bad := func(why, hint string) (settings, error) {
		return settings{}, &path.Error{What: s.errorSubject(), Why: why, Hint: hint}
	}
	s.fill()
	rand.Read(s.id[:])
	if o.Schedule == "" && scheme.K < scheme.N {
		s.schedule = Fast
	}
	if s.minMembers == 0 {
		s.minMembers = s.members
		if !scheme.None() && !s.waits() {
			s.minMembers = scheme.K
		}
	}
	names := map[string]bool{}
	for _, p := range o.Paths {
		if err := path.Need(p.Path, path.Streams, "a stream"); err != nil {
			return settings{}, err
		}
		if names[p.Name] {
			return bad("two paths are called "+p.Name, "give each path its own name")
		}
		names[p.Name] = true
	}
	if why, hint := s.wrong(); why != "" {
		return bad(why, hint)
	}
	return s, nil
}

func (s *settings) fill() {
	s.schedule = cmp.Or(s.schedule, Strict)
	s.segment = cmp.Or(s.segment, DefaultSegment)
	s.patience = cmp.Or(s.patience, DefaultPatience)
	s.window = cmp.Or(s.window, DefaultWindow)
	s.minRate = cmp.Or(s.minRate, DefaultMinRate)
	s.log = cmp.Or(s.log, slog.New(slog.DiscardHandler))
}

// wrong returns why both sides must refuse a session and a hint, or "".
func (s *settings) wrong() (why, hint string) {
	switch {
	case len(s.service) > segment.MaxText:
		return "the name of the service is too long", ""
	case s.members < 1 || s.members > MaxPaths:
		return fmt.Sprintf("%d paths, and there may be 1 to %d", s.members, MaxPaths), ""
	case !s.scheme.None() && s.scheme.N != s.members:
		return fmt.Sprintf("shares %v take %d paths, and there are %d", s.scheme, s.scheme.N, s.members), "name as many paths as there are shares"
	case s.weights != nil && (s.schedule != Weighted || len(s.weights) != s.members):
		return fmt.Sprintf("%d weights for %d paths with the schedule %s", len(s.weights), s.members, s.schedule), "weights go with --schedule weighted, one a path"
	case s.minMembers < 1 || s.minMembers > s.members || s.minMembers < s.scheme.K:
		return fmt.Sprintf("at least %d of %d paths are asked for, with shares %v", s.minMembers, s.members, s.scheme), ""
	case s.segment < MinSegment || s.segment > MaxSegment:
		return fmt.Sprintf("segments of %d bytes, and they may have %d to %d", s.segment, MinSegment, MaxSegment), ""
	case s.schedule != Strict && s.schedule != Fast && s.schedule != Weighted:
		return fmt.Sprintf("no schedule of streams is called %q, there are strict, fast and weighted", s.schedule), ""
	case !s.scheme.None() && s.schedule == Weighted:
		return "weights mean nothing for shares, of which each path gets one", ""
	case !s.scheme.None() && s.scheme.Capacity(s.payload()) < 1:
		return fmt.Sprintf("segments of %d bytes are too small for shares %v", s.segment, s.scheme), ""
	}
	return "", ""
}

type dialler struct {
	member *member
	to     path.Path
	o      *Options
	config *tls.Config
}

func (d *dialler) run(ctx context.Context) {
	m := d.member
	defer m.c.running.Done()
	pause := firstPause
	for ctx.Err() == nil {
		start := time.Now()
		err := d.once(ctx)
		if isClosed(m.c.over) {
			return
		}
		m.c.mu.Lock()
		if m.health.verdict == "" && err != nil && m.link == nil {
			m.why = m.explain(err)
			_, m.stranger = errors.AsType[*identity.KeyError](err)
			m.c.changed()
		}
		slow := m.health.verdict != ""
		m.c.mu.Unlock()
		if time.Since(start) > longestPause && !slow {
			pause = firstPause
		}
		_ = netutil.Sleep(ctx, pause)
		pause = min(2*pause, longestPause)
	}
}

// once connects the member and serves the connection until it ends.
func (d *dialler) once(ctx context.Context) error {
	m := d.member
	k, err := d.connect(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lastWords, k.shut) })
	defer stop()
	theirs, err := d.greet(k)
	if err != nil {
		k.shut()
		return err
	}
	<-m.idle
	return m.run(k, theirs)
}

func (d *dialler) connect(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	raw, err := path.Dial(path.WithEarly(ctx), d.to, d.o.To) // the TLS handshake shows whether the peer is there
	if err != nil {
		return nil, err
	}
	k := newLink(raw, tlsbatch.Client(raw, d.config))
	stop := context.AfterFunc(ctx, k.shut)
	defer stop()
	if err := k.handshake(handshakeTime); err != nil {
		k.shut()
		return nil, err
	}
	return k, nil
}

// greet sends the hello. A member that was connected before waits for the answer, which says what arrived then.
func (d *dialler) greet(k *link) (theirs uint64, err error) {
	m, c := d.member, d.member.c
	c.mu.Lock()
	_, limit := c.in.Ack()
	h := segment.Hello{Session: c.id, Member: uint8(m.index), Members: uint8(len(c.members)), MinMembers: uint8(c.minMembers), Generation: m.generation,
		Segment: uint32(c.segment), Limit: limit, Frames: m.received, Schedule: c.schedule, Shares: c.scheme.String(), Service: c.service}
	if c.degrade {
		h.Flags |= segment.Degrade
	}
	if c.letIn() > 0 {
		h.Flags |= segment.Resume
	}
	m.generation++
	first := m.joins == 0
	c.mu.Unlock()
	if _, err := k.tls.Write(h.Append(nil)); err != nil {
		return 0, err
	}
	if first {
		return 0, k.raw.SetDeadline(time.Time{})
	}
	kind, body, err := k.reader.Next(takeBuffer)
	if err != nil {
		return 0, err
	}
	if kind != segment.KindWelcome {
		if err := m.take(kind, body); err != nil {
			return 0, err
		}
		return 0, errors.New("no welcome came")
	}
	w, err := segment.ParseWelcome(body)
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	c.welcomed(m)
	c.out.Allow(w.Limit)
	c.mu.Unlock()
	return w.Frames, k.raw.SetDeadline(time.Time{})
}

func keyOf(k *link) (identity.Key, error) { return identity.PeerKey(k.tls.ConnectionState()) }
