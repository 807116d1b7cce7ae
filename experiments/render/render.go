// Package render has Chromium load the pages of a recorded website from a bridge that hides something in them, and compares them with what was
// recorded: errors of scripts, and what the page became.
package render

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"heddle/lab"
	"heddle/lab/browser"
	"heddle/lab/peer"
)

// Options say what is loaded.
type Options struct {
	Heddle  string // the binary
	Website string // the file of the recorded website
	Loads   int    // from the bridge, at least
	Talk    io.Writer
}

// Row is what became of one page.
type Row struct {
	Page   string         `json:"page"`   // its target
	Loads  int            `json:"loads"`  // from the bridge
	Errors map[string]int `json:"errors"` // how many loads had an error that no load of the original had
	Other  int            `json:"other"`  // loads whose page has other elements, sizes of pictures or text than the original
	Varies bool           `json:"varies"` // two loads of the original differ in these, so nothing can be said of them
}

// Wrong counts the faults: an error for each load that had it, and loads that differ.
func (r Row) Wrong() (n int) {
	for _, times := range r.Errors {
		n += times
	}
	return n + r.Other
}

// references is how often the original is loaded.
const references = 2

// patience bounds one page on a busy machine.
const patience = 2 * time.Minute

// lacking is how long a page may lack responses that the original had. Scripts of a busy machine ask late.
const lacking = 10 * time.Second

// Ports of the host of the servers.
const (
	bridgePort   = 80
	originalPort = 8080
)

// Run loads all pages again and again, until there are as many loads as are wanted. It fails with [peer.ErrMissing] without Chromium.
func Run(ctx context.Context, o Options) ([]Row, error) {
	if err := browser.Supported(); err != nil {
		return nil, err
	}
	site, err := peer.RecordedWebsite(ctx, o.Heddle, o.Website)
	if err != nil {
		return nil, err
	}
	targets := slices.Compact(slices.Sorted(slices.Values(site.Pages)))
	return run(ctx, o, site.Host, targets)
}

// run loads some pages of a website with this name.
func run(ctx context.Context, o Options, name string, targets []string) (rows []Row, err error) {
	world := lab.Pair()
	world.Name, world.Links[0].AtoB, world.Links[0].BtoA = "render", lab.Shape{}, lab.Shape{}
	in, err := lab.Up(ctx, world, lab.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Down()) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	server := in.Host("b")
	bridge, err := peer.StartDisguise(ctx, server, o.Heddle, "http:site="+o.Website, bridgePort, "--to", "127.0.0.1:9")
	if err != nil {
		return nil, err
	}
	at := netip.AddrPortFrom(server.Addrs()[0], originalPort)
	original, err := peer.Start(ctx, server, o.Heddle, "disguise", "site", "serve", o.Website, "--listen", at.String())
	if err == nil {
		_, err = original.OrStop(original.AwaitLog(ctx, "is at http://"))
	}
	if err != nil {
		return nil, err
	}
	var wants []int
	load := func(from netip.AddrPort) ([]browser.Page, error) {
		var pages []string
		for _, target := range targets {
			pages = append(pages, strings.TrimPrefix(target, "/"))
		}
		return browser.Visit{Server: name + ":80", Plain: true, Relay: from.String(), Contexts: [][]string{pages}, Timeout: patience, Idle: true, Shape: true, Wants: wants, Patience: lacking}.Run(ctx, in.Host("a"))
	}
	all := make([]reference, len(targets))
	for range references {
		seen, err := load(at)
		if err != nil {
			return nil, err
		}
		for i := range all {
			if err := all[i].add(seen[i]); err != nil {
				return nil, err
			}
		}
		wants = nil
		for i := range all {
			wants = append(wants, all[i].responses)
		}
	}
	for _, target := range targets {
		rows = append(rows, Row{Page: target, Errors: map[string]int{}})
	}
	for done := 0; done < o.Loads; {
		seen, err := load(bridge.At)
		if err != nil {
			return nil, err
		}
		for i := range rows {
			all[i].compare(&rows[i], seen[i])
		}
		done += len(seen)
		fmt.Fprintf(o.Talk, "%d of %d loads\n", done, max(o.Loads, done))
	}
	return rows, nil
}

// reference is what the original of a page is.
type reference struct {
	errors map[string]bool
	shape  string
	varies bool
	// responses are the most that a load had.
	responses int
}

// add adds a load of the original.
func (r *reference) add(p browser.Page) error {
	if p.Error != "" {
		return fmt.Errorf("the original of %s does not load: %s", p.URL, p.Error)
	}
	if r.errors == nil {
		r.errors, r.shape = map[string]bool{}, p.Shape
	}
	r.responses = max(r.responses, len(p.Responses))
	r.varies = r.varies || r.shape != p.Shape
	for e := range failures(p) {
		r.errors[e] = true
	}
	return nil
}

// compare adds a load from the bridge to a row.
func (r *reference) compare(row *Row, p browser.Page) {
	row.Loads++
	for e := range failures(p) {
		if !r.errors[e] {
			row.Errors[e]++
		}
	}
	if row.Varies = r.varies; p.Error == "" && !r.varies && p.Shape != r.shape {
		row.Other++
	}
}

// failures are all that went wrong in a load, each once.
func failures(p browser.Page) map[string]bool {
	all := slices.Concat(p.Failed, p.Errors)
	if p.Error != "" {
		all = append(all, p.Error)
	}
	out := map[string]bool{}
	for _, e := range all {
		out[token.ReplaceAllString(e, "...")] = true
	}
	return out
}

// token is what differs at each visit.
var token = regexp.MustCompile(`[A-Za-z0-9+/_=%-]{40,}`)

// Sorted returns the errors of a row, the most frequent first.
func (r Row) Sorted() []string {
	all := slices.Sorted(maps.Keys(r.Errors))
	slices.SortStableFunc(all, func(a, b string) int { return r.Errors[b] - r.Errors[a] })
	return all
}
