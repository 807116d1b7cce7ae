package split

import (
	"context"
	"net/netip"
	"sync"

	"heddle/path"
	"heddle/path/resolve"
)

// Resolve looks up the server's name and chooses the address that most paths can send to. It asks this machine's resolver,
// unless [Options.AskPaths] is set or a rule hides the handshake from all paths but one. The nameserver and the networks before
// it see the name.
func (s *Session) Resolve(ctx context.Context) error {
	s.nameservers = resolve.Nameservers()
	addresses, err := s.lookupFirst(ctx)
	if err != nil {
		return err
	}
	best, _ := s.choose(ctx, addresses)
	s.server.Store(&best)
	s.places.add(best)
	s.places.add(addresses...)
	return nil
}

// lookupFirst looks the server up before there are flows, by the handshake's path if a rule hides that from the others.
func (s *Session) lookupFirst(ctx context.Context) ([]netip.AddrPort, error) {
	hidden := s.rules.handshakeMember()
	switch {
	case s.host.Address().IsValid(), hidden < 0 && !s.o.AskPaths:
		return resolve.System(ctx, s.host)
	case hidden < 0:
		return s.lookupInTurn(ctx)
	}
	m := s.members[hidden]
	addresses, err := resolve.ByPath(ctx, m.Path, s.nameservers, s.host)
	if err != nil {
		return nil, &path.Error{What: "server " + s.host.Host, Why: "its name cannot be looked up by path " + m.Spec.Name + ", where the handshake goes",
			Hint: "this machine's own nameserver may be out of that path's reach: write the server's address instead", Err: err}
	}
	return addresses, nil
}

// lookupInTurn asks over one path after the other until one gets an answer.
func (s *Session) lookupInTurn(ctx context.Context) (addresses []netip.AddrPort, err error) {
	for _, m := range s.members {
		var found []netip.Addr
		if found, err = resolve.OverPath(ctx, m.Path, s.host.Host); err == nil {
			return s.host.At(found), nil
		}
	}
	return nil, err
}

// choose returns the address that most paths can send to, and the number of those paths.
func (s *Session) choose(ctx context.Context, addresses []netip.AddrPort) (best netip.AddrPort, paths int) {
	if len(addresses) == 1 {
		return addresses[0], 1 // no choice, and the test might open a tunnel
	}
	var work sync.WaitGroup
	each := make([][]int, len(s.members))
	for i, m := range s.members {
		each[i] = make([]int, len(addresses))
		work.Go(func() { resolve.Reach(ctx, m.Path, addresses, each[i]) })
	}
	work.Wait()
	counts := make([]int, len(addresses))
	for _, of := range each {
		for i, n := range of {
			counts[i] += n
		}
	}
	return resolve.Best(addresses, counts)
}
