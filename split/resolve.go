package split

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

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
		return s.lookupOverPaths(ctx)
	}
	m := s.members[hidden]
	addresses, err := resolve.ByPath(ctx, m.Path, s.nameservers, s.host)
	if err != nil {
		return nil, &path.Error{What: "server " + s.host.Host, Why: "its name cannot be looked up by path " + m.Spec.Name + ", where the handshake goes",
			Hint: "this machine's own nameserver may be out of that path's reach: write the server's address instead", Err: err}
	}
	return addresses, nil
}

// agreePatience is how long the paths have to answer the first lookup after one of them did.
const agreePatience = 5 * time.Second

// lookupOverPaths asks over all paths at once, as this machine's resolver would. If no address has enough witnesses, the first
// path with an answer decides: a session has to begin somewhere.
func (s *Session) lookupOverPaths(ctx context.Context) ([]netip.AddrPort, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers, err := askAll(s.members, func(m *member) ([]netip.AddrPort, error) {
		found, err := resolve.OverPath(ctx, m.Path, s.host.Host)
		if err == nil {
			time.AfterFunc(agreePatience, cancel)
		}
		return s.host.At(found), err
	})
	if err != nil {
		return nil, err
	}
	addresses, contested := firstPlaces(answers, s.witnesses())
	if contested {
		s.group.Warn("the paths get different addresses of %s, and the session begins with those of path %s: write the server's address in place of the name", s.host.Host, answers[0].Path)
	}
	return addresses, nil
}

// firstPlaces returns the addresses of a server by the answers of its first lookup, of which there is at least one, and whether
// paths contradict each other about all of them.
func firstPlaces(answers []resolve.Answer, need int) (addresses []netip.AddrPort, contested bool) {
	if agreed := resolve.Agreed(answers, need); len(agreed) > 0 {
		return agreed, false
	}
	return answers[0].Addresses, len(answers) > 1
}

// askAll looks a name up by all members at once. It returns the answers in the order of the members, or why there is none.
func askAll(members []*member, ask func(*member) ([]netip.AddrPort, error)) (answers []resolve.Answer, err error) {
	all, errs := make([]resolve.Answer, len(members)), make([]error, len(members))
	var work sync.WaitGroup
	for i, m := range members {
		all[i] = resolve.Answer{Path: m.Spec.Name, Witness: resolve.WitnessOf(m.Path)}
		work.Go(func() { all[i].Addresses, errs[i] = ask(m) })
	}
	work.Wait()
	for i, answer := range all {
		if errs[i] == nil {
			answers = append(answers, answer)
		}
	}
	if len(answers) == 0 {
		return nil, errors.Join(errs...)
	}
	return answers, nil
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
