package client

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"heddle/identity"
	"heddle/path"
)

// Listed is a node as published by others, such as a board.
type Listed struct {
	Name      string
	Key       identity.Key
	Addresses []string
	Modes     []string
}

// Usable returns the nodes that forward for the holder of own: those of kept passes, and listed ones that a kept grant
// permits. Names are unique. Listed addresses precede those of a pass, which may be old.
func Usable(kept []Pass, listed []Listed, own identity.Key, now time.Time) []Pass {
	usable := func(g Grant, node identity.Key) bool {
		return g.Holder == own && now.Before(g.Until) && g.Allows(ModeForward) && (len(g.Nodes) == 0 || slices.Contains(g.Nodes, node))
	}
	var all []Pass
	known, names := map[identity.Key]bool{}, map[string]bool{}
	add := func(p Pass) {
		if names[p.Name] {
			p.Name = strings.Trim(p.Name[:min(len(p.Name), 20)]+"-"+p.Key.Short(), ".-_")
		}
		known[p.Key], names[p.Name] = true, true
		all = append(all, p)
	}
	for _, p := range kept {
		if usable(p.Grant.Grant, p.Key) && !known[p.Key] {
			add(p.at(listed))
		}
	}
	for _, n := range listed {
		i := slices.IndexFunc(kept, func(p Pass) bool { return usable(p.Grant.Grant, n.Key) })
		if i < 0 || known[n.Key] || !slices.Contains(n.Modes, ModeForward) {
			continue
		}
		if p := (Pass{Name: n.Name, Key: n.Key, Addresses: n.Addresses, Grant: kept[i].Grant}); p.Check() == nil {
			add(p)
		}
	}
	return all
}

// at returns the pass with the addresses that the node lists.
func (p Pass) at(listed []Listed) Pass {
	i := slices.IndexFunc(listed, func(n Listed) bool { return n.Key == p.Key })
	if i < 0 {
		return p
	}
	with := p
	with.Addresses = slices.Clone(listed[i].Addresses)
	for _, a := range p.Addresses {
		if !slices.Contains(with.Addresses, a) {
			with.Addresses = append(with.Addresses, a)
		}
	}
	if with.Check() != nil { // such as too many addresses
		return p
	}
	return with
}

// nearestPatience is how long to wait for a node's answer.
const nearestPatience = 5 * time.Second

// Nearest sorts nodes by the time to their answer and omits those that fail; err says why. It asks node i over base(i),
// whose network learns that this device knows the node.
func Nearest(ctx context.Context, nodes []Pass, id identity.Identity, base func(i int) path.Path) (live []Pass, err error) {
	ctx, cancel := context.WithTimeout(ctx, nearestPatience)
	defer cancel()
	type answer struct {
		pass Pass
		took time.Duration
		err  error
	}
	answers := make([]answer, len(nodes))
	var asking sync.WaitGroup
	for i, pass := range nodes {
		asking.Go(func() {
			began := time.Now()
			err := ask(ctx, pass, id, base(i))
			answers[i] = answer{pass, time.Since(began), err}
		})
	}
	asking.Wait()
	slices.SortStableFunc(answers, func(a, b answer) int { return cmp.Compare(a.took, b.took) })
	for _, a := range answers {
		if a.err == nil {
			live = append(live, a.pass)
		}
		err = errors.Join(err, a.err)
	}
	return live, err
}

func ask(ctx context.Context, pass Pass, id identity.Identity, base path.Path) error {
	asker, err := New(pass, id, base)
	if err != nil {
		return err
	}
	defer asker.Close()
	_, err = asker.Status(ctx)
	return err
}
