package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"heddle/identity"
	"heddle/internal/dial"
	"heddle/overlay/client"
	"heddle/path"
)

// Node is a node that a path may use.
type Node struct {
	Name string
	Addr netip.AddrPort
	Pass *client.Pass // nil if only the address is known
}

// Key identifies the node's measurements.
func (n Node) Key() string {
	if n.Pass != nil {
		return n.Pass.Key.String()
	}
	return n.Addr.String()
}

// Plan is all paths to a destination: each uplink through each node.
type Plan struct {
	To       netip.AddrPort
	Uplinks  []path.Spec // one without a name if none was given
	Nodes    []Node
	Requests map[[2]string]Request // from here, by node and uplink
	Problems map[[2]string]string  // why there is no request
}

// ArgumentError is a mistake in the arguments. Nothing was tried.
type ArgumentError struct{ error }

func (e *ArgumentError) Unwrap() error { return e.error }

// NewPlan reads a destination, HOST[:PORT], the uplinks, NAME=if:DEVICE or NAME=src:ADDRESS, and the nodes: a pass's name or
// file, or NAME=HOST:PORT. Defaults are the system's routes, and all nodes that this user has passes for.
func NewPlan(ctx context.Context, destination string, uplinks, nodes []string) (*Plan, error) {
	to, err := Resolve(ctx, destination, "443")
	if err != nil {
		return nil, &ArgumentError{err}
	}
	p := &Plan{To: to, Requests: map[[2]string]Request{}, Problems: map[[2]string]string{}}
	for _, text := range uplinks {
		spec, err := path.ParseSpec(text)
		if err == nil && spec.Kind != "if" && spec.Kind != "src" {
			err = &path.Error{What: "path " + spec.Name, Why: "a path of kind " + spec.Kind + " cannot be surveyed", Hint: "name the uplinks, such as --via home=if:eth0"}
		}
		if err == nil && slices.ContainsFunc(p.Uplinks, func(s path.Spec) bool { return s.Name == spec.Name }) {
			err = &path.Error{What: "path " + spec.Name, Why: "two uplinks have this name", Hint: "give each its own name"}
		}
		if err != nil {
			return nil, &ArgumentError{err}
		}
		p.Uplinks = append(p.Uplinks, spec)
	}
	if len(p.Uplinks) == 0 {
		p.Uplinks = []path.Spec{{}}
	}
	if p.Nodes, err = findNodes(ctx, nodes); err != nil {
		return nil, err
	}
	for _, n := range p.Nodes {
		for _, spec := range p.Uplinks {
			up, err := FindUplink(spec, n.Addr.Addr())
			if err != nil {
				p.Problems[[2]string{n.Name, spec.Name}] = err.Error()
				continue
			}
			p.Requests[[2]string{n.Name, spec.Name}] = Request{Uplink: up, To: n.Addr}
		}
	}
	return p, nil
}

// findNodes returns the nodes named by --node, or all that this device has a pass for.
func findNodes(ctx context.Context, asked []string) (nodes []Node, err error) {
	var passes []client.Pass
	for _, text := range asked {
		name, address, bare := strings.Cut(text, "=")
		if bare {
			addr, err := Resolve(ctx, address, "")
			if err == nil {
				err = client.CheckName(name)
			}
			if err != nil {
				return nil, &ArgumentError{err}
			}
			nodes = append(nodes, Node{Name: name, Addr: addr})
			continue
		}
		pass, err := client.LoadPass(text)
		if err != nil {
			return nil, err
		}
		passes = append(passes, pass)
	}
	if len(asked) == 0 {
		dir, err := client.Dir()
		if err != nil {
			return nil, err
		}
		if passes, err = client.Passes(dir); err != nil {
			return nil, err
		}
	}
	for _, p := range passes {
		addr, err := Resolve(ctx, p.Addresses[0], "")
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

// Resolve reads HOST:PORT, or HOST with a default port. This machine's resolver looks names up.
func Resolve(ctx context.Context, text, port string) (netip.AddrPort, error) {
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
	addrs, err := dial.Lookup(ctx, name)
	if err != nil {
		return bad("it has no address", err)
	}
	// IPv4 first: more of its routers answer.
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })
	return netip.AddrPortFrom(addrs[0], uint16(n)), nil
}

// askPatience is for one node by one uplink. To measure can take a minute.
const askPatience = 90 * time.Second

// Ask has a node measure its half, with the key of a file, or this user's own. The nodes are asked by the uplinks in turn, so
// that no network sees this device talk to all of them. If its uplink does not reach a node, Ask tries another uplink.
func (p *Plan) Ask(ctx context.Context, n Node, identityFile string) (Half, error) {
	if n.Pass == nil {
		return Half{}, notMeasured(n, "there is no pass for it, so it cannot be asked to measure", nil)
	}
	id, err := identity.LoadOr(identityFile)
	if err != nil {
		return Half{}, err
	}
	uplinks := p.askBy(n)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(len(uplinks))*askPatience)
	defer cancel()
	return dial.First(ctx, uplinks, func(ctx context.Context, uplink path.Spec) (Half, error) {
		h, err := p.ask(ctx, n, id, uplink)
		if _, refused := errors.AsType[*client.Refusal](err); refused { // by another uplink too
			cancel()
		}
		return h, err
	})
}

// askBy is in which order the uplinks are tried to reach a node. Those without a route to it come last.
func (p *Plan) askBy(n Node) []path.Spec {
	turn := slices.IndexFunc(p.Nodes, func(m Node) bool { return m.Name == n.Name })
	turn = max(turn, 0) % len(p.Uplinks)
	order := slices.Concat(p.Uplinks[turn:], p.Uplinks[:turn])
	routed := func(s path.Spec) int {
		if _, ok := p.Requests[[2]string{n.Name, s.Name}]; ok {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(order, func(a, b path.Spec) int { return routed(a) - routed(b) })
	return order
}

func notMeasured(n Node, why string, err error) error {
	return &path.Error{What: "node " + n.Name, Why: why, Err: err, Hint: "measure at the node with `heddle overlay trace`, and give it with --far"}
}

func (p *Plan) ask(ctx context.Context, n Node, id identity.Identity, uplink path.Spec) (h Half, err error) {
	var base path.Path
	if uplink.Name != "" {
		if base, err = path.New(uplink, path.Options{}); err != nil {
			return Half{}, err
		}
	}
	asker, err := client.New(*n.Pass, id, base)
	if err != nil {
		return Half{}, err
	}
	defer asker.Close()
	text, err := asker.Survey(ctx, p.To)
	if err != nil {
		return Half{}, err
	}
	h, err = ParseHalf(text)
	if err == nil && h.To != p.To {
		err = fmt.Errorf("it measured the path to %v", h.To)
	}
	if err != nil {
		return Half{}, notMeasured(n, "its measurement cannot be used", err)
	}
	h.At = time.Now().UTC().Truncate(time.Second) // the node's clock may differ
	return h, nil
}
