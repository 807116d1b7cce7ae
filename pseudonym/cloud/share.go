package cloud

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"heddle/pseudonym/database"
	"heddle/pseudonym/gateway"
	"heddle/pseudonym/gateway/lead"
)

// shared is a switch that notes in the database what it leads, and leads what other switches have noted, so that another machine can take the place of
// one that fails. It notes a connection again while packets of it come by. An entry that it learnt from the database lasts while another switch notes
// the connection, or while packets come by here. So two switches do not keep each other's entries for ever.
type shared struct {
	table table
	moves moves
	log   *slog.Logger
	name  string // of this switch in the database
	end   context.CancelFunc
	done  sync.WaitGroup

	mu  sync.Mutex
	new map[ends]database.Move // to be noted, mostNew at most

	// The loop's alone:
	learnt map[ends]time.Time // when the switch was last told to lead a connection of another one's
	since  time.Time          // the database's clock at the last look
	failed bool               // the last time
}

// table is a switch that tells what it leads.
type table interface {
	gateway.Switch
	Each(func(lead.Connection) error) error
	// Touch lets an entry last as if packets came by now, unless some came in the time before that is given. It reports false if there is none that
	// leads to the tenant.
	Touch(client, gateway, tenant netip.AddrPort, unless time.Duration) (bool, error)
}

// moves is what the database has of connections that were moved, as [database.DB] says.
type moves interface {
	PutMoves(ctx context.Context, by string, all []database.Move) error
	Moves(ctx context.Context, not string, since time.Time) (all []database.Move, now time.Time, err error)
	DropMoves(ctx context.Context, unseen time.Duration) error
}

// ends are those of a connection, as its client sees it.
type ends struct{ client, gateway netip.AddrPort }

// Times of a shared switch. Others learn of a connection within a second or two.
const (
	noteEvery   = 250 * time.Millisecond
	lookEvery   = time.Second
	renewEvery  = time.Minute
	transaction = 5 * time.Second // the longest, before others can read what it wrote
	// passedFor is how old the last packet of a connection may be that is noted, and touchAfter how old it is when an entry is touched. Since that is
	// longer, two processes that use the same entries do not take each other's touch for a packet.
	passedFor  = 2 * renewEvery
	touchAfter = 4 * renewEvery
)

// mostNew bounds what waits to be noted. If the database is gone for longer, connections are noted when they are renewed.
const mostNew = 1 << 16

// share begins to share what a switch leads.
func share(t table, m moves, log *slog.Logger) *shared {
	ctx, end := context.WithCancel(context.Background())
	s := &shared{table: t, moves: m, log: log, name: rand.Text(), end: end, new: map[ends]database.Move{}, learnt: map[ends]time.Time{}, since: time.Unix(0, 0).Add(transaction)}
	s.done.Go(func() { s.run(ctx) })
	return s
}

// Close stops sharing. The switch goes on.
func (s *shared) Close() {
	s.end()
	s.done.Wait()
}

// Lead implements [gateway.Switch].
func (s *shared) Lead(client, gateway, tenant netip.AddrPort) error {
	return s.put(database.Move{Client: client, Gateway: gateway, Tenant: tenant})
}

// LeadDirect is [shared.Lead] to a tenant that answers directly.
func (s *shared) LeadDirect(client, gateway, tenant netip.AddrPort) error {
	return s.put(database.Move{Client: client, Gateway: gateway, Tenant: tenant, Direct: true})
}

// put leads a connection that others have not, and notes it later.
func (s *shared) put(m database.Move) error {
	if err := s.leads(m); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.new) < mostNew {
		s.new[ends{m.Client, m.Gateway}] = m
	}
	return nil
}

func (s *shared) leads(m database.Move) error {
	if m.Direct {
		return gateway.LeadDirect(s.table, m.Client, m.Gateway, m.Tenant)
	}
	return s.table.Lead(m.Client, m.Gateway, m.Tenant)
}

func (s *shared) run(ctx context.Context) {
	note, look, renew := time.NewTicker(noteEvery), time.NewTicker(lookEvery), time.NewTicker(renewEvery)
	defer note.Stop()
	defer look.Stop()
	defer renew.Stop()
	s.say(s.look(ctx))
	for {
		select {
		case <-ctx.Done():
			return
		case <-note.C:
			s.say(s.note(ctx))
		case <-look.C:
			s.say(s.look(ctx))
		case <-renew.C:
			s.say(s.renew(ctx, time.Now().Add(-passedFor)))
		}
	}
}

// say logs the first of several errors.
func (s *shared) say(err error) {
	if err != nil && !s.failed {
		s.log.Warn("what the switch leads is not shared", "error", err)
	}
	s.failed = err != nil
}

// note writes new connections.
func (s *shared) note(ctx context.Context) error {
	s.mu.Lock()
	written := s.new
	s.new = map[ends]database.Move{}
	s.mu.Unlock()
	all := make([]database.Move, 0, len(written))
	for _, m := range written {
		all = append(all, m)
	}
	err := s.moves.PutMoves(ctx, s.name, all)
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for of, m := range s.new { // they are newer
		written[of] = m
	}
	s.new = written
	return err
}

// look leads what other switches have seen since the last look.
func (s *shared) look(ctx context.Context) error {
	all, now, err := s.moves.Moves(ctx, s.name, s.since.Add(-transaction))
	if err != nil {
		return err
	}
	var failed error
	for _, m := range all {
		has, err := s.table.Touch(m.Client, m.Gateway, m.Tenant, touchAfter)
		if err == nil && !has {
			err = s.leads(m)
		}
		if err != nil { // such as one of IPv6, which this machine may not route
			failed = err
			continue
		}
		s.learnt[ends{m.Client, m.Gateway}] = time.Now()
	}
	s.since = now
	return failed
}

// renew notes the connections again whose packets have come by since a time, and forgets those that no switch leads any more.
func (s *shared) renew(ctx context.Context, since time.Time) error {
	var all []database.Move
	learnt := map[ends]time.Time{}
	err := s.table.Each(func(c lead.Connection) error {
		of := ends{c.Client, c.Gateway}
		touched := s.learnt[of]
		switch {
		case c.Last.After(touched.Add(time.Second)) && c.Last.After(since):
			all = append(all, database.Move{Client: c.Client, Gateway: c.Gateway, Tenant: c.Tenant, Direct: c.Direct})
		case !touched.IsZero():
			learnt[of] = touched
		}
		return nil
	})
	if err == nil {
		s.learnt = learnt
		err = s.moves.PutMoves(ctx, s.name, all)
	}
	if err == nil {
		err = s.moves.DropMoves(ctx, lead.Idle)
	}
	return err
}
