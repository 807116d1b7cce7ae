// Package overlay is `heddle overlay`: the survey of ways by overlay nodes, and the choice among them.
package overlay

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/overlay/client"
	"heddle/overlay/survey"
	"heddle/path"
)

// Command is `heddle overlay`.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "overlay",
		Short: "Choose the overlay nodes whose ways the fewest networks see together",
		Long: `Overlay measures which networks (autonomous systems) lie on the ways from here
to each overlay node, and from each node to a destination, and chooses nodes and
uplinks such that as few networks as possible see more than one way.`,
		Example: `  heddle overlay survey 192.0.2.1:443 --via home=if:eth0 --via lte=if:wwan0
  heddle overlay choose 192.0.2.1:443 --via home=if:eth0 --via lte=if:wwan0`,
	}
	cmd.AddCommand(newSurveyCommand(), newChooseCommand(), newTraceCommand())
	return cmd
}

// Flags are what survey and choose share: the ways that there are.
type Flags struct {
	table       string
	Vias, nodes []string
	MaxAge      time.Duration
	json        bool
}

func (f *Flags) register(cmd *cobra.Command, maxAge time.Duration, age string) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.Vias, "via", nil, "an uplink, `NAME=if:DEVICE` or NAME=src:ADDRESS; one flag each")
	flags.StringArrayVar(&f.nodes, "node", nil, "a `NODE`: a pass's name or file, or NAME=HOST:PORT; all passes if not given")
	flags.StringVar(&f.table, "table", "", "the `FILE` of the table of ASes; asn.table in Heddle's settings if not given")
	flags.DurationVar(&f.MaxAge, "max-age", maxAge, age)
	flags.BoolVar(&f.json, "json", false, "print JSON")
	_ = cmd.RegisterFlagCompletionFunc("via", bind.CompleteVia)
}

// Node is a node that a way may go through.
type Node struct {
	Name string
	addr netip.AddrPort
	pass *client.Pass // nil where only the address is known
}

// key tells its measurements apart from those of other nodes.
func (n Node) key() string {
	if n.pass != nil {
		return n.pass.Key.String()
	}
	return n.addr.String()
}

// Ways are all ways to a destination.
type Ways struct {
	To      netip.AddrPort
	uplinks []path.Spec // one without a name where none was given
	Nodes   []Node
	// requests are those from here, by node and uplink, or why there is none.
	requests map[[2]string]survey.Request
	problems map[[2]string]string
}

// Ways finds out what the flags mean now.
func (f *Flags) Ways(ctx context.Context, destination string) (*Ways, error) {
	to, err := resolve(ctx, destination, "443")
	if err != nil {
		return nil, cli.Usage(err)
	}
	w := &Ways{To: to, requests: map[[2]string]survey.Request{}, problems: map[[2]string]string{}}
	for _, text := range f.Vias {
		spec, err := path.ParseSpec(text)
		if err == nil && spec.Kind != "if" && spec.Kind != "src" {
			err = &path.Error{What: "path " + spec.Name, Why: "a way out of kind " + spec.Kind + " cannot be surveyed", Hint: "name the uplinks, such as --via home=if:eth0"}
		}
		if err == nil && slices.ContainsFunc(w.uplinks, func(s path.Spec) bool { return s.Name == spec.Name }) {
			err = &path.Error{What: "path " + spec.Name, Why: "two uplinks have this name", Hint: "give each its own name"}
		}
		if err != nil {
			return nil, cli.Usage(err)
		}
		w.uplinks = append(w.uplinks, spec)
	}
	if len(w.uplinks) == 0 {
		w.uplinks = []path.Spec{{}}
	}
	if w.Nodes, err = f.findNodes(ctx); err != nil {
		return nil, err
	}
	for _, n := range w.Nodes {
		for _, spec := range w.uplinks {
			up, err := survey.FindUplink(spec, n.addr.Addr())
			if err != nil {
				w.problems[[2]string{n.Name, spec.Name}] = err.Error()
				continue
			}
			w.requests[[2]string{n.Name, spec.Name}] = survey.Request{Uplink: up, To: n.addr}
		}
	}
	return w, nil
}

// findNodes are those named by --node, or all that this device has a pass for.
func (f *Flags) findNodes(ctx context.Context) (nodes []Node, err error) {
	var passes []client.Pass
	for _, text := range f.nodes {
		name, address, bare := strings.Cut(text, "=")
		if bare {
			addr, err := resolve(ctx, address, "")
			if err == nil {
				err = client.CheckName(name)
			}
			if err != nil {
				return nil, cli.Usage(err)
			}
			nodes = append(nodes, Node{Name: name, addr: addr})
			continue
		}
		pass, err := client.LoadPass(text)
		if err != nil {
			return nil, err
		}
		passes = append(passes, pass)
	}
	if len(f.nodes) == 0 {
		dir, err := client.Dir()
		if err != nil {
			return nil, err
		}
		if passes, err = client.Passes(dir); err != nil {
			return nil, err
		}
	}
	for _, p := range passes {
		addr, err := resolve(ctx, p.Addresses[0], "")
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, Node{p.Name, addr, &p})
	}
	if len(nodes) == 0 {
		return nil, &path.Error{What: "overlay nodes", Why: "this device has a pass for none", Hint: "`heddle node add FILE` adds one; or name nodes with --node"}
	}
	for i, n := range nodes {
		if slices.ContainsFunc(nodes[:i], func(m Node) bool { return m.Name == n.Name }) {
			return nil, &path.Error{What: "node " + n.Name, Why: "two nodes have this name", Hint: "name them with --node NAME=HOST:PORT"}
		}
	}
	return nodes, nil
}

// resolve reads HOST:PORT, or HOST where there is a usual port. A name is asked of this machine's resolver.
func resolve(ctx context.Context, text, port string) (netip.AddrPort, error) {
	bad := func(why string, err error) (netip.AddrPort, error) {
		return netip.AddrPort{}, &path.Error{What: fmt.Sprintf("%q", text), Why: why, Err: err, Hint: "write HOST:PORT, such as 192.0.2.1:443"}
	}
	name, number, err := net.SplitHostPort(text)
	if err != nil && port != "" {
		name, number, err = strings.Trim(text, "[]"), port, nil
	}
	if err != nil {
		return bad("it is no address", err)
	}
	n, err := net.LookupPort("tcp", number)
	if err != nil || n == 0 {
		return bad("it has no port", err)
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil || len(addrs) == 0 {
		return bad("it has no address", err)
	}
	// IPv4 first: more of its routers answer.
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return a.Unmap().BitLen() - b.Unmap().BitLen() })
	return netip.AddrPortFrom(addrs[0].Unmap(), uint16(n)), nil
}

// Known joins what is measured to ways; halves older than maxAge do not count. It says how old the oldest is that does.
func (w *Ways) Known(halves map[string]survey.Half, maxAge time.Duration, now time.Time) (ways []survey.Way, oldest time.Duration) {
	fresh := func(key string) *survey.Half {
		h, ok := halves[key]
		if !ok || h.Age(now) > maxAge {
			return nil
		}
		oldest = max(oldest, h.Age(now))
		return &h
	}
	for _, n := range w.Nodes {
		far := fresh(survey.FarKey(n.key(), w.To.String()))
		for _, spec := range w.uplinks {
			way := survey.Way{Node: n.Name, Uplink: spec.Name, Far: far}
			if request, ok := w.requests[[2]string{n.Name, spec.Name}]; ok {
				way.Near = fresh(survey.NearKey(request))
			}
			ways = append(ways, way)
		}
	}
	return ways, oldest
}
