package split

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"heddle/path"
	"heddle/path/group"
	"heddle/path/resolve"
)

const (
	backLongest   = 10 * time.Minute // between two questions at the address where the server was first
	provePatience = 5 * time.Second  // to open a path to an address and to get the proof
)

// evidence is what a search found out about where the server is.
type evidence struct {
	answers []resolve.Answer       // of the paths
	named   []netip.AddrPort       // the addresses that enough of them agree on, or that this machine's resolver gave
	proven  map[netip.AddrPort]int // how many independent witnesses carried the server's proof
	err     error                  // why nobody answered
}

// startSearch starts a search in the background if the server is lost, or if it is time to ask where it was first.
func (s *Session) startSearch(ctx context.Context, now time.Time, lost bool) {
	if s.searching || !lost && !s.wantsBack(now) {
		return
	}
	s.searching = true
	s.work.Go(func() {
		found := s.search(ctx, lost)
		select {
		case s.found <- found:
		case <-ctx.Done():
		}
	})
}

// wantsBack reports whether to ask now whether the server answers where it was first.
func (s *Session) wantsBack(now time.Time) bool {
	s.mu.Lock()
	fits := s.open && now.Sub(s.lastSent) < suspectMatters && !now.Before(s.hold)
	s.mu.Unlock()
	if !fits || s.prober == nil || *s.server.Load() == s.places.all()[0] || !s.back.Due(now) {
		return false
	}
	s.back.Tried(now, reResolve, backLongest)
	return true
}

// search finds out where the server is. A lost server is looked up by its name, and has to prove itself at one of its
// addresses if it can. Another one is only asked at its first address.
func (s *Session) search(ctx context.Context, lost bool) (e evidence) {
	at := *s.server.Load()
	if !lost {
		e.proven = s.proveAt(ctx, s.places.all()[:1], s.witnesses())
		return e
	}
	e.answers, e.named, e.err = s.lookAgain(ctx)
	if len(e.named) > 0 && !slices.Contains(e.named, at) {
		e.named = s.sendable(ctx, e.named)
	}
	if s.prober != nil {
		others := slices.DeleteFunc(s.places.all(), func(a netip.AddrPort) bool { return slices.Contains(e.named, a) })
		candidates := slices.DeleteFunc(slices.Concat(e.named, others), func(a netip.AddrPort) bool { return a == at })
		e.proven = s.proveAt(ctx, candidates, 1) // the paths ask at the present address themselves
	}
	return e
}

// witnesses returns how many witnesses this session needs: the network of all its packets could redirect them anyway.
func (s *Session) witnesses() int {
	var all []resolve.Witness
	for _, m := range s.members {
		all = append(all, resolve.WitnessOf(m.Path))
	}
	return resolve.Independent(all)
}

// lookAgain looks up the name by all paths at once, and returns the addresses that enough of them agree on. If no nameserver is
// known but a program on this machine, its word counts.
func (s *Session) lookAgain(ctx context.Context) (answers []resolve.Answer, named []netip.AddrPort, err error) {
	need, hidden := s.witnesses(), s.rules.handshakeMember()
	switch {
	case s.host.Address().IsValid():
		return nil, nil, nil
	case hidden >= 0 && need > 1:
		return nil, nil, &path.Error{What: "server " + s.host.Host, Why: "only path " + s.members[hidden].Spec.Name + " may see its name, and one path's answer does not move a session",
			Hint: "if the server moved, start the session again"}
	case len(s.nameservers) == 0 && hidden < 0:
		named, err = resolve.System(ctx, s.host)
		return nil, named, err
	}
	members := s.members
	if hidden >= 0 {
		members = members[hidden : hidden+1]
	}
	answers, err = askAll(members, func(m *member) ([]netip.AddrPort, error) {
		return resolve.ByPath(ctx, m.Path, s.nameservers, s.host)
	})
	return answers, resolve.Agreed(answers, need), err
}

// sendable puts the address first that most paths can send to, and returns nothing if there is none.
func (s *Session) sendable(ctx context.Context, addresses []netip.AddrPort) []netip.AddrPort {
	best, paths := s.choose(ctx, addresses)
	if paths == 0 {
		return nil
	}
	addresses = slices.DeleteFunc(addresses, func(a netip.AddrPort) bool { return a == best })
	return slices.Insert(addresses, 0, best)
}

// proveAt asks for proofs at one address after the other, until enough independent witnesses carried one. Only the questions
// of [Session.Prove] leave.
func (s *Session) proveAt(ctx context.Context, addresses []netip.AddrPort, need int) map[netip.AddrPort]int {
	proven := map[netip.AddrPort]int{}
	for _, to := range addresses {
		var by []resolve.Witness
		for _, m := range s.members {
			if m.Current() == nil {
				continue
			}
			ctx, cancel := context.WithTimeout(ctx, provePatience)
			if _, _, err := s.proveOne(ctx, m, to); err == nil {
				by = append(by, resolve.WitnessOf(m.Path))
			}
			cancel()
			if proven[to] = resolve.Independent(by); proven[to] >= need {
				return proven
			}
		}
	}
	return proven
}

// settle decides by the evidence of a search where the session sends to.
func (s *Session) settle(ctx context.Context, e evidence) {
	now, at := s.now(), *s.server.Load()
	s.places.add(e.named...)
	v := view{at: at, heard: s.heardAt, lost: s.silent(now), known: s.places.all(), named: e.named, answered: e.err == nil,
		proves: s.prober != nil, proven: e.proven, need: s.witnesses()}
	to := v.decide()
	s.explain(e, at, to)
	if to != at {
		s.moveTo(ctx, to)
	}
}

// explain says why a session moves, or why it stays although its name leads elsewhere.
func (s *Session) explain(e evidence, at, to netip.AddrPort) {
	known := s.places.all()
	isKnown := func(a netip.AddrPort) bool { return slices.Contains(known, a) }
	for _, answer := range e.answers {
		// The warning leaves the addresses out, so that a liar cannot fill the list of warnings.
		if len(answer.Addresses) > 0 && !slices.ContainsFunc(answer.Addresses, isKnown) {
			s.group.Warn("path %s gives an address of %s that no other path confirms, so it is not used; if the server moved, start the session again", answer.Path, s.host.Host)
		}
	}
	switch {
	case e.err != nil:
		s.log.Warn("the server is not heard, and its name cannot be looked up again", "session", s.o.Session, "error", e.err)
	case to != at && slices.Contains(e.named, to):
		s.log.Info("the server moved", "session", s.o.Session, "from", at, "to", to)
	case to != at:
		s.log.Info("back to a former address of the server", "session", s.o.Session, "from", at, "to", to)
	case s.prober != nil && len(e.named) > 0 && !slices.Contains(e.named, at):
		s.group.Warn("%s has another address now, where nothing proves to be the server, so the session stays", s.host.Host)
	}
}

// moveTo opens the paths to another address of the server.
func (s *Session) moveTo(ctx context.Context, to netip.AddrPort) {
	s.mu.Lock()
	s.server.Store(&to)
	s.settled = s.now() // what arrived before came from the old address
	s.back = group.Backoff{}
	s.back.Tried(s.settled, reResolve, backLongest)
	for _, m := range s.members {
		m.Trial, m.probe.sent = group.Backoff{}, time.Time{}
	}
	s.mu.Unlock()
	s.group.Move(ctx, to)
}
