package stream

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"heddle/cmd/heddle/internal/cli"
	"heddle/internal/text"
	"heddle/overlay/asn"
	"heddle/overlay/client"
	"heddle/overlay/survey"
	"heddle/path"
	"heddle/path/diversity"
	"heddle/stripe"
)

// surveyAge is the maximum age of a survey measurement for choosing nodes.
const surveyAge = 24 * time.Hour

// diverse chooses the nodes and uplinks that the fewest networks see together, by the measurements of `heddle overlay
// survey`. why says what is missing for that. It fails if the best choice is not diverse: the user decides whether to
// accept it.
func (c chooser) diverse(ctx context.Context, all []client.Pass) (paths []stripe.Path, why string, err error) {
	table, err := asn.OpenOr("")
	if err != nil {
		return nil, "there is no table of networks (heddle asn import)", nil
	}
	cache, err := survey.OpenCache()
	if err != nil {
		return nil, "", err
	}
	if len(cache.Halves) == 0 { // nobody need hear of the peer's name
		return nil, fmt.Sprintf("nothing was measured yet (heddle overlay survey %s)", c.stripe.To), nil
	}
	plan, err := c.plan(ctx, all)
	if err != nil {
		return nil, "", err
	}
	chosen, oldest, err := plan.Choose(cache.Halves, surveyAge, table, diversity.Options{Paths: c.stripe.Paths})
	if err != nil {
		return nil, fmt.Sprintf("heddle overlay survey %v: %v", plan.To, err), nil
	}
	if !chosen.Diverse() {
		return nil, "", notDiverse(chosen)
	}
	var names []string
	for _, p := range chosen.Paths {
		i := slices.IndexFunc(all, func(pass client.Pass) bool { return pass.Name == p.Node })
		member, err := client.Through(all[i], c.id, c.uplink(p.Uplink))
		if err != nil {
			return nil, "", err
		}
		paths = append(paths, stripe.Path{Name: p.Node, Path: member})
		names = append(names, p.Name)
	}
	fmt.Fprintf(c.talk, "stream: paths %s, of %d: no network is known to see two of them; measured up to %s ago\n", strings.Join(names, ", "), chosen.Usable, cli.Span(oldest))
	return paths, "", nil
}

// plan has all paths from each uplink through each node to the peer.
func (c chooser) plan(ctx context.Context, all []client.Pass) (*survey.Plan, error) {
	to, err := peerOf(ctx, c.stripe.To)
	if err != nil {
		return nil, err
	}
	at, err := c.lookup.peer(ctx, to)
	if err != nil {
		return nil, err
	}
	// Parse uplinks and destination like `heddle overlay survey`, so that its measurements are found.
	p, err := survey.NewPlan(ctx, at.String(), c.stripe.Path, nil)
	if err != nil {
		return nil, err
	}
	p.Nodes = slices.DeleteFunc(p.Nodes, func(n survey.Node) bool {
		return !slices.ContainsFunc(all, func(p client.Pass) bool { return p.Name == n.Name })
	})
	return p, nil
}

// uplink returns the base path of a name, or the machine's own routes.
func (c chooser) uplink(name string) path.Path {
	for i, text := range c.stripe.Path {
		if spec, err := path.ParseSpec(text); err == nil && spec.Name == name {
			return c.bases[i]
		}
	}
	return path.NewSystem(0)
}

func notDiverse(c diversity.Choice) error {
	return &path.Error{What: "no diverse set of " + text.Count(len(c.Paths), "path"), Why: "seen together: " + c.SeenTogether(diversity.AS.String),
		Hint: "`heddle overlay choose` says more; --pick rtt or --via takes paths all the same"}
}
