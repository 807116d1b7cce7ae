// Package route splits a session as CoMPS did (section 4): at each switch it replaces the route to the server, so that the
// next packets leave by another device with that device's address. It exists for comparison; prefer the kernel backend or
// the relay.
//
// Programs send straight to the server. Their sockets must be neither bound nor connected: the kernel chooses the address of
// other sockets once, and packets that they send by another path are dropped. Units are times. Paths are of kinds if and
// src.
//
// Unlike the paper's scripts, which delete a route and add another, this package replaces the route in one step, in a
// routing table that only UDP to the server's port uses. A blackhole route lies under it, and an nftables table drops
// packets with the address of another path.
//
// It fails closed. The nftables table lets packets out only while a set has an element. This process renews the element each
// second, and the kernel removes it after three seconds. With too few paths there is an element only while the route leads by
// a silent path, to test it. So after a crash packets leave by the last path for up to three seconds, and then none until [Clean]
// or the next Open of the session.
//
// It needs CAP_NET_ADMIN, Linux 4.17 and nftables with sets that time out.
package route

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"heddle/internal/iprule"
	"heddle/internal/journal"
	"heddle/internal/nft"
	"heddle/internal/sysctl"
	"heddle/path"
	"heddle/schedule"
	"heddle/split"
	"heddle/split/backend"
)

// Options configure a session.
type Options = backend.Options

const backendName = "route"

var kinds = journal.Kinds{
	"guard":  func() journal.Change { return &backend.Guard{} },
	"sysctl": func() journal.Change { return &sysctl.Change{} },
	"table":  func() journal.Change { return &backend.Table{} },
	"rule":   func() journal.Change { return &backend.Rule{} },
}

// Clean undoes the changes that a crash of the session left, and returns a line for each. Until then no packets leave to
// that server; with keepGuard none leave before the next Open. The caller must hold the session's name.
func Clean(dir, session string, keepGuard bool) ([]string, error) {
	return backend.Clean(dir, session, backendName, kinds, keepGuard)
}

// Left is [backend.Left].
func Left(dir, session string) ([]string, error) {
	return backend.Left(dir, session, backendName, kinds)
}

// Backend is one session. Open, Run and Close must be called in one network namespace.
type Backend struct {
	o        Options
	members  *backend.Members
	journal  *journal.Journal
	guard    *backend.Guard
	left     bool // a crash left a guard
	moved    bool // the server moved: the guard stays
	renewed  time.Time
	arranged bool // the guard matches the members and the server's addresses
	table    *backend.Table
	watch    *path.Watch

	mu       sync.Mutex
	schedule *schedule.Schedule
	exits    []int // members, in the order of the guard's exits
	total    passed
	heard    passed // at the last look
	current  int    // member, -1 if nothing leaves
	trial    trial
	hop      backend.Hop
	usable   []bool
	switches []uint64
	closed   bool
}

// trial is a test of a doubtful member that is next or under way; its member is -1 if there is none.
type trial struct {
	backend.Trial
	began  time.Time
	before backend.Passage // what the member had carried
	took   uint64          // packets
	last   time.Time       // when it was seen to take more of them
}

// passed is what the guard counted, by member.
type passed struct {
	members  []backend.Passage
	refused  uint64 // packets
	tooLarge uint64 // packets
}

// plus adds the guard's counters at the exits of these members.
func (p passed) plus(exits []int, more backend.Passed) passed {
	sum := passed{slices.Clone(p.members), p.refused + more.Refused.Packets, p.tooLarge + more.TooLarge.Packets}
	for i, member := range exits {
		m := &sum.members[member]
		m.Up, m.Down = m.Up.Plus(more.Up[i]), m.Down.Plus(more.Down[i])
	}
	return sum
}

// Open prepares the machine. Nothing leaves to the server before [Backend.Run].
func Open(ctx context.Context, o Options) (*Backend, error) {
	var b [4]byte
	rand.Read(b[:])
	mark := binary.NativeEndian.Uint32(b[:]) | 1<<31 // lets the paths' lookups skip our own rule
	members, err := backend.NewMembers(ctx, backendName, o, mark)
	if err != nil {
		return nil, err
	}
	n := len(o.Via)
	p := &Backend{o: o, members: members, current: -1, trial: trial{Trial: backend.Trial{Member: -1}}, usable: make([]bool, n), switches: make([]uint64, n),
		total: passed{members: make([]backend.Passage, n)}, heard: passed{members: make([]backend.Passage, n)}}
	if err := p.open(ctx, mark); err != nil {
		return nil, errors.Join(err, p.close(p.left))
	}
	return p, nil
}

func (p *Backend) open(ctx context.Context, mark uint32) (err error) {
	if p.schedule, err = schedule.New(p.o.Schedule, len(p.o.Via)); err != nil {
		return err
	}
	if p.journal, err = backend.OpenJournal(p.o.Dir, p.o.Session, backendName, kinds); err != nil {
		return err
	}
	v6 := p.members.Server.Addr().Is6()
	p.guard = &backend.Guard{Table: nft.Name(backendName, p.o.Session), Server: p.members.Server, Answers: true, Lease: lease}
	p.guard.Forbid(p.members.Others()...)
	if p.left, err = backend.Begin(p.journal, p.guard); err != nil {
		return err
	}
	numbers, err := iprule.FreeTables(iprule.Sessions, 1)
	if err != nil {
		return err
	}
	first, after, err := iprule.FreePriorities(v6, 2)
	if err != nil {
		return err
	}
	p.table = &backend.Table{V6: v6, Number: numbers[0], Blackhole: true}
	for _, c := range []journal.Change{p.table,
		&backend.Rule{V6: v6, Priority: first, Mark: mark, Goto: after},
		&backend.Rule{V6: v6, Priority: first + 1, To: p.members.Server, Table: p.table.Number},
	} {
		if err := p.journal.Do(c); err != nil {
			return err
		}
	}
	if p.watch, err = path.NewWatch(); err != nil {
		return err
	}
	p.members.Follow(ctx)
	return p.arrange()
}

// arrange lets the guard pass each member with its own address, and lets answers in by each device.
func (p *Backend) arrange() error {
	var exits []backend.Exit
	var members []int
	for i, h := range p.members.Hops() {
		if h.Index == 0 {
			continue
		}
		exits, members = append(exits, backend.Exit{Index: h.Index, Source: h.Source, MTU: max(h.MTU, h.Link)}), append(members, i)
		if p.members.Server.Addr().Is4() {
			if change, err := sysctl.LooseFilter(h.Device); err != nil {
				return err
			} else if change != nil {
				if err := p.journal.Do(change); err != nil {
					return err
				}
			}
		}
	}
	counted, readErr := p.guard.Read()
	p.guard.Exits, p.guard.Largest = exits, p.members.MTU()
	if err := p.guard.Apply(); err != nil {
		return err
	}
	p.arranged = true
	p.mu.Lock()
	defer p.mu.Unlock()
	if readErr == nil {
		p.total = p.total.plus(p.exits, counted)
	} else {
		p.total = p.heard // the counters were reset with the table
	}
	p.exits = members
	return nil
}

// lease is how long packets leave if this process does not renew it, as it does each second. Only tests change it.
var lease = 3 * time.Second

const renew = time.Second

// Run lets packets leave and switches paths until ctx ends; then nothing leaves, and it returns nil. It fails with
// [backend.ErrMoved] if the server has another address.
func (p *Backend) Run(ctx context.Context) error {
	p.members.FollowName(ctx)
	tend := time.NewTicker(backend.TendEvery)
	defer tend.Stop()
	turn := time.NewTimer(time.Hour)
	defer turn.Stop()
	for looks := true; ; {
		if looks {
			if err := p.tend(ctx); errors.Is(err, backend.ErrMoved) {
				p.moved = true
				return errors.Join(err, p.stop())
			} else if err != nil {
				p.members.Warn("%v", err)
			}
		}
		next, err := p.turn(time.Now())
		if err != nil {
			p.members.Warn("%v", err)
		}
		turn.Reset(next)
		looks = false
		select {
		case <-ctx.Done():
			return p.stop()
		case <-tend.C:
			looks = true
		case <-turn.C:
		}
	}
}

func (p *Backend) stop() error { return errors.Join(p.table.Clear(), p.guard.Withdraw()) }

// tend checks the paths once.
func (p *Backend) tend(ctx context.Context) error {
	more, err := p.members.Moved(time.Now())
	if err != nil {
		return err
	}
	if more {
		p.guard.Forbid(p.members.Others()...)
		p.arranged = false
	}
	if p.watch.Changed() {
		p.check()
	}
	if p.members.Follow(ctx) {
		p.arranged = false
	}
	if !p.arranged { // also if the last try failed
		if err := p.arrange(); err != nil {
			return err
		}
	}
	now := time.Now()
	if err := p.hear(now); err != nil {
		p.arranged = false
		return err
	}
	return p.members.Judge(now, func(usable []bool, enough bool) error { return p.permit(now, usable, enough) })
}

// check makes the next turn replace a route that the kernel removed: a device that was down has the same hop as before.
func (p *Backend) check() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.table.Holds(p.hop) {
		p.hop = backend.Hop{}
	}
}

// permit lets packets leave by the usable members, or not at all.
func (p *Backend) permit(now time.Time, usable []bool, enough bool) error {
	p.mu.Lock()
	copy(p.usable, usable)
	if !enough {
		clear(p.usable)
	}
	if t := p.trial.Member; t >= 0 && !p.members.Doubts(t) {
		p.trial.Member = -1
	}
	p.trial.Burst = p.trial.Burst && enough
	if p.trial.Member < 0 {
		// Whether the session has bursts shows when the trial begins.
		if p.trial = (trial{Trial: p.members.NextTrial(now, true), began: now}); p.trial.Member >= 0 {
			p.trial.before = p.heard.members[p.trial.Member]
		}
	}
	trying := p.trial.Member >= 0
	p.mu.Unlock()
	if _, err := p.turn(now); err != nil {
		return err
	}
	switch {
	case !enough && !trying: // the route of a trial is the only one
		p.renewed = time.Time{}
		return p.guard.Withdraw()
	case now.Sub(p.renewed) >= renew:
		if err := p.guard.Permit(); err != nil {
			return err
		}
		p.renewed = now
	}
	return nil
}

// hear updates the paths' health from what the guard counted since the last call.
func (p *Backend) hear(now time.Time) error {
	counted, err := p.guard.Read()
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = p.total.plus(p.exits, counted)
	p.members.Count(now, p.heard.members)
	return nil
}

// turn begins the next unit if it is due. It returns the remaining time of the running one.
func (p *Backend) turn(now time.Time) (time.Duration, error) {
	if p.trying() {
		if err := p.hear(now); err != nil {
			return backend.TendEvery, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	member, _ := p.schedule.Turn(now, p.turnable(now))
	var hop backend.Hop
	if member >= 0 {
		hop = p.members.Hops()[member]
		hop.MTU = p.members.MTU() // the kernel fragments or refuses what another path would not carry
	}
	if hop.Index == 0 {
		p.current, p.hop = -1, backend.Hop{}
		return time.Hour, p.table.Clear()
	}
	if hop != p.hop {
		if err := p.table.Replace(hop, p.members.Server.Addr()); err != nil {
			p.hop = backend.Hop{}
			return backend.TendEvery, errors.Join(err, p.table.Clear())
		}
		p.hop = hop
	}
	if member != p.current {
		p.current = member
		p.switches[member]++
	}
	if t := p.trial; t.Member >= 0 {
		return max(trialLook, min(now.Sub(t.began), now.Sub(t.last))/16), nil
	}
	if end := p.schedule.End(); !end.IsZero() {
		return time.Until(end), nil
	}
	return time.Hour, nil
}

// trialLook is the time until the first look whether a trial carried something. A trial that waits for its packet is looked at
// less and less often.
const trialLook = 5 * time.Millisecond

// trying reports whether a trial has the route.
func (p *Backend) trying() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trial.Member >= 0 && p.trial.Member == p.current
}

// turnable returns the members that the next turn may choose from: a doubtful one alone during its trial, since only use shows
// whether it works again. p.mu is held.
func (p *Backend) turnable(now time.Time) []bool {
	switch t := &p.trial; {
	case t.Member < 0:
		return p.usable
	case t.over(now, p.heard.members[t.Member]):
		t.Member = -1
		p.schedule.Cut()
		return p.usable
	case t.Member != p.current:
		p.schedule.Cut()
	}
	only := make([]bool, len(p.usable))
	only[p.trial.Member] = true
	return only
}

// over reports whether a trial has taken what it may, by what its member has carried.
func (t *trial) over(now time.Time, passed backend.Passage) bool {
	packets, bytes := passed.Up.Packets-t.before.Up.Packets, passed.Up.Bytes-t.before.Up.Bytes
	paused := now.Sub(t.began) >= split.PauseLength // there was a pause before its first packet
	switch {
	case packets == 0:
		return false
	case packets == t.took:
		return now.Sub(t.last) >= split.PauseLength
	case !t.Burst, t.took == 0 && !paused, packets >= backend.BurstLimit, bytes > packets*split.MostAcknowledgement,
		passed.Down.Packets > t.before.Down.Packets:
		return true
	}
	t.took, t.last = packets, now
	return false
}

// Status returns the status of the session. A run of segments (UDP_SEGMENT) counts as one packet.
func (p *Backend) Status() split.Status {
	counted, refused, tooLarge, closed := p.counted()
	s := p.members.Status(counted) // asks the kernel, which switches must not wait for
	if closed {
		s.State, s.Why = "stopped", "closed"
	}
	s.Refused, s.TooLarge = refused, tooLarge
	s.Claim += "; it takes only sockets that are neither bound nor connected, and what others send is dropped; the path of a QUIC session may change within its handshake"
	return s
}

// counted returns the members' counters, the guard's drops, and whether the session is closed. It warns of drops.
func (p *Backend) counted() (counted []split.Counted, refused, tooLarge uint64, closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.heard; h.tooLarge > 0 && !backend.IsSearch(h.tooLarge, h.members) {
		p.members.Warn("datagrams of the server were dropped: %s", backend.TooLarge)
	}
	return backend.Counted(p.heard.members, p.schedule.Weights(), p.switches), p.heard.refused, p.heard.tooLarge, p.closed
}

// Close stops the session and undoes its changes. After it, programs send to the server unsplit, except if Run ended with
// [backend.ErrMoved]: then the guard stays, and nothing leaves.
func (p *Backend) Close() error { return p.close(p.moved) }

func (p *Backend) close(keepGuard bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	var err error
	if p.journal != nil {
		err = backend.End(p.journal, p.guard, keepGuard)
	}
	return errors.Join(err, p.members.Close(), p.watch.Close())
}
