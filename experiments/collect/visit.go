package collect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"heddle/lab/browser"
	"heddle/lab/peer"
	"heddle/observe"
)

const (
	upPatience   = 20 * time.Second
	loadPatience = 40 * time.Second
	// late is the mean lateness in milliseconds above which a visit is rejected.
	late = 1.0
)

type visitor struct {
	*world
	heddle string
	// defence holds the flags of `heddle up` for a defended visit; a plain one uses the first path only.
	defence []string
	ways    []string
}

// visit loads one page over a new tunnel in a new browser.
func (v *visitor) visit(ctx context.Context, t task) (Visit, error) {
	return v.attempt(ctx, t, func(dir string) (*observe.Session, error) { return v.watch(ctx, dir, t.site, t.defended) })
}

// watch starts the tunnel, and captures each of its paths while the page loads.
func (v *visitor) watch(ctx context.Context, dir string, site Site, defended bool) (*observe.Session, error) {
	ways := v.ways
	args := []string{"up", v.file}
	if defended {
		args = append(args, v.defence...)
	} else {
		ways = ways[:1]
	}
	for _, way := range ways {
		args = append(args, "--via", way+"=if:"+way)
	}
	args = append(args, "--min-paths", fmt.Sprint(len(ways)))
	up, err := peer.Start(ctx, v.in.Host("client"), v.heddle, args...)
	if err != nil {
		return nil, err
	}
	defer up.Stop()
	patience, cancel := context.WithTimeout(ctx, upPatience)
	defer cancel()
	if err := up.AwaitLog(patience, " is up: "); err != nil {
		return nil, fmt.Errorf("heddle up: %w\n%s", err, up.Log())
	}
	if err := v.in.CaptureWays(ctx, dir, ways, func() error { return v.load(ctx, site) }); err != nil {
		return nil, err
	}
	return observe.Load(site.Name, dir, observe.Options{})
}

// load loads the page in a new browser with a new profile.
func (v *visitor) load(ctx context.Context, site Site) error {
	at := v.origins[site.origin()]
	ctx, cancel := context.WithTimeout(ctx, loadPatience+20*time.Second)
	defer cancel()
	pages, err := browser.Visit{
		Server: fmt.Sprintf("%s:%d", site.Server(), at.addr.Port()), Relay: at.addr.String(), Certificate: at.certificate,
		Contexts: [][]string{{site.Page}}, Timeout: loadPatience, TCP: site.Protocol == HTTP2,
	}.Run(ctx, v.in.Host("client"))
	if err != nil {
		return err
	}
	return loaded(pages, 1, site)
}

// loaded returns why a load of so many pages is rejected, or nil.
func loaded(pages []browser.Page, want int, site Site) error {
	if len(pages) != want {
		return fmt.Errorf("%d pages", len(pages))
	}
	for _, p := range pages {
		switch {
		case p.Error != "":
			return errors.New(p.Error)
		case len(p.Responses) == 0:
			return errors.New("nothing was loaded")
		}
		for _, r := range p.Responses {
			if r.Protocol != "" && r.Protocol != site.Protocol {
				return fmt.Errorf("%s came by %s, not %s", r.URL, r.Protocol, site.Protocol)
			}
		}
	}
	return nil
}
