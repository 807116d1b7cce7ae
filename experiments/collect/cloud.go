package collect

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"heddle/lab"
	"heddle/lab/browser"
	"heddle/lab/peer"
	"heddle/observe"
	"heddle/path"
)

// What an observer of a cloud tries to tell apart.
const (
	CloudPages = "pages" // pages of one site: all are loaded by one pseudonym
	CloudSites = "sites" // sites of the cloud: each page is of a site of its own, and has a pseudonym of its own
)

// CloudOptions control [RunCloud].
type CloudOptions struct {
	// Options are those of a data set. The pages' protocols and latencies do not count here, nor do Paths, Schedule and Plain.
	Options
	Cloud    string   // [CloudPages] or [CloudSites]
	Defences []string // strategies of the sidecar's page defence
}

// RunCloud loads pages by pseudonyms, with one strategy of the page defence after the other, and writes a data set of each, as [Run] does.
func RunCloud(ctx context.Context, o CloudOptions) ([]Summary, error) {
	if o.Cloud != CloudPages && o.Cloud != CloudSites {
		return nil, &path.Error{What: "cloud " + o.Cloud, Why: "it is neither " + CloudPages + " nor " + CloudSites}
	}
	if !o.DryRun {
		if err := browser.UserSupported(); err != nil {
			return nil, err
		}
	}
	return o.each(ctx, o.Defences, func(one *Options, defence string) {
		one.kind, one.Schedule = o.Cloud+", "+defence, []string{"--cloud", o.Cloud, "--defence", defence}
		one.begin = func(ctx context.Context) (visits, error) { return beginCloud(ctx, *one, o.Cloud, defence) }
	})
}

// cloud is a client, the router of its network, which captures, and a cloud with one host for all sites.
type cloud struct {
	*stage
	defence string
	person  map[string]*person // by the name of the page's site
}

// person reaches one site by a pseudonym. Her profile has the certificate, and the Service Worker of the page defence.
type person struct {
	*browser.User
	own peer.Pseudonym
}

// cloudLink is the client's access network.
var cloudLink = lab.Shape{Delay: 10 * time.Millisecond, Rate: 20_000_000}

func cloudPlan() lab.World {
	w := lab.Cloud("collect-cloud", "site")
	for i := range w.Links {
		if w.Links[i].Name == w.Client {
			w.Links[i] = w.Links[i].Both(cloudLink)
		}
	}
	return w
}

// beginCloud makes the world. A person visits each site once, so that the page defence has started before the first load that counts.
func beginCloud(ctx context.Context, o Options, kind, defence string) (_ visits, err error) {
	c := &cloud{defence: defence, person: map[string]*person{}}
	if ctx, c.stage, err = raise(ctx, cloudPlan()); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.end())
		}
	}()
	host := c.in.Host("site")
	if _, err = peer.WebServer(ctx, host, o.Sites.Root, c.work, "site.example"); err != nil {
		return nil, err
	}
	devices, err := peer.NewOverlay(o.Heddle, c.work, c.in)
	if err != nil {
		return nil, err
	}
	running, err := peer.StartCloud(ctx, devices, filepath.Join(c.work, "cloud"), lab.CloudGateway)
	if err != nil {
		return nil, err
	}
	shared := (*person)(nil)
	for i, s := range o.Sites.Site {
		if kind == CloudPages && shared != nil {
			c.person[s.Name] = shared
			continue
		}
		name := s.Server()
		if kind == CloudPages {
			name = "site.example"
		}
		if shared, err = c.admit(ctx, running, name, i, s.Page); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		c.person[s.Name] = shared
	}
	return c, nil
}

// admit starts the sidecar of a site, and gives a person a pseudonym of it.
func (c *cloud) admit(ctx context.Context, running *peer.Cloud, site string, number int, page string) (*person, error) {
	addr := c.in.Host("site").Addrs()[0]
	sidecar := running.At("site", site, addr, "--defence", c.defence)
	sidecar.Listen = netip.AddrPortFrom(addr, peer.SidecarPort+uint16(number))
	if _, err := running.Add(ctx, sidecar); err != nil {
		return nil, err
	}
	own, err := running.Get(ctx, "client", site)
	if err != nil {
		return nil, err
	}
	u, err := browser.NewUser(ctx, filepath.Join(c.work, "user-"+site))
	if err != nil {
		return nil, err
	}
	// Chromium asks for nothing but the cloud.
	u.Scripts, u.Args = true, []string{"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE *." + peer.CloudZone}
	if err := errors.Join(u.Trust(ctx, "cloud", running.Root()), u.Own(ctx, own.Certificate(), own.Key())); err != nil {
		return nil, err
	}
	p := &person{u, own}
	for range attempts { // the page that starts the defence reloads itself
		if err = c.load(ctx, p, page); err == nil || ctx.Err() != nil {
			break
		}
	}
	return p, err
}

// load loads a page with an empty cache, in a browser that starts and ends: not before the page defence has padded the page.
func (c *cloud) load(ctx context.Context, p *person, page string) error {
	ctx, cancel := context.WithTimeout(ctx, loadPatience+20*time.Second)
	defer cancel()
	defended := c.defence != "none"
	seen, err := p.Do(ctx, c.in.Host("client"), browser.Step{Fresh: true, Open: p.own.To("/" + page), Settled: defended, Show: "page"})
	if err != nil {
		return err
	}
	s := seen["page"]
	switch at := "https://" + p.own.Name + "/"; {
	case s.Error != "":
		return errors.New(s.Error)
	case !strings.HasPrefix(s.URL, at):
		return fmt.Errorf("the page came from %s", s.URL)
	case s.Worker != defended:
		return fmt.Errorf("with the page defence %s the page's worker is %t", c.defence, s.Worker)
	}
	return nil
}

// visit implements [visits].
func (c *cloud) visit(ctx context.Context, t task) (Visit, error) {
	return c.attempt(ctx, t, func(dir string) (*observe.Session, error) { return c.watch(ctx, dir, t.site) })
}

// watch captures while the page loads.
func (c *cloud) watch(ctx context.Context, dir string, site Site) (*observe.Session, error) {
	if err := c.atRouter(ctx, dir, func() error { return c.load(ctx, c.person[site.Name], site.Page) }); err != nil {
		return nil, err
	}
	session, err := observe.Load(site.Name, dir, observe.Options{})
	if err != nil {
		return nil, err
	}
	// Questions to the nameserver have the same sizes for all pages, and caches answer most of them elsewhere.
	o := &session.Observers[0]
	o.Packets = slices.DeleteFunc(o.Packets, func(p observe.Packet) bool { return o.Flows[p.Flow].Transport != "tcp" })
	return session, nil
}
