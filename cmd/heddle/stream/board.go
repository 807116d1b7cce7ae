package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"heddle/board"
	"heddle/board/registry"
	"heddle/config"
	"heddle/identity"
	"heddle/overlay/client"
	"heddle/path"
	"heddle/stripe"

	boardcmd "heddle/cmd/heddle/board"
)

// directoryPatience is how long a board may take to answer before the list of the last time has to do. Only tests change it.
var directoryPatience = 5 * time.Second

// directory asks the board of a stripe who there is.
func directory(ctx context.Context, s config.Stripe, id identity.Identity, talk io.Writer) (registry.Directory, error) {
	reference, err := board.LoadReference(s.Board)
	if err != nil {
		return registry.Directory{}, err
	}
	client, err := board.NewClient(board.ClientOptions{Reference: reference, Identity: id, Timeout: directoryPatience})
	if err != nil {
		return registry.Directory{}, err
	}
	defer client.Close()
	cache, err := boardcmd.RegistryCache(client, s.MaxAge)
	if err != nil {
		return registry.Directory{}, err
	}
	d, err := cache.Load(ctx, client)
	if err == nil {
		boardcmd.SayOfDirectory(talk, d)
	}
	return d, err
}

// findPeer fills in what the flags leave open of the peer: where it is, and whose key it has. A key that was given is
// never replaced.
func findPeer(d registry.Directory, service string, s *config.Stripe, o *stripe.Options, talk io.Writer) error {
	if s.To != "" && s.Key != "" {
		return nil
	}
	which := service
	if s.Key != "" {
		which = s.Key
	}
	found, err := ofService(d, service).Stream(which)
	if err != nil {
		return err
	}
	if s.Key == "" {
		fmt.Fprintf(talk, "claim: that %s is %v is the word of the board, where whoever is let in may register; --key would pin it\n", service, found.Key)
	}
	s.Key, o.Peer = found.Key.String(), found.Key
	if s.To == "" {
		s.To = found.Addresses[0]
	}
	return nil
}

// ofService leaves only the registrations of one service: a device may have several.
func ofService(d registry.Directory, service string) registry.Directory {
	d.Streams = slices.DeleteFunc(slices.Clone(d.Streams), func(s registry.Stream) bool { return s.Name != service })
	return d
}

// candidates are the nodes that this user may use: those of the kept passes, and those of the board that a kept grant is
// good for. Each has a name of its own.
func candidates(d registry.Directory, own identity.Key) ([]client.Pass, error) {
	dir, err := client.Dir()
	if err != nil {
		return nil, err
	}
	kept, err := client.Passes(dir)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	usable := func(g client.Grant, node identity.Key) bool {
		return g.Holder == own && now.Before(g.Until) && g.Allows(client.ModeForward) && (len(g.Nodes) == 0 || slices.Contains(g.Nodes, node))
	}
	var all []client.Pass
	known, names := map[identity.Key]bool{}, map[string]bool{}
	add := func(p client.Pass) {
		if names[p.Name] {
			p.Name = strings.Trim(p.Name[:min(len(p.Name), 20)]+"-"+p.Key.Short(), ".-_")
		}
		known[p.Key], names[p.Name] = true, true
		all = append(all, p)
	}
	for _, p := range kept {
		if usable(p.Grant.Grant, p.Key) && !known[p.Key] {
			add(whereNow(p, d))
		}
	}
	for _, n := range d.Nodes {
		if known[n.Key] || !slices.Contains(n.Modes, client.ModeForward) {
			continue
		}
		i := slices.IndexFunc(kept, func(p client.Pass) bool { return usable(p.Grant.Grant, n.Key) })
		if i < 0 {
			continue
		}
		p := client.Pass{Name: n.Name, Key: n.Key, Addresses: n.Addresses, Grant: kept[i].Grant}
		if p.Check() == nil {
			add(p)
		}
	}
	return all, nil
}

// whereNow puts the addresses that the node itself tells the board before those of its pass, which may be old.
func whereNow(p client.Pass, d registry.Directory) client.Pass {
	i := slices.IndexFunc(d.Nodes, func(n registry.Node) bool { return n.Key == p.Key })
	if i < 0 {
		return p
	}
	with := p
	with.Addresses = slices.Clone(d.Nodes[i].Addresses)
	for _, a := range p.Addresses {
		if !slices.Contains(with.Addresses, a) {
			with.Addresses = append(with.Addresses, a)
		}
	}
	if with.Check() != nil { // such as too many
		return p
	}
	return with
}

// chooser picks nodes for a stripe.
type chooser struct {
	stripe config.Stripe
	id     identity.Identity
	bases  []path.Path // that the nodes ride in turn; the machine's own routes where there are none
	talk   io.Writer
}

// base is what the i-th chosen node rides.
func (c chooser) base(i int) path.Path {
	if len(c.bases) == 0 {
		return path.NewSystem(0)
	}
	return c.bases[i%len(c.bases)]
}

// choose gives as many paths as were asked for, by nodes among the candidates. It fails where there are too few: fewer
// paths would show each network more.
func (c chooser) choose(ctx context.Context, all []client.Pass) ([]stripe.Path, error) {
	want := c.stripe.Paths
	if len(all) < want {
		return nil, &path.Error{What: "--paths", Why: fmt.Sprintf("%d nodes are asked for, and this user may use %d", want, len(all)),
			Hint: "`heddle node list` shows the passes; ask the owners of nodes for grants, and keep them with `heddle node add`"}
	}
	missing := ""
	if c.stripe.Pick == config.PickDiverse {
		paths, why, err := c.diverse(ctx, all)
		if err != nil || paths != nil {
			return paths, err
		}
		missing = why
		fmt.Fprintln(c.talk, "stream: no survey to choose nodes by:", why)
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	how := "at random"
	if c.stripe.Pick != config.PickRandom {
		var err error
		if all, err = c.nearest(ctx, all); err != nil {
			return nil, err
		}
		how = "those that answer first"
		if missing != "" {
			how += ", which says nothing of the networks that they share: " + missing
		}
	}
	var paths []stripe.Path
	var names []string
	for i, pass := range all[:want] {
		way, err := client.Through(pass, c.id, c.base(i))
		if err != nil {
			return nil, err
		}
		paths = append(paths, stripe.Path{Name: pass.Name, Path: way})
		names = append(names, pass.Name)
	}
	fmt.Fprintf(c.talk, "stream: nodes %s, of %d: %s\n", strings.Join(names, ", "), len(all), how)
	return paths, nil
}

// nearestPatience is how long a node may take to answer before it is passed over.
const nearestPatience = 5 * time.Second

// nearest sorts nodes by how long they take to answer, and leaves out those that do not. Each is asked over one base
// path, which sees that this device knows the node.
func (c chooser) nearest(ctx context.Context, all []client.Pass) ([]client.Pass, error) {
	ctx, cancel := context.WithTimeout(ctx, nearestPatience)
	defer cancel()
	took := make([]time.Duration, len(all))
	failed := make([]error, len(all))
	var asking sync.WaitGroup
	for i, pass := range all {
		asking.Go(func() {
			asker, err := client.New(pass, c.id, c.base(i))
			if err == nil {
				began := time.Now()
				_, err = asker.Status(ctx)
				took[i] = time.Since(began)
				asker.Close()
			}
			failed[i] = err
		})
	}
	asking.Wait()
	var live []int
	for i := range all {
		if failed[i] == nil {
			live = append(live, i)
		}
	}
	if len(live) < c.stripe.Paths {
		return nil, &path.Error{What: "--paths", Why: fmt.Sprintf("%d nodes are asked for, and %d of %d answer", c.stripe.Paths, len(live), len(all)),
			Err: errors.Join(failed...), Hint: "--pick random does not ask them first"}
	}
	slices.SortStableFunc(live, func(a, b int) int { return int(took[a] - took[b]) })
	sorted := make([]client.Pass, 0, len(live))
	for _, i := range live {
		sorted = append(sorted, all[i])
	}
	return sorted, nil
}

// register has a service on the board that it names, until stop takes it off. A board that cannot be reached keeps
// nothing from being served.
func register(ctx context.Context, a config.Admission, id identity.Identity, at string, log *slog.Logger) (stop func(), err error) {
	if a.Board == "" {
		return func() {}, nil
	}
	reference, err := board.LoadReference(a.Board)
	if err != nil {
		return nil, err
	}
	client, err := board.NewClient(board.ClientOptions{Reference: reference, Identity: id, Log: log})
	if err != nil {
		return nil, err
	}
	entry := registry.Stream{Name: a.Name, Key: id.Key(), Addresses: a.Address}
	if len(entry.Addresses) == 0 {
		entry.Addresses = []string{at}
	}
	ctx, cancel := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() {
		defer client.Close()
		if err := registry.Keep(ctx, client, entry, registry.Lease, log); err != nil {
			log.Error("the board does not list this service", "service", a.Name, "error", err)
		}
	})
	return func() {
		cancel()
		keeping.Wait()
	}, nil
}
