package stream

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"heddle/board/registry"
	"heddle/config"
	"heddle/identity"
	"heddle/overlay/client"
	"heddle/path"
	"heddle/stripe"
)

// directoryPatience is how long a board may take before the previous list is used. Only tests change it.
var directoryPatience = 5 * time.Second

// findPeer looks up the peer's address and key, if the flags do not give them. It never replaces a given key.
func findPeer(d registry.Directory, service string, s *config.Stripe, o *stripe.Options, talk io.Writer) error {
	if s.To != "" && s.Key != "" {
		return nil
	}
	found, err := d.Peer(service, s.Key)
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

// candidates returns the nodes that this user may use, from kept passes and a board's list.
func candidates(d registry.Directory, own identity.Key) ([]client.Pass, error) {
	dir, err := client.Dir()
	if err != nil {
		return nil, err
	}
	kept, err := client.Passes(dir)
	if err != nil {
		return nil, err
	}
	var listed []client.Listed
	for _, n := range d.Nodes {
		listed = append(listed, client.Listed{Name: n.Name, Key: n.Key, Addresses: n.Addresses, Modes: n.Modes})
	}
	return client.Usable(kept, listed, own, time.Now()), nil
}

// chooser chooses nodes for a stripe.
type chooser struct {
	stripe config.Stripe
	id     identity.Identity
	bases  []path.Path // that the nodes ride in turn; if empty, the default route
	lookup *lookup
	talk   io.Writer
}

// base returns what the i-th chosen node rides.
func (c chooser) base(i int) path.Path {
	if len(c.bases) == 0 {
		return path.NewSystem(0)
	}
	return c.bases[i%len(c.bases)]
}

// choose returns the requested number of paths by nodes among the candidates. It fails if there are too few: with fewer
// paths each network would see more.
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
		live, err := client.Nearest(ctx, all, c.id, c.base)
		if len(live) < want {
			return nil, &path.Error{What: "--paths", Why: fmt.Sprintf("%d nodes are asked for, and %d of %d answer", want, len(live), len(all)),
				Err: err, Hint: "--pick random does not ask them first"}
		}
		all = live
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
