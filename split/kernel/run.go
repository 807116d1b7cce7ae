package kernel

import (
	"context"
	"errors"
	"time"

	"heddle/internal/bpf"
	"heddle/internal/netutil"
	"heddle/split"
	"heddle/split/backend"
)

// Run lets packets leave and maintains the paths until ctx ends; then nothing leaves, and it returns nil. It fails with
// [backend.ErrMoved] if the server has another address.
func (p *Backend) Run(ctx context.Context) error {
	defer p.session.maps.permit(0)
	p.members.FollowName(ctx)
	for {
		if err := p.tend(ctx); errors.Is(err, backend.ErrMoved) {
			p.moved = true
			return err
		} else if err != nil {
			// If this persists, the programs stop sending by themselves.
			p.members.Warn("%v", err)
		}
		if netutil.Sleep(ctx, backend.TendEvery) != nil {
			return nil
		}
	}
}

const (
	// lookEvery is the time between looks without a reported change. Such a look only reads the guard's counters from the kernel.
	lookEvery = time.Second
	// usualVerify is the time between looks at all that is in place, as a few settings change without a report.
	usualVerify = 30 * time.Second
)

// tend checks the paths once, and renews the permission to send.
func (p *Backend) tend(ctx context.Context) (err error) {
	now, moved := time.Now(), false
	if changed := p.watch.Changed(); changed || now.Sub(p.looked) >= lookEvery {
		if changed {
			p.verified = time.Time{} // also if this look fails
		}
		if moved, err = p.look(ctx, now); err != nil {
			return err
		}
		p.looked = now
	}
	p.members.Count(now, p.session.maps.passed())
	return p.members.Judge(now, func(usable []bool, enough bool) error {
		p.permit(now, usable, enough, moved)
		return nil
	})
}

// look finds how each path leaves now, and checks what is in place. It reports whether a path moved.
func (p *Backend) look(ctx context.Context, now time.Time) (moved bool, err error) {
	more, err := p.members.Moved(now)
	if err != nil {
		return false, err
	}
	if more {
		p.guard.Forbid(p.members.Others()...)
		if err := p.applyGuard(); err != nil {
			return false, err
		}
	}
	moved = p.members.Follow(ctx)
	if moved || !p.guarded || now.Sub(p.verified) >= p.o.verifyEvery {
		p.verified = time.Time{}
		if err := p.verify(); err != nil {
			return moved, err
		}
		if err := p.arrange(); err != nil {
			return moved, err
		}
		p.verified = now
	}
	p.countRefused()
	return moved, nil
}

// permit lets packets leave by the usable members, or not at all.
func (p *Backend) permit(now time.Time, usable []bool, enough, moved bool) {
	m, until := p.session.maps, bpf.Monotonic()+uint64(p.o.patience)
	if enough {
		p.mu.Lock()
		p.planner.fill(p.unit(), usable)
		p.mu.Unlock()
		m.permit(until)
	} else if p.enough {
		m.permit(0)
	}
	p.enough = enough
	if moved {
		return
	}
	if trial := m.trial(); trial >= 0 && p.members.Doubts(trial) {
		m.prolong(until, m.pauses())
		return
	}
	m.try(p.members.NextTrial(now, m.pauses()), until)
}

// unit returns the running unit.
func (p *Backend) unit() uint64 {
	every := p.o.Schedule.Every
	switch {
	case every.Packets > 0:
		return p.session.maps.taken() / uint64(every.Packets)
	case every.Period > 0:
		return (bpf.Monotonic() - p.session.start) / uint64(every.Period)
	}
	return 0
}

func (p *Backend) countRefused() {
	passed, err := p.guard.Read()
	if err != nil {
		p.guarded = false // somebody changed or removed the table; the next look replaces it
		return
	}
	p.mu.Lock()
	p.stray = passed.Refused.Packets
	p.mu.Unlock()
}

// Status returns the status of the session. It counts packets on the wire: each segment of a run counts as one.
func (p *Backend) Status() split.Status {
	counted, refused, tooLarge, closed := p.counted()
	if closed {
		return split.Status{Session: p.o.Session, Backend: backendName, To: p.o.To, State: "stopped", Why: "closed"}
	}
	s := p.members.Status(counted) // asks the kernel, which the permission to send must not wait for
	s.Refused, s.TooLarge = refused, tooLarge
	s.Claim += "; programs that bind to a device get no answers, and fragments do not leave; a QUIC handshake goes by one path, which sees the server's name"
	return s
}

// counted returns the counters of the members and of drops, and warns of drops.
func (p *Backend) counted() (counted []split.Counted, refused, tooLarge uint64, closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, 0, 0, true
	}
	drops, passed := p.session.maps.drops(), p.session.maps.passed()
	tooLarge = drops[dropTooLarge]
	if backend.IsSearch(tooLarge, passed) {
		drops[dropTooLarge] = 0
	}
	for d, n := range drops {
		if n > 0 && drop(d) != dropStopped {
			p.members.Warn("datagrams to the server were dropped: %s", drop(d).explain())
		}
	}
	if p.refused+p.stray > 0 {
		p.members.Warn("datagrams to the server were dropped: they would have left by a device where nothing splits them")
	}
	counted = backend.Counted(passed, p.planner.schedule.Weights(), p.planner.switches)
	refused = p.refused + p.stray
	drops[dropTooLarge] = 0
	for _, n := range drops {
		refused += n
	}
	return counted, refused, tooLarge, false
}
