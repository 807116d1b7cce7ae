package client

import (
	"context"
	"net"
	"net/netip"
	"strings"

	"heddle/disguise/cover"
	"heddle/disguise/handshake"
	"heddle/internal/errhint"
	"heddle/path"
)

// Scheme is the kind of these paths.
const Scheme = "disguise"

// Register registers the kind. read reads the file of a path.
func Register(read func(file string) (Bridge, error)) {
	path.Register(path.Kind{Scheme: Scheme, Argument: "FILE", Carries: path.Datagrams | path.Streams, Tunnel: true,
		New: func(s path.Spec, o path.Options) (path.Path, error) {
			file, err := read(s.Arg)
			if err != nil {
				return nil, &path.Error{What: "path " + s.Name, Err: err, Hint: errhint.Of(err)}
			}
			if err := path.Need(o.Base, file.Carries(), "the tunnel "+s.Name); err != nil {
				return nil, err
			}
			return newPath(s, file, o.Base)
		}})
}

// packetSize is the largest IP packet of a flow in bytes. The link carries larger ones, and the networks behind the bridge do not.
const packetSize = 1500

// bridgePath is a path through one bridge, in one link.
type bridgePath struct {
	spec  path.Spec
	base  path.Path
	many  *Many
	key   string
	at    string
	claim string
}

func newPath(s path.Spec, file Bridge, base path.Path) (path.Path, error) {
	options, err := file.Options()
	if err != nil {
		return nil, &path.Error{What: "path " + s.Name, Err: err, Hint: errhint.Of(err)}
	}
	options.Paths = []Path{{Name: s.Name, Path: base}}
	many, err := NewMany(options)
	if err != nil {
		return nil, err
	}
	return &bridgePath{spec: s, base: base, many: many, key: options.Line.Key.String()[:12], at: options.Line.Address.String(),
		claim: strings.Join(file.Claims(options.Line), "; the cover ")}, nil
}

// Claims returns the name of each cover that is used, and what it hides and what it does not.
func (b Bridge) Claims(l handshake.Line) (all []string) {
	for _, spec := range b.covers(l) {
		name, _, _ := cover.ParseSpec(spec)
		claim := name
		for _, k := range cover.Kinds() {
			if k.Name == name {
				claim += " " + k.Claim
			}
		}
		all = append(all, claim)
	}
	return all
}

// Describe returns what this machine knows of the path.
func (p *bridgePath) Describe() path.Info {
	under := p.base.Describe()
	return path.Info{Name: p.spec.Name, Kind: p.spec.Kind, Arg: p.spec.Arg, Observer: Scheme + ":" + p.at, Exit: Scheme + ":" + p.key, Endpoint: p.at,
		Addresses: under.Addresses, MTU: packetSize, Ready: under.Ready, Why: under.Why, Hint: under.Hint,
		Claim: strings.Join([]string{"the network under it sees connections to the bridge " + p.at + ", and not the server; the cover " + p.claim,
			"the bridge sees your address and the server's, and what is not encrypted inside", "the server and its network see the bridge's address in place of yours"}, "; ")}
}

// Dial makes the bridge connect to a target. The bridge looks names up.
func (p *bridgePath) Dial(ctx context.Context, to path.Target) (net.Conn, error) {
	return p.many.Dial(ctx, to)
}

// Open opens a flow of datagrams by the bridge.
func (p *bridgePath) Open(ctx context.Context, to netip.AddrPort) (path.Flow, error) {
	return p.many.Flow(ctx, to)
}
