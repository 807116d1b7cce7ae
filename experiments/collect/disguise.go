package collect

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"heddle/internal/atomicfile"
	"heddle/lab"
	"heddle/lab/browser"
	"heddle/lab/peer"
	"heddle/observe"
	"heddle/path"
)

// way is how a client loads pages, as a censor sees it.
type way struct {
	name      string
	transport string // of Tor; "bridge" is Tor's own protocol, and empty is without Tor
	cover     string // of the transport heddle
	website   bool   // a visitor browses the website of the cover, which is nobody's disguise
}

var disguiseWays = []way{
	{name: "direct"},
	{name: "tor", transport: "bridge"},
	{name: "obfs4", transport: "obfs4"},
	{name: "random", transport: "heddle", cover: "random"},
	{name: "embed", transport: "heddle", cover: "embed"},
	{name: "http", transport: "heddle", cover: "http"},
	{name: "https", transport: "heddle", cover: "https"},
	{name: "website-http", cover: "http", website: true},
	{name: "website-https", cover: "https", website: true},
}

// DisguiseWays are the names of all ways of [RunDisguise].
func DisguiseWays() (names []string) {
	for _, w := range disguiseWays {
		names = append(names, w.name)
	}
	return names
}

// needsSite reports whether the bridge is a website.
func (w way) needsSite() bool { return strings.HasPrefix(w.cover, "http") }

// DisguiseOptions control [RunDisguise].
type DisguiseOptions struct {
	// Options are those of a data set. The pages' protocols and latencies do not count here, nor do Paths, Schedule and Plain.
	Options
	Ways []string // some of [DisguiseWays]
	// Website is the file of the recorded website of the covers http and https.
	Website string
	// Keep has one Tor for all visits, and records the loads alone. Otherwise a Tor starts for each visit, and its connections are recorded
	// from their beginnings.
	Keep bool
	// Captures is a directory that gets the captures of all visits, in a directory for each way. Empty is none.
	Captures string
}

// RunDisguise loads pages in one way after the other, over a link between a client and the router of its network, and writes a data set of
// each, as [Run] does. It fails with [peer.ErrMissing] without a program.
func RunDisguise(ctx context.Context, o DisguiseOptions) ([]Summary, error) {
	ways := map[string]way{}
	for _, name := range o.Ways {
		i := slices.IndexFunc(disguiseWays, func(w way) bool { return w.name == name })
		if i < 0 {
			return nil, &path.Error{What: "--over " + name, Why: "there is no such way", Hint: "one of " + strings.Join(DisguiseWays(), ", ")}
		}
		ways[name] = disguiseWays[i]
	}
	var site *peer.Website
	if slices.ContainsFunc(o.Ways, func(name string) bool { return ways[name].needsSite() }) {
		if o.Website == "" {
			return nil, &path.Error{What: "--website", Why: "the covers http and https need a recorded website",
				Hint: "record one with heddle disguise site import, or take dist/site-docs.db"}
		}
		var err error
		if o.Website, err = filepath.Abs(o.Website); err != nil {
			return nil, err
		}
		if site, err = peer.RecordedWebsite(ctx, o.Heddle, o.Website); err != nil {
			return nil, err
		}
	}
	return o.each(ctx, o.Ways, func(one *Options, name string) {
		one.kind, one.Schedule = name, []string{"--over", name}
		if ways[name].needsSite() {
			one.Schedule = append(one.Schedule, "--website", o.Website)
		}
		if o.Keep {
			one.Schedule = append(one.Schedule, "--keep")
		}
		one.begin = func(ctx context.Context) (visits, error) { return o.beginDisguise(ctx, ways[name], site) }
	})
}

// disguised is a client behind a link, and what it reaches by one way: a web server, a private Tor network, a bridge.
type disguised struct {
	way
	*stage
	keep      bool
	captures  string        // a directory, or ""
	page      browser.Visit // without the page
	network   *peer.TorNetwork
	line      string // of the bridge
	transport []peer.TorTransport
	pages     []string // of the website
}

const (
	disguiseSOCKS = 9100
	disguisePort  = 5011 // of obfs4 at the bridge
)

// disguisePlan is the paper's DSL link to servers across the United States (StegoTorus, section 6).
func disguisePlan() lab.World { return lab.Tor("collect-disguise", lab.DSL(85*time.Millisecond)) }

func (o DisguiseOptions) beginDisguise(ctx context.Context, w way, site *peer.Website) (_ visits, err error) {
	d := &disguised{way: w, keep: o.Keep}
	if o.Captures != "" {
		d.captures = filepath.Join(o.Captures, w.name)
		if err := os.MkdirAll(d.captures, 0o755); err != nil {
			return nil, &path.Error{What: "--captures", Err: err}
		}
	}
	if ctx, d.stage, err = raise(ctx, disguisePlan()); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.end())
		}
	}()
	if err = d.serve(ctx, o, site); err != nil {
		return nil, err
	}
	if w.transport != "" && o.Keep {
		_, err = d.startTor(ctx)
	}
	return d, err
}

// serve starts the servers of a way.
func (d *disguised) serve(ctx context.Context, o DisguiseOptions, site *peer.Website) error {
	if d.website {
		return d.serveWebsite(ctx, o, site)
	}
	var names []string
	for _, s := range o.Sites.Site {
		names = append(names, s.Server())
	}
	host := d.in.Host("web")
	web, err := peer.WebServer(ctx, host, o.Sites.Root, host.Dir(), names...)
	if err != nil {
		return err
	}
	d.page = browser.Visit{TCP: true, Relay: netip.AddrPortFrom(host.Addrs()[0], 443).String(), Certificate: web.Certificate}
	if d.way.transport == "" {
		return nil
	}
	d.page.SOCKS4 = fmt.Sprintf("127.0.0.1:%d", disguiseSOCKS)
	fmt.Fprintln(o.Talk, "start a private Tor network, which takes half a minute")
	if d.network, err = peer.StartTor(ctx, d.in); err != nil {
		return err
	}
	return d.startBridge(ctx, o, site)
}

// startBridge starts the bridge, and decides what clients run.
func (d *disguised) startBridge(ctx context.Context, o DisguiseOptions, site *peer.Website) error {
	var bridge []peer.TorTransport
	switch d.way.transport {
	case "obfs4":
		obfs4, err := peer.Obfs4(disguisePort)
		if err != nil {
			return err
		}
		bridge, d.transport = []peer.TorTransport{obfs4}, []peer.TorTransport{obfs4}
	case "heddle":
		atBridge, atClient, _, err := d.covers(site)
		if err != nil {
			return err
		}
		bridge, d.transport = []peer.TorTransport{peer.HeddleTransport(o.Heddle, "--cover", atBridge)}, []peer.TorTransport{peer.HeddleTransport(o.Heddle, "--cover", atClient)}
	}
	b, err := d.network.Bridge(ctx, d.in.Host("bridge"), bridge...)
	if err != nil {
		return err
	}
	d.line = b.Line("")
	if len(bridge) > 0 {
		d.line = b.Line(bridge[0].Name)
	}
	return nil
}

// covers returns the cover of the bridge and that of clients, and the certificate of the website.
func (d *disguised) covers(site *peer.Website) (bridge, client, certificate string, err error) {
	if !d.needsSite() {
		return d.cover, d.cover, "", nil
	}
	return site.Cover(d.cover, d.work)
}

// serveWebsite starts a bridge that nobody uses, for visitors of its website.
func (d *disguised) serveWebsite(ctx context.Context, o DisguiseOptions, site *peer.Website) error {
	cover, _, certificate, err := d.covers(site)
	if err != nil {
		return err
	}
	for _, target := range site.Pages {
		d.pages = append(d.pages, strings.TrimPrefix(target, "/"))
	}
	host, port := d.in.Host("bridge"), map[string]uint16{"http": 80, "https": 443}[d.cover]
	b, err := peer.StartDisguise(ctx, host, o.Heddle, cover, port, "--to", "127.0.0.1:9")
	if err != nil {
		return err
	}
	d.page = browser.Visit{Server: fmt.Sprintf("%s:%d", site.Host, port), TCP: true, Idle: true, Plain: d.cover == "http", Relay: b.At.String(), Certificate: certificate}
	return nil
}

// startTor starts the client's Tor, and waits until it has built a circuit.
func (d *disguised) startTor(ctx context.Context) (*peer.Tor, error) {
	return d.network.Client(ctx, d.in.Host("client"), "client", disguiseSOCKS, d.line, d.transport...)
}

// visit implements [visits]. Who visits the website is innocent.
func (d *disguised) visit(ctx context.Context, t task) (Visit, error) {
	t.site.Monitored = t.site.Monitored && !d.website
	return d.attempt(ctx, t, func(dir string) (*observe.Session, error) {
		name, pages := t.site.Name, []string{t.site.Page}
		if d.website {
			pages = d.browse(t.load)
			name = "/" + pages[0]
		}
		if err := d.atRouter(ctx, dir, func() error { return d.load(ctx, t.site, pages) }); err != nil {
			return nil, err
		}
		if d.captures != "" {
			if err := d.keepCapture(dir, fmt.Sprintf("%s-%d.pcapng", t.site.Name, t.round)); err != nil {
				return nil, err
			}
		}
		// The last packets of a visit's connections may come after its end.
		return observe.Load(name, dir, observe.Options{Contents: true, Begun: !d.keep})
	})
}

// keepCapture keeps the capture of a visit. One that is made again replaces it.
func (d *disguised) keepCapture(dir, name string) error {
	b, err := os.ReadFile(filepath.Join(dir, captureName+".pcapng"))
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(d.captures, name), b, 0o644)
}

// browsed is how many pages of the website a visitor opens. A visit by Tor exchanges as much as several pages of most sites.
const browsed = 4

// browse returns the pages of a visitor, who begins with another one in each visit.
func (d *disguised) browse(visit int64) (pages []string) {
	for i := range int64(browsed) {
		pages = append(pages, d.pages[(visit+i)%int64(len(d.pages))])
	}
	return pages
}

// load loads pages one after the other, by a Tor of its own unless one is kept.
func (d *disguised) load(ctx context.Context, site Site, pages []string) error {
	if d.way.transport != "" && !d.keep {
		tor, err := d.startTor(ctx)
		if err != nil {
			return err
		}
		defer tor.Stop()
	}
	v := d.page
	if !d.website {
		v.Server = site.Server() + ":443"
	}
	v.Contexts, v.Timeout, site.Protocol = [][]string{pages}, loadPatience, HTTP2
	if v.Plain {
		site.Protocol = "http/1.1"
	}
	patient, cancel := context.WithTimeout(ctx, time.Duration(len(pages))*loadPatience+20*time.Second)
	defer cancel()
	seen, err := v.Run(patient, d.in.Host("client"))
	if err != nil {
		return err
	}
	return loaded(seen, len(pages), site)
}
